"""`regions`: where a job with a deadline runs next, over any number of zones, regions and clouds. Pure.

Every option is priced in expected dollars to the end of the job: what holding it costs, weighted over how long it may
last, plus what the plan says the rest then costs (`regions_plan`). The cheapest is taken; a machine that runs is left
only for something that saves half of what the start costs, because estimates make other places look better than they
are.

A refused start is free, so options are tried in order. A probe costs money and is worth it in two cases: a cheaper zone
may be up for long enough to move there, and little slack makes it worth knowing where to go after a loss.

No deadline is missed that on-demand machines can meet. The job waits for a step only while work and one delay still fit
after it; a spot machine starts only while work and two delays fit; one that runs keeps its slack.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from bidbrain.strategies.regions_knowledge import HAZARDS, Floats, Known
from bidbrain.strategies.regions_plan import Plan, ZoneOption

STAY: Final = "stay"
START: Final = "start"
WAIT: Final = "wait"
MOST_PLACES: Final = 6
"""Places in a plan: the cheapest, and where the checkpoint is."""
HALF_OF_A_START: Final = 0.5
PLAN_HOURS: Final = 2.0
PROBE_PAUSE: Final = 0.5
_PROBED_SHARE: Final = 0.6
_SAVING_SHARE: Final = 0.1
_SAVING_HOURS: Final = 12.0
_FIRST_PROBE: Final = 6.0
_NEAR_PRICE: Final = 1.3


@dataclass(frozen=True, slots=True)
class Running:
    """What the job runs on: a zone, spot or on demand, and the hours until it makes progress."""

    zone: int
    spot: bool
    delay_left: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RegionsSituation:
    """All that a decision may depend on. Times in hours, prices in dollars per hour for the whole job, by zone.

    `moving[i, j]` is the price of taking the checkpoint from zone i to zone j, `home` where it is. `work` is the time
    left to work, `left` the time to the deadline in whole steps of `step`; `refused` zones have just refused. `share`
    is the part of its machines that the job runs on: with fewer it is slower, and loses slack.
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
    probe_hours: float = 1 / 60

    @property
    def slack(self) -> float:
        """Hours that can still be lost."""
        return self.left - self.work - (self.running.delay_left if self.running else 0.0)

    def fits(self, delays: int, steps: int = 0) -> bool:
        """Whether work and some starts still fit, in whole steps, after some steps without progress."""
        return (ceil((self.work + delays * self.delay) / self.step - 1e-9) + steps) * self.step <= self.left + 1e-9

    def move_usd(self, zone: int) -> float:
        """What taking the checkpoint to a zone costs."""
        return 0.0 if self.home is None else float(self.moving[self.home, zone])


@dataclass(frozen=True, slots=True)
class Option:
    """Something to do now, and the expected dollars until the job is done."""

    action: str
    zone: int | None
    spot: bool
    usd: float


@dataclass(frozen=True, slots=True)
class RegionsDecision:
    """What to do, and why."""

    chosen: Option
    reason: str


class RegionsStrategy:
    """Decides for one job. A plan serves until knowledge changes, the checkpoint moves, or it is two hours old."""

    def __init__(self) -> None:
        self._key: tuple[int, int, int | None] | None = None
        self._plan: Plan | None = None

    def decide(self, at: RegionsSituation) -> RegionsDecision:
        """The cheapest option, or staying."""
        plan = self._plan_for(at)
        options = sorted(_options(at, plan), key=lambda one: one.usd)
        best = options[0]
        stays = next((one for one in options if one.action == STAY), None)
        if stays is not None and best is not stays and best.zone is not None:
            hurdle = HALF_OF_A_START * (at.move_usd(best.zone) + at.delay * _price(at, best))
            if best.usd > stays.usd - hurdle:
                why = f"saves less than the hurdle of ${hurdle:.2f}"
                return RegionsDecision(stays, _reason(stays, best, why))
        second = next((one for one in options if one is not best), None)
        return RegionsDecision(best, _reason(best, second, "costs more"))

    def probes(self, at: RegionsSituation) -> list[int]:
        """The zones that are worth a probe now; nothing is probed while nothing runs, since a try is free."""
        if at.running is None:
            return []
        plan, running = self._plan_for(at), at.running
        work, slack = np.array([at.work]), at.slack
        later = np.array([max(slack - at.delay, 0.0)])
        a_start = float((plan.lost(running.zone, work, later) - plan.lost(running.zone, work, np.array([slack])))[0])
        age = at.known.zones[running.zone].age(at.now, up=True) + PROBE_PAUSE
        losses = HAZARDS[True].rate(age) * at.known.factor(running.zone, up=True) if running.spot else 0.0
        price = float((at.spot if running.spot else at.on_demand)[running.zone])
        knowing = losses * a_start * _PROBED_SHARE / max(len(at.regions) - 1, 1)
        return [
            zone
            for zone in range(len(at.regions))
            if zone != running.zone and self._worth_a_probe(at, zone, price, knowing, a_start)
        ]

    def _worth_a_probe(self, at: RegionsSituation, zone: int, price: float, knowing: float, a_start: float) -> bool:
        """Whether the dollars an hour that knowing is worth have paid for a probe since the last look."""
        spot, hours = float(at.spot[zone]), min(at.work, _SAVING_HOURS)
        worth = knowing if spot < price * _NEAR_PRICE else 0.0
        saved = (price - spot) * hours - at.move_usd(zone) - at.delay * spot - a_start
        if saved > 0 and price > spot:
            worth += at.known.chance(zone, at.now) * saved / hours * _SAVING_SHARE
        if worth <= 0:
            return False
        pause = max(PROBE_PAUSE, spot * at.probe_hours / worth)
        known = at.known.zones[zone]
        return pause < _FIRST_PROBE if known.up is None else at.now - known.seen >= pause - 1e-9

    def _plan_for(self, at: RegionsSituation) -> Plan:
        key = (at.known.changes, int(at.now / PLAN_HOURS), at.home)
        if self._plan is None or key != self._key:
            self._key, self._plan = key, _planned(at)
        return self._plan


def _options(at: RegionsSituation, plan: Plan) -> list[Option]:
    running, found = at.running, list[Option]()
    if running is not None and (at.share == 1.0 or at.fits(1, steps=1)):
        usd = _spot_usd(at, plan, running.zone) if running.spot else _on_demand_usd(at, plan, running.zone)
        found.append(Option(STAY, running.zone, running.spot, usd))
    if running is None and at.fits(1, steps=1):
        found.append(Option(WAIT, None, False, plan.idle(at.home, at.work, at.slack)))
    if running is None or running.spot:
        # Too late for a move, which may take time: on demand where the checkpoint is.
        zones = range(len(at.regions)) if at.home is None or at.fits(1) else [at.home]
        found += [Option(START, zone, False, _on_demand_usd(at, plan, zone)) for zone in zones]
    if at.fits(2) and at.fits(1, steps=1):
        held = running.zone if running is not None and running.spot else None
        tried = (zone for zone in range(len(at.regions)) if zone not in at.refused and zone != held)
        found += [Option(START, zone, True, _spot_usd(at, plan, zone)) for zone in tried]
    return found


def _begins(at: RegionsSituation, zone: int, *, spot: bool) -> tuple[float, float, float]:
    """The delay of running in a zone, the price of the move, and the slack after it."""
    running = at.running
    if running is not None and (running.zone, running.spot) == (zone, spot):
        return running.delay_left, 0.0, at.slack
    return at.delay, at.move_usd(zone), at.left - at.work - at.delay


def _spot_usd(at: RegionsSituation, plan: Plan, zone: int) -> float:
    delay, move, slack = _begins(at, zone, spot=True)
    price = float(at.spot[zone])
    # Progress at which the machine may be lost, in a few dozen steps that grow.
    work = np.append(np.geomspace(1.0, 1.0 + at.work, 48)[:-1] - 1.0, at.work)
    longer = 1 / at.share if at.running is not None and at.running.spot and at.running.zone == zone else 1.0
    survives = at.known.survival(zone, at.now, delay + work * longer)
    lost = plan.lost(zone, at.work - work, np.maximum(slack - work * (longer - 1), 0.0))
    middle = (work[1:] + work[:-1]) / 2
    ends = (survives[:-1] - survives[1:]) * (price * middle + (lost[1:] + lost[:-1]) / 2)
    later = float(((1 - survives[0]) * lost[0] + ends.sum() + survives[-1] * price * at.work).item())
    return move + price * delay + later


def _on_demand_usd(at: RegionsSituation, plan: Plan, zone: int) -> float:
    delay, move, slack = _begins(at, zone, spot=False)
    more = float(at.on_demand[zone]) - plan.on_demand
    return move + float(at.on_demand[zone]) * delay + plan.on_demand_on(zone, at.work, slack) + more * min(at.work, 1.0)


def _planned(at: RegionsSituation) -> Plan:
    by_region: dict[str, list[int]] = {}
    for zone, region in enumerate(at.regions):
        by_region.setdefault(region, []).append(zone)
    places = sorted((_place(at, zones) for zones in by_region.values()), key=lambda place: place.usd)
    kept = places[:MOST_PLACES]
    if at.home is not None and not any(at.home in place.zones for place in kept):
        kept[-1] = next(place for place in places if at.home in place.zones)
    first = [place.zones[0] for place in kept]
    moves = at.moving[np.ix_(first, first)]
    return Plan(kept, moves, float(at.on_demand.min()), at.work, max(at.slack, 0.0), at.delay)


def _place(at: RegionsSituation, zones: list[int]) -> ZoneOption:
    chances = np.array([at.known.chance(zone, at.now) for zone in zones])
    down = [min(max(at.known.zones[zone].age(at.now, up=False), 0.3), 3.0) for zone in zones]
    factors = [at.known.factor(zone, up=False) for zone in zones]
    returns = np.array([HAZARDS[False].rate(age) * factor for age, factor in zip(down, factors, strict=True)])
    losses = float(np.mean([at.known.factor(zone, up=True) for zone in zones]))
    up = float(1 - np.prod(1 - 0.98 * chances))
    return ZoneOption(
        (*zones,), float(at.spot[zones].mean()), up, float((returns * (1 - chances)).sum()) + 1e-6, losses
    )


def _price(at: RegionsSituation, option: Option) -> float:
    return 0.0 if option.zone is None else float((at.spot if option.spot else at.on_demand)[option.zone])


def _reason(chosen: Option, other: Option | None, why: str) -> str:
    """`stays on spot in zone 2: $31.20 to the end; starting on demand in zone 0, $44.10, costs more`."""
    said = f"{_named(chosen)}: ${chosen.usd:,.2f} to the end"
    return said if other is None else f"{said}; {_named(other)}, ${other.usd:,.2f}, {why}"


def _named(option: Option) -> str:
    if option.zone is None:
        return "wait for spot"
    return f"{option.action} {'on spot' if option.spot else 'on demand'} in zone {option.zone}"
