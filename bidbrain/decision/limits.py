"""How many machines and dollars a job may use: purchases cut to fit, and decisions cut to a job's
limits and budget, or replaced with what they allow. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, floor, inf
from typing import Generic, TypeVar

from bidbrain.strategies.base import (
    LOOK_AGAIN,
    Decision,
    Holding,
    Offer,
    Rent,
    Situation,
    described,
)
from pricing_data.market import Market
from pricing_data.units import bid_usd, counted, usd_text

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class CommonQuota(Generic[K]):
    """An amount that machines of some markets, or of some types, share: `uses` is what one machine
    of each takes of it.
    """

    amount: float
    uses: Mapping[K, float]

    def free(self, market: K, held: Mapping[K, int], unlimited: int) -> int:
        """How many more machines of a market fit into the quota; `unlimited` if they do not count
        against the quota.
        """
        if not (each := self.uses.get(market, 0)):
            return unlimited
        used = sum(self.uses.get(other, 0) * count for other, count in held.items())
        return int((self.amount - used) // each)


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Fewest and most machines, the most spot machines of each type, and whether all must be in one
    market.

    A gang's machines are together: the gang is rented as a whole, with `most` machines, and goes on
    with `least`. `on_demand` are the most on-demand machines in markets where quotas do not hold as
    many as the job may have, and `shared` the quotas that several of these markets share. `spot`
    are the job's parts of the quotas of spot machines.
    """

    least: int
    most: int
    by_type: Mapping[str, int]
    together: bool = False
    on_demand: Mapping[Market, int] = field(default_factory=dict)
    shared: tuple[CommonQuota[Market], ...] = ()
    spot: tuple[CommonQuota[Market], ...] = ()

    @property
    def nodes(self) -> int:
        """The machines without which a gang does nothing; 0 for a job that works with any
        number."""
        return self.least if self.together else 0

    @property
    def shrinks(self) -> bool:
        """Whether a gang continues without some of its machines."""
        return self.together and self.least < self.most

    def rentable(self, on_demand: Rent) -> Rent:
        """The part of on-demand machines that quotas hold; none if the job cannot work with so
        few."""
        if not self.on_demand and on_demand.machines >= self.least:
            return on_demand
        machines = self.on_demand.get(on_demand.offer.market, on_demand.machines)
        if machines >= on_demand.machines >= self.least:
            return on_demand
        machines = min(machines, on_demand.machines)
        return replace(on_demand, machines=machines if machines >= self.least else 0)


def baseline_machines(most_nu: float, nu: float, limits: MachineLimits) -> int:
    """How many machines of a type do `most_nu` work per hour, within a job's limits; a gang has all
    it may have.
    """
    if limits.together:
        return limits.most
    needed = ceil(most_nu / nu - 1e-9)
    return min(max(needed, limits.least), limits.most)


@dataclass(slots=True)
class PurchaseRoom:
    """How many machines and dollars are still free while purchases are cut to fit.

    `committed_usd` is what one machine of a purchase can cost until it may be returned; `held`
    counts machines by market and whether they are spot machines, and `leaving` those that only
    quotas still count.
    """

    limits: MachineLimits
    usd_left: float
    committed_usd: Callable[[Rent], float]
    machines: int = 0
    held: Counter[tuple[Market, bool]] = field(default_factory=Counter)
    leaving: Mapping[tuple[Market, bool], int] = field(default_factory=dict)

    def take(self, rent: Rent, machines: int) -> None:
        """Counts machines that are held, or bought."""
        self.machines += machines
        self.held[rent.offer.market, rent.spot] += machines

    def free(self, rent: Rent) -> int:
        """How many machines of a purchase fit."""
        market = rent.offer.market
        limits = self.limits
        # The machines that count against the same quotas.
        counted: Counter[Market] = Counter()
        for (place, is_spot), count in (*self.held.items(), *self.leaving.items()):
            counted[place] += count if is_spot is rent.spot else 0
        free = [limits.most - self.machines]

        if rent.spot:
            held_of_type = (
                self.held[place, True]
                for place in counted
                if place.instance_type == market.instance_type
            )
            of_type = sum(held_of_type)
            left_of_type = limits.by_type.get(market.instance_type, limits.most) - of_type
            free.append(left_of_type)
        elif market in limits.on_demand:
            free.append(limits.on_demand[market] - counted[market])

        quotas = limits.spot if rent.spot else limits.shared
        free += [quota.free(market, counted, free[0]) for quota in quotas]
        if self.usd_left < inf:
            free.append(floor(self.usd_left / self.committed_usd(rent)))

        return max(min(free), 0)

    def order(self, rent: Rent, refused: int) -> Rent:
        """A gang's next order in a market that refused its last order, of `refused` machines; 0:
        none was refused.

        The gang asks for as many machines as it may have. A gang that also works with fewer halves,
        at each refusal, the machines that it could do without; after the smallest order it starts
        again with the largest.
        """
        fewest = max(self.limits.least - self.machines, 1)
        smaller = self.limits.shrinks and fewest < refused <= self.free(rent)
        half = (refused + fewest) // 2 if smaller else self.limits.most
        return replace(rent, machines=half)

    def fill(self, rents: list[Rent]) -> list[Rent]:
        """Cuts the purchases to the room there is, or raises them to the job's minimum."""
        bought = [self._buy(rent, rent.machines) for rent in rents]
        for i, rent in enumerate(rents):
            short = self.limits.least - self.machines
            if short > 0:
                bought_more = self._buy(rent, short)
                bought[i] = replace(rent, machines=bought[i].machines + bought_more.machines)
        return [rent for rent in bought if rent.machines]

    def _buy(self, rent: Rent, wanted: int) -> Rent:
        machines = min(wanted, self.free(rent))
        self.take(rent, machines)
        self.usd_left -= machines * self.committed_usd(rent) if machines else 0.0
        return replace(rent, machines=machines)


_LOW_BID = 1.2
"""A bid of this multiple of the price is tried where a budget does not cover a higher one."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of a job; `committed_usd` is the most that a machine can cost until the end of its
    first lease.
    """

    limits: MachineLimits
    most_nu: float
    committed_usd: Callable[[Rent], float]

    def room(self, situation: Situation, holdings: Sequence[Holding]) -> PurchaseRoom:
        """The machines and dollars that are free next to these holdings; the others count against
        quotas until they are gone."""
        leaving = machines_leaving(situation, holdings)
        room = PurchaseRoom(self.limits, situation.usd_left, self.committed_usd, leaving=leaving)
        for holding in holdings:
            room.take(holding.rent, holding.rent.machines)
        return room

    def allowed(self, wanted: Decision, situation: Situation) -> Decision:
        """The decision with all its returns, and its purchases cut to fit."""
        returns = wanted.returns
        asked = [*wanted.rents]
        rents = asked
        if not asked:
            return wanted

        together = self.limits.together
        at_once = [
            each for each in returns if together or each.at is None or each.at <= situation.now
        ]
        leaving = {each.allocation for each in at_once}
        staying = [holding for holding in situation.holdings if holding.allocation not in leaving]
        room = self.room(situation, staying)
        needed = self.limits.least
        refused = situation.refused.get((asked[0].offer.market, asked[0].spot), 0)
        if together:
            rents = [room.order(asked[0], refused)]
            most = room.machines + rents[0].machines
            needed = min(most, self.limits.most)

        bought = room.fill(rents)
        held = room.machines
        next_look = situation.now + LOOK_AGAIN
        wake_at = wanted.wake_at or situation.now + LOOK_AGAIN
        soon = min(next_look, wake_at)
        if situation.usd_left < inf and held < needed:
            cheaper = self._cheaper(situation, self.room(situation, staying), needed)
            if cheaper is not None:
                why = (
                    f"the budget of {usd_text(situation.usd_left)} does not cover that, but "
                    f"{described(cheaper)}"
                )
                return Decision((*returns, cheaper), wanted.wake_at, f"{wanted.reason}; {why}")

        if held < self.limits.least:
            why = (
                f"limits and budget allow {held} machines, and the job needs at least "
                f"{self.limits.least}"
            )
            why += _waiting_for(room, asked)
            # What was to be replaced stays until there is room for its replacement.
            returns = tuple(action for action in returns if not action.replaced)
            unlimited = replace(situation, usd_left=inf)
            roomy = self.room(unlimited, staying)
            short = roomy.fill(rents) != bought
            return Decision(returns, soon, f"{wanted.reason}; {why}", unaffordable=short)

        if bought == asked:
            return wanted

        if together and bought and bought[0].machines == rents[0].machines < refused:
            why = f"asks for {rents[0].machines}, since {refused} were refused"
            return Decision((*returns, *bought), wanted.wake_at, f"{wanted.reason}; {why}")

        cut = "the job's limits allow no more machines"
        if bought:
            cut = f"capped at {held} machines by the job's limits"

        waits = _waiting_for(room, asked)
        until = soon if waits else wanted.wake_at
        return Decision((*returns, *bought), until, f"{wanted.reason}; {cut}{waits}")

    def _cheaper(self, situation: Situation, room: PurchaseRoom, needed: int) -> Rent | None:
        """The purchase with the most work that the budget covers: fewer machines, another market, a
        lower bid.
        """
        best: tuple[float, int, Rent] | None = None
        for offer in situation.offers:
            price = situation.price(offer)
            low_bid = round(price * _LOW_BID)
            for bid in (offer.on_demand, min(low_bid, offer.on_demand), price):
                rent = Rent(offer, self.limits.most, bid)
                most_machines = ceil(self.most_nu / offer.nu)
                machines = min(room.free(rent), most_machines)
                counts = (count for (_, spot), count in room.held.items() if spot)
                held = sum(counts)
                enough = machines + held >= needed and price <= bid
                candidate = (machines * offer.nu, bid, replace(rent, machines=machines))
                if enough and machines and (best is None or candidate[:2] > best[:2]):
                    best = candidate

        if best is None:
            return None
        return best[2]


def _waiting_for(room: PurchaseRoom, asked: Sequence[Rent]) -> str:
    """The machines whose end a purchase waits for; empty if it waits for none."""
    roomy = replace(room, leaving={})

    def take_room(leaving: Mapping[tuple[Market, bool], int]) -> bool:
        tight = replace(room, leaving=leaving)
        return any(tight.free(rent) < roomy.free(rent) for rent in asked)

    if not take_room(room.leaving):
        return ""

    # Some may take room only together.
    alone = sum(count for kind, count in room.leaving.items() if take_room({kind: count}))
    awaited = counted(alone or sum(room.leaving.values()), "machine")
    return f"; its quota is in use by {awaited} on the way out"


def machines_leaving(
    situation: Situation, staying: Sequence[Holding]
) -> Counter[tuple[Market, bool]]:
    """The machines that count against quotas until they are gone, including those of holdings that
    do not stay.
    """
    leaving = Counter(situation.leaving)
    for holding in situation.holdings:
        if holding not in staying:
            leaving[holding.rent.offer.market, holding.rent.spot] += holding.rent.machines
    return leaving


def with_capped_bids(
    decision: Decision, highest: Callable[[Offer], int], most: int | None = None
) -> Decision:
    """The decision with no bid above the highest one for its offer; `most` is that of the job, if
    it names one.
    """
    capped = (
        replace(action, bid=min(action.bid, highest(action.offer)))
        if isinstance(action, Rent) and action.bid is not None
        else action
        for action in decision.actions
    )
    actions = tuple(capped)

    if actions == decision.actions:
        return decision

    cap = "the on-demand price"
    if most is not None:
        cap = f"{bid_usd(most)}/h, the job's `max_bid`"
    return replace(decision, actions=actions, reason=f"{decision.reason}; no bid above {cap}")
