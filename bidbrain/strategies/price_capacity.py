"""`price-capacity`: cheap machines that are rarely evicted, spread over pools; for markets where
bids decide little.

A pool is a market with room for more of the job's machines. A pool's price of work is a machine's
expected cost over its expected work, until an eviction or the job's end: Eq. 4.4 for one
allocation, with the provider's billing rule in place of the hourly refund of Eq. 4.1, and a
survival curve in place of beta:

    price x (E[billed hours] + time value x E[hours alive])
      / (nu x (E[hours alive] - start-up - P[evicted] x lambda x pools))

Where an early eviction is refunded, machines that never last give the lowest bill; hence time has a
price as well. With more pools the whole job pauses more often for an eviction in one of them, hence
the factor on lambda.
"""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor, inf

import numpy as np

from bidbrain.billing import BillingRule, SampledSurvival, expected_seconds
from bidbrain.eviction.hazard import Hazard
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation, described
from bidbrain.strategies.proteus import JobCosts
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR

POOLS = 2
MARGIN = 0.02
"""Pools share the room, and are kept, while their price of work is at most this fraction above the
lowest."""
MAX_UNEQUAL = 2.0
"""Machines of the pools that share the room are at most this much faster or slower than those of
the cheapest one."""
TIME_VALUE = 1.0
"""Value of an hour of a machine's time, as a multiple of its price."""

LOOK_WITH_ROOM = 2 * MINUTE
LOOK_WHEN_FULL = 10 * MINUTE
_HORIZONS = (0.25, 0.5, 1, 2, 4, 8, 16, 24)
_STEPS_PER_HOUR = 4


@dataclass(frozen=True, slots=True)
class Prospects:
    """The expected hours billed, the expected hours alive, and the eviction probability of a
    machine, by horizon.
    """

    billed: tuple[float, ...]
    alive: tuple[float, ...]
    taken: tuple[float, ...]

    @classmethod
    def of(cls, hazard: Hazard | None, billing: BillingRule, age: int = 0) -> "Prospects":
        """The prospects under a billing rule, from an age in hours on. No hazard means no
        evictions.
        """
        longest = age + round(_HORIZONS[-1])
        hours = np.linspace(0, longest, longest * _STEPS_PER_HOUR + 1)
        risks = [
            0.0 if hazard is None else hazard.cumulative(0, hour)[0] for hour in hours.tolist()
        ]
        risk = np.array(risks)
        now = age * _STEPS_PER_HOUR
        since_now = risk - risk[now]
        above_now = np.maximum(since_now, 0.0)
        curve = np.exp(-above_now)
        survival = SampledSurvival(hours * HOUR, curve)
        alive = curve[now:]
        both = alive[1:] + alive[:-1]
        summed = np.cumsum(both / 2)
        areas = np.concatenate(([0.0], summed))
        grown = areas / _STEPS_PER_HOUR
        at = [round(horizon * _STEPS_PER_HOUR) for horizon in _HORIZONS]
        billed = (
            expected_seconds(billing, age * HOUR, round(horizon * HOUR), survival)
            for horizon in _HORIZONS
        )

        hours_billed = tuple(float(seconds) / 3600 for seconds in billed)
        lived = tuple(grown[at].tolist())
        gone = (1 - alive[at]).tolist()
        return cls(hours_billed, lived, tuple(gone))


@dataclass(frozen=True, slots=True)
class PriceCapacity:
    """Fills the room from the pools with the lowest prices of work, in equal shares, with bids at
    the on-demand price, or where the highest bid runs and is paid, at a margin above the market's
    price (`margins`).

    An allocation is returned when a new one elsewhere, start-up included, would do the rest of the
    work for less. While no pool is open, or none beats on-demand, the baseline is rented on demand.
    `fresh` and `old` are the expectations for new machines and for those that have run for an hour,
    after which no billing rule refunds anything. `usd_per_hour` is what an hour of the job is
    worth, shared by its machines by their work; without it, an hour of a machine counts as
    `time_value` times its price.
    """

    offers: tuple[Offer, ...]
    fresh: Mapping[Market, Prospects]
    old: Mapping[Market, Prospects]
    application: JobCosts
    pools: int = POOLS
    margin: float = MARGIN
    time_value: float = TIME_VALUE
    usd_per_hour: float | None = None
    name: str = "price-capacity"
    margins: Mapping[Market, float] = field(default_factory=dict)

    def decide(self, situation: Situation) -> Decision:
        """Moves machines that are too expensive, then fills the room; on-demand machines leave once
        a pool is open.
        """
        ranked = self._ranked(situation)
        if not ranked:
            look = situation.now + LOOK_WITH_ROOM
            if situation.holdings:
                return Decision(
                    wake_at=look, reason="no open pool beats on-demand; keep the current machines"
                )
            return Decision(
                (situation.baseline,),
                look,
                "no open pool beats on-demand; rent the baseline on demand",
            )

        # On-demand machines give way to any pool; spot machines to one that is cheaper even with
        # its start-up.
        bearable = ranked[0][0] * (1 + self.margin)
        leaving = []
        for holding in situation.holdings:
            age = situation.now - holding.start
            if (
                not holding.rent.spot
                or self.price_of_work(holding.rent.offer, situation, age) > bearable
            ):
                leaving.append(holding)

        returns = tuple(Return(holding.allocation) for holding in leaving)
        kept = [holding for holding in situation.holdings if holding not in leaving]
        room = situation.most_nu - sum(holding.nu for holding in kept)
        rents = self._fill(ranked, kept, room, situation)
        room -= sum(rent.machines * rent.offer.nu for rent in rents)
        smallest = min(offer.nu for offer in self.offers)
        look = LOOK_WITH_ROOM if room >= smallest else LOOK_WHEN_FULL

        first = ranked[: self.pools]
        cheapest = ", ".join(
            f"{offer.market} at ${cost / NANOS_PER_DOLLAR:.4g} per unit of work"
            for cost, offer in first
        )
        bought = "rent nothing more"
        if rents:
            bought = f"rent {' and '.join(map(described, rents))}"
        returned = ""
        if leaving:
            returned = f"return {len(leaving)} allocations; "
        reason = f"{returned}{bought}; cheapest of {len(ranked)} open pools: {cheapest}"

        return Decision((*returns, *rents), situation.now + look, reason)

    def _ranked(self, situation: Situation) -> list[tuple[float, Offer]]:
        """The open pools that beat on-demand, the lowest price of work first."""
        baseline = situation.baseline.offer
        time_usd = self._time_of(baseline, baseline.on_demand, situation)
        limit = (baseline.on_demand + time_usd) / baseline.nu
        priced = []
        for offer in situation.offers:
            if offer.market in self.fresh and situation.price(offer) <= offer.on_demand:
                cost = self.price_of_work(offer, situation)
                priced.append((cost, offer))

        below = (pool for pool in priced if pool[0] < limit)
        return sorted(below, key=lambda pool: (pool[0], pool[1].market))

    def price_of_work(self, offer: Offer, situation: Situation, age: int | None = None) -> float:
        """Expected nano-dollars per unit of work, for a machine of some age, or for a new one that
        has to start up.
        """
        hours_left = situation.work_left / HOUR / situation.most_nu
        i = max(bisect_right(_HORIZONS, hours_left) - 1, 0)
        terms = self.old if age is not None and age >= HOUR else self.fresh
        known = terms[offer.market]
        lost = known.taken[i] * self.application.eviction_hours * self.pools
        alive = known.alive[i] - lost
        starting = self.application.startup_hours if age is None else 0.0
        useful = alive - starting
        price = (
            self._bid(offer, situation) if offer.market in self.margins else situation.price(offer)
        )
        paid = price * known.billed[i]
        time_usd = self._time_of(offer, price, situation)
        lasting = time_usd * known.alive[i]
        cost = paid + lasting

        if useful > 0:
            return cost / (offer.nu * useful)
        return inf

    def _time_of(self, offer: Offer, price: int, situation: Situation) -> float:
        """The value of an hour of a machine's time, in nano-dollars."""
        if self.usd_per_hour is None:
            return self.time_value * price
        return self.usd_per_hour * NANOS_PER_DOLLAR * offer.nu / situation.most_nu

    def _fill(
        self,
        ranked: list[tuple[float, Offer]],
        kept: list[Holding],
        room: float,
        situation: Situation,
    ) -> list[Rent]:
        """Brings each chosen pool to its share of the room; the cheapest take the rest."""
        # Their machines fit into a share of the room, and are about as fast as the cheapest one's.
        # Where a job limits the number of its machines, much slower ones could not do their share.
        bearable = ranked[0][0] * (1 + self.margin)
        cheap = [offer for cost, offer in ranked if cost <= bearable]
        small = [offer for offer in cheap if offer.nu * self.pools <= situation.most_nu]
        fitting = small or cheap
        slowest = fitting[0].nu / MAX_UNEQUAL
        fastest = fitting[0].nu * MAX_UNEQUAL
        alike = [offer for offer in fitting if slowest <= offer.nu <= fastest]
        near = alike[: self.pools]

        share = situation.most_nu / len(near)
        machines = dict.fromkeys(near, 0)

        for offer in near:
            speeds = (holding.nu for holding in kept if holding.rent.offer.market == offer.market)
            held = sum(speeds)
            fitting_machines = min(share - held, room) / offer.nu
            whole = floor(fitting_machines)
            machines[offer] = max(whole, 0)
            room -= machines[offer] * offer.nu

        for offer in near:
            more = max(floor(room / offer.nu), 0)
            machines[offer] += more
            room -= more * offer.nu

        return [
            Rent(offer, count, self._bid(offer, situation))
            for offer, count in machines.items()
            if count
        ]

    def _bid(self, offer: Offer, situation: Situation) -> int:
        if offer.market not in self.margins:
            return offer.on_demand
        raised = situation.price(offer) * (1 + self.margins[offer.market])
        return min(round(raised), offer.on_demand)
