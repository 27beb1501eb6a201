"""What is wanted against what there is: instructions. Pure; the shell writes them down and carries them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation
from pricing_data.units import MINUTE, SECOND
from spotctl.runlog.state import Held, RunState


@dataclass(frozen=True, slots=True)
class Pace:
    """Spans in microseconds of the provider's clock.

    A lease is renewed when less than `renew_before` of it is left; a machine is gone `teardown` after its lease's end
    at the latest, and ready for work `startup` after its grant. What is given back is told so `farewell` before.
    """

    lease: int = 15 * MINUTE
    renew_before: int = 10 * MINUTE
    teardown: int = 1 * MINUTE
    startup: int = 2 * MINUTE
    farewell: int = 30 * SECOND

    @classmethod
    def local(cls, speed: float) -> Pace:
        """For a market whose clock runs so many times faster, on a computer whose processes do not."""
        second = round(speed * SECOND)
        return cls(lease=12 * second, renew_before=8 * second, teardown=second, startup=second, farewell=second)


@dataclass(frozen=True, slots=True)
class Terms:
    """What the strategy is given besides what is held: what it may rent, and how much there is to do."""

    offers: tuple[Offer, ...]
    baseline: Rent
    most_nu: float
    work: float
    reliable: Rent | None = None


@dataclass(frozen=True, slots=True)
class Buy:
    """Place an order."""

    rent: Rent
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class Renew:
    """Move the ends of leases."""

    machines: tuple[str, ...]
    until: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """End machines."""

    machines: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Remember when an allocation is to be given back."""

    allocation: int
    at: int


Instruction = Buy | Renew | GiveBack | Plan


def situation(
    state: RunState, terms: Terms, price: Callable[[Offer], int], now: int, pace: Pace, left: float = 1.0
) -> Situation:
    """What the strategy may know; `left` is the share of the work that is still to be done."""
    return Situation(
        now=now,
        offers=_offered(state, terms, price, now),
        price=price,
        holdings=tuple(_holdings(state, terms, pace)),
        baseline=terms.baseline,
        most_nu=terms.most_nu,
        work_left=terms.work * left,
    )


def refusing(state: RunState, offer: Offer, now: int) -> bool:
    """Whether a market refused so lately that it is not asked again yet, or is about to take machines."""
    rest = state.rests.get(offer.market)
    return rest is not None and now < (rest.until if rest.taken is None else rest.taken)


def _offered(state: RunState, terms: Terms, price: Callable[[Offer], int], now: int) -> tuple[Offer, ...]:
    """Markets that do not cost more than on demand: those that do not rest, or else those that took machines."""
    fair = tuple(o for o in terms.offers if not refusing(state, o, now) and price(o) <= o.on_demand)
    calm = tuple(o for o in fair if o.market not in state.rests or now >= state.rests[o.market].until)
    return calm or fair


def upkeep(state: RunState, now: int, pace: Pace) -> list[Instruction]:
    """What has to be done whatever the strategy wants: leases renewed in time, allocations given back as planned."""
    wanted: list[Instruction] = []
    due = {
        number
        for number, allocation in state.allocations.items()
        if allocation.leaves_at is not None and allocation.leaves_at <= now
    }
    leaving = tuple(held.id for number in sorted(due) for held in state.of(number))
    if leaving:
        wanted.append(GiveBack(leaving, "its time is over, as planned"))
    late = tuple(held.id for held in _kept(state) if held.allocation not in due and _due(held, now, pace))
    if late:
        wanted.append(Renew(late, now + pace.lease))
    return wanted


def purchases(state: RunState, decision: Decision, now: int, pace: Pace) -> list[Instruction]:
    """What a decision means for what there is. A market that refuses is not asked, whoever wants it."""
    wanted: list[Instruction] = []
    for action in decision.actions:
        match action:
            case Return(number, at) if number in state.allocations:
                # Not at once: what lives on a machine is moved away before it goes.
                leaves = max(at or now, now + pace.farewell)
                planned = state.allocations[number].leaves_at
                if planned is None or leaves < planned:
                    wanted.append(Plan(number, leaves))
            case Rent() if action.machines > 0 and not (action.bid is not None and refusing(state, action.offer, now)):
                wanted.append(Buy(action))
    return wanted


def nearly_done(state: RunState, left: float, now: int, pace: Pace) -> bool:
    """Whether what is held does the rest of the work, a share of all, before machines bought now could help."""
    if left >= 1.0:
        return False
    rest = (now - state.started) * left / (1.0 - left)
    staying = (held for held in _kept(state) if held.warned_until is None or held.warned_until >= now + rest)
    return rest < pace.startup and any(not state.allocations[held.allocation].reliable for held in staying)


def reliable_wanted(state: RunState, terms: Terms, now: int) -> list[Instruction]:
    """Reliable machines that are missing, for those are held from the start to the end."""
    if terms.reliable is None or refusing(state, terms.reliable.offer, now):
        return []
    here = sum(len(state.of(number)) for number, one in state.allocations.items() if one.reliable)
    missing = terms.reliable.machines - here
    if missing <= 0:
        return []
    return [Buy(Rent(terms.reliable.offer, missing, terms.reliable.bid), reliable=True)]


def everything_back(state: RunState, reason: str) -> list[Instruction]:
    """Whatever is held is given back."""
    machines = tuple(held.id for held in _kept(state))
    return [GiveBack(machines, reason)] if machines else []


def _holdings(state: RunState, terms: Terms, pace: Pace) -> Iterator[Holding]:
    offers = {offer.market: offer for offer in (terms.baseline.offer, *terms.offers)}
    for number, allocation in state.allocations.items():
        machines = state.of(number)
        # A machine that is warned is as good as gone: the strategy is to look for another now.
        staying = sum(held.warned_until is None for held in machines)
        if allocation.reliable or not staying:
            continue
        offer = offers.get(allocation.market) or Offer(allocation.market, allocation.nu, allocation.on_demand)
        rent = Rent(offer, staying, allocation.bid)
        yield Holding(number, rent, allocation.started, allocation.started + pace.startup, allocation.leaves_at)


def _kept(state: RunState) -> tuple[Held, ...]:
    return tuple(held for held in state.alive if not held.returning)


def _due(held: Held, now: int, pace: Pace) -> bool:
    return held.warned_until is None and held.lease_until - now < pace.renew_before
