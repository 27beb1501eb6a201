"""`Roaming`: in which of its markets a gang runs next, by `regions`, within a `Decider`. Pure.

The whole gang is in one market. What it has seen of its markets, and where its checkpoint is, come
with the situation; the decider's safety net decides first. A market is tried while the running
machines go on: the old machines are returned once all of the new ones are granted.

A gang that goes on with some of its nodes is compared, at its present speed, with a complete gang
elsewhere. While the gang works, it moves only to a market that has not refused all of its nodes
lately; with too few nodes to work, it takes what it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction.hazard import Hazard
from bidbrain.strategies.base import Decision, Holding, Look, Offer, Rent, Return, Situation
from bidbrain.strategies.regions import (
    PLAN_HOURS,
    START,
    RegionsSituation,
    RegionsStrategy,
    Running,
)
from bidbrain.strategies.spells import Known
from pricing_data.market import NO_ZONE, Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR

_ROUNDING = 1e-9

LOOK_AROUND = 30 * MINUTE
"""How often a gang that runs compares its market with the others."""

_PAUSES_AROUND, _LOOKS_OF_A_PLAN, _STEPS = 6, 3, 48
"""How many pauses of a play are between two such looks, how many of these looks a plan serves, and
its steps."""


@dataclass(frozen=True, slots=True)
class GangNow:
    """A gang and its terms: `baseline` are the machines that measure its work, and `speed` is the
    part of theirs that checkpoints leave. `delay` is what a start takes, and `look` the shortest
    time to the next decision. Quotas do not hold the gang on demand in the markets `only_spot`. The
    gang works with `least` of its nodes."""

    nodes: int
    least: int
    baseline: Rent
    speed: float
    deadline: int
    delay: int
    look: int
    only_spot: frozenset[Market] = frozenset()


@dataclass(frozen=True, eq=False)
class _ZoneFacts:
    """The unchanging facts about the markets, by zone; `zones` has the number of each market, the
    first where there are several."""

    zones: Mapping[Market, int]
    regions: tuple[str, ...]
    names: tuple[str, ...]
    nu: Floats
    on_demand: Floats


@dataclass(frozen=True, eq=False)
class Roaming:
    """The markets of a gang, the price of sending a GB from one to another, and what their prices
    had shown.

    `gigabytes` is the size that the gang's checkpoint is expected to have as long as there is none:
    with moves that cost nothing, waiting for the best market would look better than a start.
    """

    offers: tuple[Offer, ...]
    usd_per_gb: Floats
    known: Known
    gigabytes: float = 0.0
    strategy: RegionsStrategy = field(default_factory=RegionsStrategy)
    around: int = LOOK_AROUND
    _folded: dict[tuple[Look, ...], Known] = field(default_factory=dict)

    def later(self, span: int) -> Roaming:
        """These markets for a job that begins later, or earlier, and then knows as much."""
        since = self.known.since + span / HOUR
        seen = self.known.seen + span / HOUR
        known = replace(self.known, since=since, seen=seen)
        return replace(self, known=known, strategy=self.strategy.afresh(), _folded={})

    def with_rare_looks(self, pause: int) -> Roaming:
        """These markets for plays of a long job, in which most looks and most new plans change
        nothing.
        """
        around = max(self.around, _PAUSES_AROUND * pause)
        looked_hours = _LOOKS_OF_A_PLAN * around / HOUR
        strategy = RegionsStrategy(max(PLAN_HOURS, looked_hours), heeds_changes=False, steps=_STEPS)
        return replace(self, strategy=strategy, around=around, _folded={})

    @cached_property
    def _facts(self) -> _ZoneFacts:
        zones = dict[Market, int]()
        names = list[str]()
        for zone, offer in enumerate(self.offers):
            market = offer.market
            zones.setdefault(market, zone)
            place = market.region if market.zone == NO_ZONE else market.zone
            names.append(f"{place} ({market.instance_type})")

        nu = np.array([offer.nu for offer in self.offers])
        on_demand = np.array([offer.on_demand for offer in self.offers])
        return _ZoneFacts(zones, regions_of(self.offers), tuple(names), nu, on_demand)

    def decide(self, situation: Situation, gang: GangNow) -> Decision:
        """Decides whether the gang stays, starts elsewhere, or waits."""
        at = self.seen(situation, gang)
        chosen, reason = self.strategy.decide(at)
        running = at.running
        inside = None
        if running is not None:
            inside = (self.offers[running.zone].market, running.spot)

        # An order that brought too few machines is returned even if it is in the same market.
        lost = [
            Return(holding.allocation) for holding in situation.holdings if _kind(holding) != inside
        ]
        soon = situation.now + self.around
        if chosen.action != START or chosen.zone is None:
            return Decision((*lost,), soon, reason)

        offer = self.offers[chosen.zone]
        rent = Rent(offer, gang.nodes, offer.on_demand if chosen.spot else None)
        leaves = situation.now + gang.delay
        held = [holding.allocation for holding in situation.holdings if _kind(holding) == inside]
        returns = (Return(allocation, leaves, replaced=True) for allocation in held)
        return Decision((*lost, rent, *returns), soon, reason)

    def last_resort(self, situation: Situation, gang: GangNow) -> Rent:
        """The on-demand machines that finish the job for the least, with the move to them."""
        planned = gang.baseline
        hours = situation.work_left / (planned.machines * planned.offer.nu) / HOUR
        facts = self._facts
        usd = facts.on_demand / NANOS_PER_DOLLAR * planned.machines * hours
        saved = situation.saved
        if saved is not None and (home := facts.zones.get(saved.market)) is not None:
            usd += self.usd_per_gb[home] * saved.gigabytes

        usd[np.abs(facts.nu - planned.offer.nu) >= _ROUNDING] = inf
        usd[[*self._zones(gang.only_spot)]] = inf
        cheapest = int(usd.argmin())
        if usd[cheapest] == inf:
            return planned
        return Rent(self.offers[cheapest], planned.machines, None)

    def move_usd(self, origin: Market, target: Market, gigabytes: float) -> float:
        """The price of sending a checkpoint from one market to another."""
        begins = self._facts.zones.get(origin)
        ends = self._facts.zones.get(target)
        if begins is None or ends is None:
            return 0.0
        return float(self.usd_per_gb[begins, ends]) * gigabytes

    def seen(self, situation: Situation, gang: GangNow) -> RegionsSituation:
        """The situation as the strategy sees it: markets are zones, and hours those of the
        baseline.
        """
        now = situation.now
        per_hour = gang.nodes / NANOS_PER_DOLLAR
        open_now = set(situation.offers)
        running, share = self._running(situation.holdings, gang, now)
        on_spot = None
        if running is not None and running.spot:
            on_spot = running.zone
        known = self._known(situation.looks(), now, on_spot)

        facts = self._facts
        # Work per hour of each machine of the baseline.
        nu = gang.baseline.offer.nu
        slower = nu / facts.nu
        prices = [situation.price(offer) for offer in self.offers]
        spot = np.array(prices)

        # On slower machines on demand, the job would end later than assumed.
        least_nu = nu - _ROUNDING
        too_slow = np.flatnonzero(facts.nu < least_nu).tolist()
        only_spot = self._zones(gang.only_spot) | {*too_slow}
        saved = situation.saved
        gigabytes = self.gigabytes if saved is None else saved.gigabytes

        # A gang that runs and may shrink does not move to a market that has lately refused all of
        # its machines.
        asks_less = running is not None and gang.least < gang.nodes
        # A checkpoint on its way counts as arrived: a gang that has just moved does not move back
        # for its checkpoint.
        home = None
        if saved is not None:
            home = facts.zones.get(saved.market) if running is None else running.zone
        refused = set[int]()

        for zone, offer in enumerate(self.offers):
            short = situation.refused.get((offer.market, True), 0)
            if offer not in open_now or (asks_less and short > 0):
                refused.add(zone)

        spot_usd = spot * slower * per_hour
        on_demand_usd = facts.on_demand * slower * per_hour
        moving = self.usd_per_gb * gigabytes
        rate = gang.nodes * nu * gang.speed
        work = situation.work_left / rate / HOUR
        time_left = gang.deadline - now
        left = time_left / HOUR
        return RegionsSituation(
            now=now / HOUR,
            regions=facts.regions,
            spot=spot_usd,
            on_demand=on_demand_usd,
            moving=moving,
            known=known,
            work=work,
            left=left,
            delay=gang.delay / HOUR,
            step=gang.look / HOUR,
            running=running,
            home=home,
            refused=frozenset(refused),
            share=share,
            only_spot=only_spot,
            names=facts.names,
        )

    def _running(
        self, holdings: Sequence[Holding], gang: GangNow, now: int
    ) -> tuple[Running | None, float]:
        """The first market in which enough of the gang is to work, and the part of its machines
        that it has there.
        """
        there: dict[tuple[Market, bool], list[Holding]] = {}
        # Machines that are about to leave come last: the gang moves to the others.
        for holding in sorted(holdings, key=lambda holding: holding.leaves_at is not None):
            there.setdefault(_kind(holding), []).append(holding)

        for (market, spot), held in there.items():
            zone = self._facts.zones.get(market)
            count = sum(holding.rent.machines for holding in held)
            if zone is None or count < gang.least:
                continue

            in_order = sorted(held, key=lambda holding: holding.ready)
            ready = [holding.ready for holding in in_order for _ in range(holding.rent.machines)]
            # Machines that come later join while the gang works.
            until_ready = ready[gang.least - 1] - now
            place = Running(zone, spot, max(until_ready, 0) / HOUR)
            share = min(count / gang.nodes, 1.0)
            return place, share

        return None, 1.0

    def _zones(self, markets: frozenset[Market]) -> frozenset[int]:
        return frozenset(zone for zone, offer in enumerate(self.offers) if offer.market in markets)

    def _known(self, looks: tuple[Look, ...], now: int, up: int | None) -> Known:
        """The earlier knowledge with the job's own looks; those before its last decision are not
        read again. The zone `up` is up, because the gang runs there: its market may have no further
        machines."""
        folded = iter(self._folded.items())
        before, known = next(folded, ((), self.known))
        if looks[: len(before)] != before:
            before = ()
            known = self.known

        latest = next((place for place, look in enumerate(looks) if look.at >= now), len(looks))
        newer = looks[len(before) : latest]
        known = observed(known, self._facts.zones, newer)
        self._folded.clear()
        self._folded[looks[:latest]] = known
        zones = self._facts.zones
        still = looks[latest:]

        if up is not None:
            market = self.offers[up].market
            look_up = Look(now, market, up=True)
            still = (*(look for look in still if zones.get(look.market) != up), look_up)

        return observed(known, zones, still)


def _kind(holding: Holding) -> tuple[Market, bool]:
    """Where machines are, and whether they are spot machines: a gang's are all alike."""
    return holding.rent.offer.market, holding.rent.spot


def regions_of(offers: Iterable[Offer]) -> tuple[str, ...]:
    """The region of each market, by a name that no other cloud has."""
    return tuple(f"{offer.market.cloud}/{offer.market.region}" for offer in offers)


def known_before(
    offers: Sequence[Offer],
    histories: Mapping[Market, PriceSeries],
    hazards: Mapping[Market, Hazard | None],
) -> Known:
    """The knowledge of its markets with which a job begins: where only the price evicts, its past
    shows when spot could be had."""
    zones = {offer.market: zone for zone, offer in enumerate(offers)}
    looks = list[Look]()
    for offer in offers:
        if hazards[offer.market] is not None:
            continue

        market = offer.market
        history = histories[offer.market]
        up = history.prices <= offer.on_demand
        is_up = bool(up[0])
        first_look = Look(int(history.times[0]), market, is_up)
        looks.append(first_look)

        differs = up[1:] != up[:-1]
        for change in (np.flatnonzero(differs) + 1).tolist():
            at = int(history.times[change])
            # A change that is seen when it happens has its own time, not that of the middle between
            # two looks.
            before = Look(at, market, not up[change])
            after = Look(at, market, bool(up[change]))
            looks += [before, after]

        last_look = Look(int(history.times[-1]), market, bool(up[-1]))
        looks.append(last_look)

    return observed(Known.nothing(regions_of(offers)), zones, looks)


def observed(known: Known, zones: Mapping[Market, int], looks: Iterable[Look]) -> Known:
    """Knowledge with some more looks; those of a moment count together, unless a zone occurs
    again."""
    at = 0
    ups = dict[int, bool]()
    for look in looks:
        zone = zones.get(look.market)
        if zone is None:
            continue
        if ups and (look.at != at or zone in ups):
            known = known.observed([*ups], at / HOUR, [*ups.values()])
            ups = {}
        at, ups[zone] = look.at, look.up

    if ups:
        return known.observed([*ups], at / HOUR, [*ups.values()])
    return known
