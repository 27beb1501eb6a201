"""`regions`: where a job with a deadline runs next, over any number of zones, regions and clouds.
Pure.

Every option is priced in expected dollars to the end of the job: what holding it costs, weighted
over how long it may last, plus what the plan says the rest then costs (`regions_plan`). The
cheapest is taken; a machine that runs is left only for something that saves half of what the start
costs, because estimates make other places look better than they are.

A refused start is free, so options are tried in order, and nothing else is asked: probes would cost
more than they bring.

No deadline is missed that on-demand machines can meet. The job waits for a step only while work and
one delay still fit after it; a spot machine starts only while work and two delays fit; one that
runs keeps its slack.
"""

from dataclasses import dataclass
from math import ceil, inf
from typing import Final

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.strategies.regions_plan import MAX_STEPS, PlanTerms, RegionsPlan, StepRow
from bidbrain.strategies.spells import HAZARDS, Known
from pricing_data.units import usd_text

STAY: Final = "stay"
START: Final = "start"
WAIT: Final = "wait"
MAX_PLACES: Final = 6
"""Places in a plan: the cheapest, and where the checkpoint is."""
MOVE_HURDLE: Final = 0.5
"""A move must save this share of what its start costs."""
PLAN_HOURS: Final = 2.0
_GRID: Final = np.linspace(0.0, 1.0, 48)


@dataclass(frozen=True, slots=True)
class Running:
    """The machines that the job runs on: their zone, spot or on demand, and the hours until the job
    makes progress.
    """

    zone: int
    spot: bool
    delay_left: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RegionsSituation:
    """All that a decision may depend on. Times in hours, prices in dollars per hour for the whole
    job, by zone.

    `moving[i, j]` is the price of taking the checkpoint from zone i to zone j, `home` where it is.
    `work` is the time left to work, `left` the time to the deadline in whole steps of `step`;
    `refused` zones have just refused. `share` is the part of its machines that the job runs on:
    with fewer the job is slower, and loses slack. In the zones `only_spot` no on-demand machines
    are rented: quotas do not allow as many, or the machines are slower. `names` are the zones'
    names for reasons.
    """

    now: float
    regions: tuple[str, ...]
    spot: Floats
    on_demand: Floats
    moving: Floats
    known: Known
    work: float
    left: float
    delay: float
    step: float
    running: Running | None = None
    home: int | None = None
    refused: frozenset[int] = frozenset()
    share: float = 1.0
    only_spot: frozenset[int] = frozenset()
    names: tuple[str, ...] = ()

    @property
    def slack(self) -> float:
        """Hours that can still be lost."""
        return self.left - self.work - (self.running.delay_left if self.running else 0.0)

    def fits(self, delays: int, steps: int = 0) -> bool:
        """Whether work and some starts still fit, in whole steps, after some steps without
        progress.
        """
        hours = self.work + delays * self.delay
        needed = ceil(hours / self.step - 1e-9) + steps
        return needed * self.step <= self.left + 1e-9

    @property
    def moves_usd(self) -> Floats:
        """The price of taking the checkpoint to each zone."""
        usd: Floats = np.zeros(len(self.regions)) if self.home is None else self.moving[self.home]
        return usd

    def name(self, zone: int) -> str:
        """A zone as a reason names it."""
        if self.names:
            return self.names[zone]
        return f"zone {zone}"


@dataclass(frozen=True, slots=True)
class RegionsOption:
    """Something to do now, and the expected dollars until the job is done."""

    action: str
    zone: int | None
    spot: bool
    usd: float


@dataclass(frozen=True, slots=True)
class ZoneOutlook:
    """The prospects of a job in a zone: the chance that spot is up, the hours of the job that a
    machine lasts, and the expected dollars to the end of the job if it starts there on spot and on
    demand."""

    zone: int
    chance: float
    lasts: float
    spot_usd: float
    on_demand_usd: float


class RegionsStrategy:
    """Decides for one job. A plan serves until knowledge changes, the checkpoint moves, or it is
    some hours old.
    """

    def __init__(
        self, plan_hours: float = PLAN_HOURS, *, heeds_changes: bool = True, steps: int = MAX_STEPS
    ) -> None:
        self._plan_hours = plan_hours
        self._heeds_changes = heeds_changes
        self._steps = steps
        self._key: tuple[int, int, int | None] | None = None
        self._plan: RegionsPlan | None = None

    def afresh(self) -> "RegionsStrategy":
        """This strategy for another job."""
        return RegionsStrategy(
            self._plan_hours, heeds_changes=self._heeds_changes, steps=self._steps
        )

    def decide(self, at: RegionsSituation) -> tuple[RegionsOption, str]:
        """The cheapest option, or staying, and why."""
        options = _options(at, self._planned(at))
        best = min(options, key=lambda option: (option.usd, option.action == WAIT))
        stays = next((option for option in options if option.action == STAY), None)
        if stays is not None and best is not stays and best.zone is not None:
            price = at.spot if best.spot else at.on_demand
            move_usd = float(at.moves_usd[best.zone])
            start_usd = at.delay * float(price[best.zone])
            hurdle = MOVE_HURDLE * (move_usd + start_usd)
            if best.usd > stays.usd - hurdle:
                why = f"saves less than the {usd_text(hurdle)} that a move must save"
                return stays, _reason(at, stays, best, why)

        others = (option for option in options if option is not best)
        second = min(others, key=lambda option: option.usd, default=None)
        return best, _reason(at, best, second, "costs more")

    def outlooks(self, at: RegionsSituation) -> list[ZoneOutlook]:
        """All zones, by what the job would cost there on spot, the cheapest first."""
        plan = self._planned(at)
        hours = (at.work + at.delay) * _GRID
        hours_of_zones = np.tile(hours, (len(at.regions), 1))
        survives = at.known.survivals(at.now, hours_of_zones)
        mean_survival = (survives[:, 1:] + survives[:, :-1]) / 2
        lasts = (mean_survival * np.diff(hours)).sum(axis=1)
        chances = at.known.chances(at.now)
        figures = (chances, lasts, _spot_usd(at, plan), _on_demand_usd(at, plan))
        by_zone = np.stack(figures, axis=1).tolist()
        outlooks = [ZoneOutlook(zone, *row) for zone, row in enumerate(by_zone)]
        return sorted(outlooks, key=lambda outlook: outlook.spot_usd)

    def _planned(self, at: RegionsSituation) -> RegionsPlan:
        # Where all regions are in the plan, it serves wherever the checkpoint is.
        whole = not self._heeds_changes and len(set(at.regions)) <= MAX_PLACES
        home = None if whole else at.home
        key = (at.known.changes if self._heeds_changes else 0, int(at.now / self._plan_hours), home)
        if self._plan is None or key != self._key:
            self._key = key
            self._plan = RegionsPlan(_terms(at), self._steps)
        return self._plan


def _options(at: RegionsSituation, plan: RegionsPlan) -> list[RegionsOption]:
    """The two cheapest starts of each kind, staying and waiting, as far as they are safe."""
    running = at.running
    options = list[RegionsOption]()
    spot = _spot_usd(at, plan)
    on_demand = _on_demand_usd(at, plan)
    # Waiting can at best become a start, and a refused start is free: what may be up now is asked
    # first.
    soonest = float(spot.min())
    on_demand_price = float(at.on_demand.min())
    if running is not None and (at.share == 1.0 or at.fits(1, steps=1)):
        usd = (spot if running.spot else on_demand)[running.zone]
        options.append(RegionsOption(STAY, running.zone, running.spot, float(usd)))

    if running is None and at.fits(1, steps=1):
        # Without a checkpoint, any place will do.
        home = int(plan.place.max()) if at.home is None else int(plan.place[at.home])
        idle = float(plan.usd(StepRow.IDLE, home, at.work, at.slack))
        options.append(RegionsOption(WAIT, None, False, max(idle, soonest)))

    # A spot machine that may go on is not left for a more expensive one: only its own price counts
    # to its loss.
    if not options or running is None or (running.spot and at.spot[running.zone] > on_demand_price):
        on_demand[[*at.only_spot]] = inf
        # Too late for a move, which may take time: on demand where the checkpoint is.
        if at.home is not None and not at.fits(1):
            on_demand[np.arange(on_demand.size) != at.home] = inf
        options += _cheapest(on_demand, spot=False)

    if at.fits(2) and at.fits(1, steps=1):
        closed = set(at.refused)
        if running is not None and running.spot:
            closed.add(running.zone)
        spot[[*closed]] = inf
        options += _cheapest(spot, spot=True)

    return options or [RegionsOption(WAIT, None, False, inf)]


def _cheapest(usd: Floats, *, spot: bool) -> list[RegionsOption]:
    zones = np.argsort(usd, kind="stable")[:2].tolist()
    return [RegionsOption(START, zone, spot, float(usd[zone])) for zone in zones if usd[zone] < inf]


def _spot_usd(at: RegionsSituation, plan: RegionsPlan) -> Floats:
    """Dollars to the end of the job if it runs on spot in each zone."""
    # Progress at which the machine may be lost, in a few dozen steps that grow.
    work = np.append((1.0 + at.work) ** _GRID[:-1] - 1.0, at.work)
    places = np.arange(int(plan.place.max()) + 1)
    row = plan.place
    slack: Floats | float = at.left - at.work - at.delay
    delay = np.full(len(at.regions), at.delay)
    hours = np.tile(at.delay + work, (len(at.regions), 1))
    move = at.moves_usd.copy()
    running = at.running

    if running is not None and running.spot:
        zone = running.zone
        longer = 1 / at.share
        delay[zone], move[zone], hours[zone] = (
            running.delay_left,
            0.0,
            running.delay_left + work * longer,
        )
        # The zone in which the job runs has other slack, and therefore a row of its own.
        row = np.where(np.arange(row.size) == zone, places.size, row)
        places = np.append(places, plan.place[zone])
        slack = np.full((places.size, work.size), slack)
        slack[-1] = np.maximum(at.slack - work * (longer - 1), 0.0)

    lost = plan.usd(StepRow.LOST, places[:, None], at.work - work, slack)[row]
    # In each step of progress the machine is lost with some chance, and then has cost the mean of
    # both ends.
    survives = at.known.survivals(at.now, hours)
    chance = survives[:, :-1] - survives[:, 1:]
    paid = at.spot[:, None] * (work[1:] + work[:-1]) / 2
    rest = (lost[:, 1:] + lost[:, :-1]) / 2
    ends = chance * (paid + rest)
    at_once = (1 - survives[:, 0]) * lost[:, 0]
    never = survives[:, -1] * at.spot * at.work
    later = at_once + ends.sum(axis=1) + never
    usd: Floats = move + at.spot * delay + later

    return usd


def _on_demand_usd(at: RegionsSituation, plan: RegionsPlan) -> Floats:
    """Dollars to the end of the job if it runs on demand in each zone."""
    running = at.running
    price = at.on_demand
    slack = at.left - at.work - at.delay
    later = plan.usd(StepRow.ON_DEMAND, plan.place, at.work, slack)
    begins = at.moves_usd + price * at.delay
    if running is not None and not running.spot:
        zone = running.zone
        begins[zone] = price[zone] * running.delay_left
        later[zone] = plan.usd(StepRow.ON_DEMAND, int(plan.place[zone]), at.work, at.slack)

    usd: Floats = begins + later + (price - plan.on_demand) * min(at.work, 1.0)
    return usd


def _terms(at: RegionsSituation) -> PlanTerms:
    """The terms of a plan: its places are the cheapest regions, and where the checkpoint is.

    Of a region's zones count those that cost at most what on-demand machines do, if there are any.
    """
    region = at.known.region
    usable = at.spot <= at.on_demand
    usable |= ~np.isin(region, region[usable])
    count = np.bincount(region, usable)
    chances = at.known.chances(at.now)
    ages = at.known.ages(at.now, up=False)
    factors = at.known.factors
    returns = HAZARDS[False].rate(np.clip(ages, 0.3, 3.0)) * factors[0] * (1 - chances)
    usd = np.bincount(region, at.spot * usable) / count
    losses = np.bincount(region, factors[1] * usable) / count

    # A region is up if any of its zones is.
    log_down = usable * np.log(1 - 0.98 * chances)
    up = 1 - np.exp(np.bincount(region, log_down))
    kept: list[int] = np.argsort(usd, kind="stable")[:MAX_PLACES].tolist()
    if at.home is not None and region[at.home] not in kept:
        kept[-1] = int(region[at.home])

    place = np.full(count.size, len(kept) - 1)
    place[kept] = np.arange(len(kept))
    back = np.bincount(region, returns * usable) + 1e-6
    first = [int(np.argmax(region == number)) for number in kept]
    returns_of_places = back[kept].astype(np.float64)
    moves = np.ascontiguousarray(at.moving[np.ix_(first, first)])
    lowest_on_demand = float(at.on_demand.min())
    return PlanTerms(
        usd=usd[kept],
        up=up[kept],
        returns=returns_of_places,
        losses=losses[kept],
        moves=moves,
        on_demand=lowest_on_demand,
        work=at.work,
        slack=max(at.slack, 0.0),
        delay=at.delay,
        place=place[region],
    )


def _reason(
    at: RegionsSituation, chosen: RegionsOption, other: RegionsOption | None, why: str
) -> str:
    """`stays on spot in zone 2: $31.20 to the end; starting on demand in zone 0, $44.10, costs
    more`.
    """
    said = f"{_named(at, chosen)}: {usd_text(chosen.usd)} to the end"
    if other is None:
        return said
    return f"{said}; {_named(at, other)}, {usd_text(other.usd)}, {why}"


def _named(at: RegionsSituation, option: RegionsOption) -> str:
    if option.zone is None:
        return "wait for spot"
    return f"{option.action} {'on spot' if option.spot else 'on demand'} in {at.name(option.zone)}"
