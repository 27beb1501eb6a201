"""`Constraints`: a job's strategy, held to what the job allows; asked at the start and throughout a run.

The limits are machines in all and of each kind, a budget, a gang in
one market, and a deadline, before which on-demand machines take over. A gang is on spot or on demand as a whole: it
takes refuge where spot keeps failing (`refuge`), comes back, and is completed when it has lost a part of its machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, floor, inf

from bidbrain.billing import BillingRule, End, Life, usd
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation, Strategy
from bidbrain.values import Overheads
from pricing_data.units import MINUTE
from spotctl.planning.on_demand_fallback import Record, until, why_leave

LOOK_AGAIN = 2 * MINUTE
LEASE = 16 * MINUTE
"""What is bought is paid for so long at least: until a lease ends that nobody renews, and the machine is gone."""


UNTRIED = Record()
"""Of a job that has not run yet."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Machines at least and at most, at most of each type, and whether all have to be of one market."""

    least: int
    most: int
    by_type: Mapping[str, int]
    together: bool = False


@dataclass(frozen=True, slots=True)
class Constraints:
    """A strategy within a job's limits; itself a strategy.

    `deadline` is None where there is none, or where nobody knows how much work is left.
    """

    offers: tuple[Offer, ...]
    baseline: Rent
    reliable: Rent | None
    most_nu: float
    limits: Limits
    overheads: Overheads
    deadline: int | None
    strategy: Strategy
    billing: BillingRule
    lease: int = LEASE

    @property
    def name(self) -> str:
        """That of the strategy."""
        return self.strategy.name

    def decide(self, situation: Situation, usd_left: float = inf, record: Record = UNTRIED) -> Decision:
        """What to rent and to return now; nothing is bought of which a lease costs more than is left."""
        if self.limits.together:
            # A gang does not work half here and half there: what leaves soon is as good as gone.
            soon = situation.now + 2 * self.overheads.startup
            staying = tuple(one for one in situation.holdings if one.leaves_at is None or one.leaves_at > soon)
            situation = replace(situation, holdings=staying)
        return self._within(self._wanted(situation, record), situation, usd_left)

    def _wanted(self, situation: Situation, record: Record) -> Decision:
        if self._is_pressed(situation):
            return self._on_demand(situation, "close to the deadline: on-demand machines, which are never evicted")
        if self.limits.together and (decided := self._sheltered(situation, record)) is not None:
            return decided
        wanted = self.strategy.decide(situation)
        if not situation.offers and not situation.holdings and not wanted.actions:
            return self._on_demand(situation, "no spot market is available: on demand until one is")
        if self.limits.together and not wanted.actions and (short := self._completing(situation)) is not None:
            return short
        return wanted

    def committed_usd(self, rent: Rent) -> float:
        """The most that one machine of a purchase can cost to the end of its first lease."""
        ceiling = rent.offer.on_demand if rent.bid is None else rent.bid
        return usd(self.billing.bill(Life(0, self.lease, End.LEFT), ceiling).amount)

    def _is_pressed(self, situation: Situation) -> bool:
        """The safety net of the deadline strategies: what is left is the work on demand and two changes of machines.

        Machines that run lose no slack by running on, so that the net waits for their loss.
        """
        on_spot = any(holding.rent.bid is not None for holding in situation.holdings)
        if self.deadline is None or (on_spot and sum(holding.nu for holding in situation.holdings) >= self.most_nu / 2):
            return False
        rate = self.baseline.machines * self.baseline.offer.nu
        change = self.overheads.startup + self.overheads.eviction
        return self.deadline - situation.now <= situation.work_left / rate + 2 * change

    def _sheltered(self, situation: Situation, record: Record) -> Decision | None:
        """Refuge from spot, or the way back; None where the strategy is to decide."""
        refuges = [holding for holding in situation.holdings if holding.rent.bid is None]
        kept = until(record)
        if not refuges:
            why = why_leave(record, self._price_share(situation), situation.now)
            return self._on_demand(situation, f"{why}: on demand") if why and not situation.holdings else None
        if kept is not None and not record.resumes:
            return self._on_demand(situation, "stays on demand: without a checkpoint, moving would lose all work")
        if kept is not None and situation.now < kept:
            return self._on_demand(situation, "stays on demand until spot markets are calmer")
        wanted = self.strategy.decide(replace(situation, holdings=()))
        back = [action for action in wanted.actions if isinstance(action, Rent) and action.bid is not None]
        if not back:
            return self._completing(situation) or Decision((), wanted.wake_at, f"stays on demand: {wanted.reason}")
        # What runs goes on until the others are up.
        at = situation.now + self.overheads.startup
        returns = (Return(holding.allocation, at) for holding in refuges)
        return Decision((*returns, back[0]), wanted.wake_at, f"back to spot: {wanted.reason}")

    def _price_share(self, situation: Situation) -> float:
        """The cheapest spot price of work as a share of that on demand."""
        listed = self.baseline.offer.on_demand / self.baseline.offer.nu
        return min((situation.price(offer) / offer.nu for offer in situation.offers), default=inf) / listed

    def _completing(self, situation: Situation) -> Decision | None:
        """What a gang lacks that has lost machines: of the same market, if that still sells under the bid."""
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
        """As many of the baseline's machines as there is room for."""
        offer = self.baseline.offer
        room = self.most_nu - sum(holding.nu for holding in situation.holdings)
        machines = min(floor(room / offer.nu + 1e-9), self.baseline.machines)
        rents = (Rent(offer, machines, None),) if machines > 0 else ()
        return Decision(rents, situation.now + LOOK_AGAIN, why)

    def _within(self, wanted: Decision, situation: Situation, usd_left: float) -> Decision:
        others = tuple(action for action in wanted.actions if isinstance(action, Return))
        asked = rents = [action for action in wanted.actions if isinstance(action, Rent)]
        if not asked:
            return wanted
        together = self.limits.together
        leaving = {one.allocation for one in others if together or one.at is None or one.at <= situation.now}
        staying = [holding for holding in situation.holdings if holding.allocation not in leaving]
        if together:
            rents = [replace(asked[0], machines=self.limits.most)]
        room = _Room(self, Counter(), usd_left).without(staying)
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
    """What may still be bought while it is being filled."""

    constraints: Constraints
    held: Counter[str]
    usd_left: float

    def without(self, holdings: list[Holding]) -> _Room:
        """Less what is held."""
        for holding in holdings:
            self.held[holding.rent.offer.market.instance_type] += holding.rent.machines
        return self

    def fill(self, rents: list[Rent]) -> list[Rent]:
        """The purchases as far as there is room; raised to the least that the job takes, where there is."""
        bought = [self._buy(rent, rent.machines) for rent in rents]
        for i, rent in enumerate(rents):
            short = self.constraints.limits.least - sum(self.held.values())
            if short > 0:
                bought[i] = replace(rent, machines=bought[i].machines + self._buy(rent, short).machines)
        return [rent for rent in bought if rent.machines]

    def _buy(self, rent: Rent, wanted: int) -> Rent:
        kind, limits = rent.offer.market.instance_type, self.constraints.limits
        each = self.constraints.committed_usd(rent)
        free = min(
            limits.most - sum(self.held.values()),
            limits.by_type.get(kind, limits.most) - self.held[kind],
            wanted if self.usd_left == inf else floor(self.usd_left / each),
        )
        machines = max(min(wanted, free), 0)
        self.held[kind] += machines
        self.usd_left -= machines * each
        return replace(rent, machines=machines)


def baseline_machines(most_nu: float, nu: float, limits: Limits) -> int:
    """How many machines of a type do as much an hour, within a job's limits."""
    return min(max(ceil(most_nu / nu - 1e-9), limits.least), limits.most)
