"""Cuts a wanted decision to a job's limits and budget, or replaces it with one that they allow. Pure."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from bidbrain.decision.limits import MachineLimits, PurchaseRoom
from bidbrain.strategies.base import LOOK_AGAIN, Decision, Holding, Rent, Return, Situation, described
from pricing_data.market import Market
from pricing_data.units import bid_usd, counted, usd_text

_LOW_BID = 1.2
"""A bid of this multiple of the price is tried where a budget does not cover a higher one."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of a job; `committed_usd` is the most that a machine can cost until the end of its first lease."""

    limits: MachineLimits
    most_nu: float
    committed_usd: Callable[[Rent], float]

    def room(self, situation: Situation, holdings: Sequence[Holding]) -> PurchaseRoom:
        """The machines and dollars that are free next to these holdings; the others count against quotas until they are
        gone."""
        leaving = machines_leaving(situation, holdings)
        return PurchaseRoom(self.limits, situation.usd_left, self.committed_usd, leaving=leaving).without(holdings)

    def allowed(self, wanted: Decision, situation: Situation) -> Decision:
        """The decision with all its returns, and its purchases cut to fit."""
        returns = tuple(action for action in wanted.actions if isinstance(action, Return))
        asked = rents = [action for action in wanted.actions if isinstance(action, Rent)]
        if not asked:
            return wanted
        together = self.limits.together
        leaving = {
            action.allocation for action in returns if together or action.at is None or action.at <= situation.now
        }
        staying = [holding for holding in situation.holdings if holding.allocation not in leaving]
        room, needed = self.room(situation, staying), self.limits.least
        refused = situation.refused.get((asked[0].offer.market, asked[0].spot), 0)
        if together:
            rents = [room.order(asked[0], refused)]
            needed = min(room.machines + rents[0].machines, self.limits.most)
        bought = room.fill(rents)
        held = room.machines
        soon = min(situation.now + LOOK_AGAIN, wanted.wake_at or situation.now + LOOK_AGAIN)
        if situation.usd_left < inf and held < needed:
            cheaper = self._cheaper(situation, self.room(situation, staying), needed)
            if cheaper is not None:
                why = f"the budget of {usd_text(situation.usd_left)} does not cover that, but {described(cheaper)}"
                return Decision((*returns, cheaper), wanted.wake_at, f"{wanted.reason}; {why}")
        if held < self.limits.least:
            why = f"limits and budget allow {held} machines, and the job needs at least {self.limits.least}"
            why += _waiting_for(room, asked)
            # What was to be replaced stays until there is room for its replacement.
            returns = tuple(action for action in returns if not action.replaced)
            short = self.room(replace(situation, usd_left=inf), staying).fill(rents) != bought
            return Decision(returns, soon, f"{wanted.reason}; {why}", unaffordable=short)
        if bought == asked:
            return wanted
        if together and bought and bought[0].machines == rents[0].machines < refused:
            why = f"asks for {rents[0].machines}, since {refused} were refused"
            return Decision((*returns, *bought), wanted.wake_at, f"{wanted.reason}; {why}")
        cut = f"capped at {held} machines by the job's limits" if bought else "the job's limits allow no more machines"
        waits = _waiting_for(room, asked)
        return Decision((*returns, *bought), soon if waits else wanted.wake_at, f"{wanted.reason}; {cut}{waits}")

    def _cheaper(self, situation: Situation, room: PurchaseRoom, needed: int) -> Rent | None:
        """The purchase with the most work that the budget covers: fewer machines, another market, a lower bid."""
        best: tuple[float, int, Rent] | None = None
        for offer in situation.offers:
            price = situation.price(offer)
            for bid in (offer.on_demand, min(round(price * _LOW_BID), offer.on_demand), price):
                rent = Rent(offer, self.limits.most, bid)
                machines = min(room.free(rent), ceil(self.most_nu / offer.nu))
                held = sum(count for (_, spot), count in room.held.items() if spot)
                enough = machines + held >= needed and price <= bid
                candidate = (machines * offer.nu, bid, replace(rent, machines=machines))
                if enough and machines and (best is None or candidate[:2] > best[:2]):
                    best = candidate
        return None if best is None else best[2]


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


def machines_leaving(situation: Situation, staying: Sequence[Holding]) -> Counter[tuple[Market, bool]]:
    """The machines that count against quotas until they are gone, including those of holdings that do not stay."""
    leaving = Counter(situation.leaving)
    for holding in situation.holdings:
        if holding not in staying:
            leaving[holding.rent.offer.market, holding.rent.spot] += holding.rent.machines
    return leaving


def with_capped_bids(decision: Decision, most: int | None = None) -> Decision:
    """The decision with no bid above the highest one that the job names, or else above the on-demand price."""
    actions = tuple(
        replace(action, bid=min(action.bid, action.offer.on_demand if most is None else most))
        if isinstance(action, Rent) and action.bid is not None
        else action
        for action in decision.actions
    )
    if actions == decision.actions:
        return decision
    cap = "the on-demand price" if most is None else f"{bid_usd(most)}/h, the job's `most`"
    return replace(decision, actions=actions, reason=f"{decision.reason}; no bid above {cap}")
