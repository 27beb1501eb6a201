"""`Decider`: the one decision object of a job, for its plan, its run, a resumed run, and replays of the past.

It keeps a strategy within the job's limits. The limits are the number of machines in total and per type, a budget, and
a deadline, before which on-demand machines take over. A gang (a command's nodes) is in one market, on spot or on demand
as a whole: it falls back to on-demand machines while spot keeps failing (`on_demand_fallback`), returns to spot, and
replaces machines that it lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf

from bidbrain.billing import BillingRule, End, Life, usd
from bidbrain.decision.on_demand_fallback import fallback_end, reason_to_leave_spot
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation, Strategy
from bidbrain.values import Overheads
from pricing_data.units import MINUTE

LOOK_AGAIN = 2 * MINUTE
LEASE = 16 * MINUTE
"""Shortest time that a purchase is paid for: until its lease runs out and the machine is gone."""


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Fewest and most machines, the most of each type, and whether all must be in one market."""

    least: int
    most: int
    by_type: Mapping[str, int]
    together: bool = False


@dataclass(frozen=True, slots=True)
class Decider:
    """A strategy within a job's limits; itself a strategy: all that a decision depends on is in the situation.

    `deadline` is None if the job has none, or if its length is unknown.
    """

    offers: tuple[Offer, ...]
    baseline: Rent
    reliable: Rent | None
    most_nu: float
    limits: MachineLimits
    overheads: Overheads
    deadline: int | None
    strategy: Strategy
    billing: BillingRule
    lease: int = LEASE

    @property
    def name(self) -> str:
        """The strategy's name."""
        return self.strategy.name

    def decide(self, situation: Situation) -> Decision:
        """What to rent and return now. Buys nothing whose first lease costs more than what is left of the budget."""
        if self.limits.together:
            # A gang cannot span two markets: machines that leave soon count as gone.
            soon = situation.now + 2 * self.overheads.startup
            staying = tuple(one for one in situation.holdings if one.leaves_at is None or one.leaves_at > soon)
            situation = replace(situation, holdings=staying)
        return self._within(self._wanted(situation), situation)

    def _wanted(self, situation: Situation) -> Decision:
        if self._is_pressed(situation):
            return self._on_demand(situation, "close to the deadline: on-demand machines, which are never evicted")
        if self.limits.together and (decided := self._gang_fallback(situation)) is not None:
            return decided
        wanted = self.strategy.decide(situation)
        if not situation.offers and not situation.holdings and not wanted.actions:
            return self._on_demand(situation, "no spot market is available: on demand until one is")
        if self.limits.together and not wanted.actions and (short := self._completing(situation)) is not None:
            return short
        return wanted

    def committed_usd(self, rent: Rent) -> float:
        """The most that one machine of a purchase can cost until the end of its first lease."""
        ceiling = rent.offer.on_demand if rent.bid is None else rent.bid
        return usd(self.billing.bill(Life(0, self.lease, End.LEFT), ceiling).amount)

    def _is_pressed(self, situation: Situation) -> bool:
        """Whether the time left is just enough for the work on demand and two changes of machines.

        This is the safety net of the deadline strategies. While most spot machines run, slack does not shrink, so it
        waits until they are lost.
        """
        on_spot = any(holding.rent.bid is not None for holding in situation.holdings)
        if self.deadline is None or (on_spot and sum(holding.nu for holding in situation.holdings) >= self.most_nu / 2):
            return False
        rate = self.baseline.machines * self.baseline.offer.nu
        change = self.overheads.startup + self.overheads.eviction
        return self.deadline - situation.now <= situation.work_left / rate + 2 * change

    def _gang_fallback(self, situation: Situation) -> Decision | None:
        """The move to on-demand machines, or back; None if the strategy decides."""
        record = situation.record
        fallback = [holding for holding in situation.holdings if holding.rent.bid is None]
        stay_until = fallback_end(record)
        if not fallback:
            why = reason_to_leave_spot(record, self._price_share(situation), situation.now)
            return self._on_demand(situation, f"{why}: on demand") if why and not situation.holdings else None
        if stay_until is not None and not record.resumes:
            return self._on_demand(situation, "stays on demand: without a checkpoint, moving would lose all work")
        if stay_until is not None and situation.now < stay_until:
            return self._on_demand(situation, "stays on demand until spot markets are calmer")
        wanted = self.strategy.decide(replace(situation, holdings=()))
        back = [action for action in wanted.actions if isinstance(action, Rent) and action.bid is not None]
        if not back:
            return self._completing(situation) or Decision((), wanted.wake_at, f"stays on demand: {wanted.reason}")
        # The current machines run until the new ones have started.
        at = situation.now + self.overheads.startup
        returns = (Return(holding.allocation, at) for holding in fallback)
        return Decision((*returns, back[0]), wanted.wake_at, f"back to spot: {wanted.reason}")

    def _price_share(self, situation: Situation) -> float:
        """The cheapest spot price per unit of work as a share of the on-demand one."""
        listed = self.baseline.offer.on_demand / self.baseline.offer.nu
        return min((situation.price(offer) / offer.nu for offer in situation.offers), default=inf) / listed

    def _completing(self, situation: Situation) -> Decision | None:
        """Replacements for the lost machines of a gang, from the same market while its price is at most the bid."""
        held = sum(holding.rent.machines for holding in situation.holdings)
        if not 0 < held < self.limits.least:
            return None
        short, like = self.limits.least - held, situation.holdings[0].rent
        sells = like.bid is None or (like.offer in situation.offers and situation.price(like.offer) <= like.bid)
        if not sells:
            fair = [one for one in situation.offers if situation.price(one) <= one.on_demand]
            cheapest = min(fair, key=lambda one: situation.price(one) / one.nu, default=None)
            offer = self.baseline.offer if cheapest is None else cheapest
            like = Rent(offer, short, None if cheapest is None else offer.on_demand)
        why = f"{held} of {self.limits.least} nodes are running"
        return Decision((replace(like, machines=short),), situation.now + LOOK_AGAIN, why)

    def _on_demand(self, situation: Situation, why: str) -> Decision:
        """As many of the baseline's machines as still fit."""
        offer = self.baseline.offer
        room = self.most_nu - sum(holding.nu for holding in situation.holdings)
        machines = min(floor(room / offer.nu + 1e-9), self.baseline.machines)
        rents = (Rent(offer, machines, None),) if machines > 0 else ()
        return Decision(rents, situation.now + LOOK_AGAIN, why)

    def _within(self, wanted: Decision, situation: Situation) -> Decision:
        others = tuple(action for action in wanted.actions if isinstance(action, Return))
        asked = rents = [action for action in wanted.actions if isinstance(action, Rent)]
        if not asked:
            return wanted
        together = self.limits.together
        leaving = {one.allocation for one in others if together or one.at is None or one.at <= situation.now}
        staying = [holding for holding in situation.holdings if holding.allocation not in leaving]
        if together:
            rents = [replace(asked[0], machines=self.limits.most)]
        room = _Room(self, Counter(), situation.usd_left).without(staying)
        bought = room.fill(rents)
        held = sum(room.held.values())
        soon = min(situation.now + LOOK_AGAIN, wanted.wake_at or situation.now + LOOK_AGAIN)
        if held < self.limits.least:
            why = f"limits and budget allow {held} machines, and the job needs at least {self.limits.least}"
            return Decision(others, soon, f"{wanted.reason}; {why}")
        if bought == asked:
            return wanted
        cut = f"capped at {held} machines by the job's limits" if bought else "the job's limits allow no more machines"
        return Decision((*others, *bought), wanted.wake_at, f"{wanted.reason}; {cut}")


@dataclass(slots=True)
class _Room:
    """How many machines and dollars are still free while purchases are cut to fit."""

    decider: Decider
    held: Counter[str]
    usd_left: float

    def without(self, holdings: list[Holding]) -> _Room:
        """The room that is left next to holdings."""
        for holding in holdings:
            self.held[holding.rent.offer.market.instance_type] += holding.rent.machines
        return self

    def fill(self, rents: list[Rent]) -> list[Rent]:
        """The purchases, cut to the room there is, or raised to the job's minimum."""
        bought = [self._buy(rent, rent.machines) for rent in rents]
        for i, rent in enumerate(rents):
            short = self.decider.limits.least - sum(self.held.values())
            if short > 0:
                bought[i] = replace(rent, machines=bought[i].machines + self._buy(rent, short).machines)
        return [rent for rent in bought if rent.machines]

    def _buy(self, rent: Rent, wanted: int) -> Rent:
        kind, limits = rent.offer.market.instance_type, self.decider.limits
        each = self.decider.committed_usd(rent)
        free = min(
            limits.most - sum(self.held.values()),
            limits.by_type.get(kind, limits.most) - self.held[kind],
            wanted if self.usd_left == inf else floor(self.usd_left / each),
        )
        machines = max(min(wanted, free), 0)
        self.held[kind] += machines
        self.usd_left -= machines * each
        return replace(rent, machines=machines)


def baseline_machines(most_nu: float, nu: float, limits: MachineLimits) -> int:
    """How many machines of a type do `most_nu` work per hour, within a job's limits."""
    return min(max(ceil(most_nu / nu - 1e-9), limits.least), limits.most)
