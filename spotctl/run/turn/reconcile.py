"""Compares what is wanted with what is held, and returns instructions. Pure; `execute` logs and
carries them out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter

from bidbrain.strategies.base import Decision, Holding, Look, Offer, Rent, Return, Situation
from pricing_data.market import Market
from pricing_data.units import HOUR
from spotctl.clouds.boot import stated_time
from spotctl.clouds.link import LeaseTimes
from spotctl.log.boots import clouds_that_answer
from spotctl.log.events import RenewIntended, ReturnIntended
from spotctl.log.state import EVICTED, RunState, covers


@dataclass(frozen=True, slots=True)
class StrategyTerms:
    """The strategy's terms besides the machines held: what it may rent, and how much work there is.
    `departure` says how a purchase at a moment departs from the plan; empty if it does not."""

    offers: tuple[Offer, ...]
    baseline: Rent
    most_nu: float
    work: float
    reliable: Rent | None = None
    departure: Callable[[Rent, int], str] = lambda _, __: ""


@dataclass(frozen=True, slots=True)
class Buy:
    """Place an order."""

    rent: Rent
    reliable: bool = False


@dataclass(frozen=True, slots=True)
class Renew:
    """Extend leases to a moment."""

    machines: tuple[str, ...]
    until: int


@dataclass(frozen=True, slots=True)
class ReturnMachines:
    """Return machines to the provider."""

    machines: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class RaiseBid:
    """Bid more for a machine, for the reason `why`."""

    machine: str
    bid: int
    why: str


@dataclass(frozen=True, slots=True)
class ScheduleReturn:
    """Log when an allocation, or some of its machines, will be returned; `replaced`: only if the
    machines ordered in its place were granted."""

    allocation: int
    at: int
    machines: tuple[str, ...] = ()
    replaced: bool = False


Instruction = Buy | Renew | ReturnMachines | RaiseBid | ScheduleReturn


def looks(state: RunState) -> tuple[Look, ...]:
    """Looks at spot markets: whether each order was granted, and how the machines that are gone
    have ended.
    """
    observed = list[Look]()
    for number, order in state.orders.items():
        if order.bid is None or order.reliable or number in state.open or number in state.unclear:
            continue
        came = [held for held in state.machines.values() if held.allocation == number]
        granted = len(came) >= order.machines
        observed.append(Look(state.ordered[number], order.market, up=granted))
        ended = [held for held in came if held.ended is not None]
        evicted = [
            held.ended for held in ended if held.ended is not None and held.end_reason == EVICTED
        ]
        if granted and evicted:
            observed.append(Look(min(evicted), order.market, up=False))
        elif granted and len(ended) == len(came):
            observed.append(Look(max(held.ended or 0 for held in ended), order.market, up=True))

    return tuple(sorted(observed, key=attrgetter("at")))


def situation(
    state: RunState,
    terms: StrategyTerms,
    price: Callable[[Offer], int],
    now: int,
    times: LeaseTimes,
    left: float = 1.0,
) -> Situation:
    """The facts that the strategy may know; `left` is the unfinished share of the work."""
    # Offers no more expensive than on demand; markets in back-off after evictions only if no other
    # is left.
    willing = [offer for offer in terms.offers if not _refusing(state, offer, now, spot=True)]
    fair = tuple(offer for offer in willing if price(offer) <= offer.on_demand)
    evicted = set[Market]()
    for (market, spot), back_off in state.back_offs.items():
        if spot and now < back_off.until:
            evicted.add(market)
    offers = tuple(offer for offer in fair if offer.market not in evicted) or fair

    holdings = list[Holding]()
    known = {offer.market: offer for offer in (terms.baseline.offer, *terms.offers)}
    for number, allocation in state.allocations.items():
        if allocation.reliable:
            continue
        # A machine that is warned, or whose lease runs out, counts as gone: a replacement may be
        # needed now.
        staying = 0
        for held in state.of(number):
            staying += held.warned_until is None and held.leaves_at is None
        if staying:
            market = allocation.market
            began = allocation.started
            offer = known.get(market) or Offer(market, allocation.nu, allocation.on_demand)
            rent = Rent(offer, staying, allocation.bid)
            ready = began + times.startup
            holdings.append(Holding(number, rent, began, ready, allocation.leaves_at))

    # Machines that are no longer held but exist: a cloud counts them against its quotas until they
    # are gone.
    leaving: Counter[tuple[Market, bool]] = Counter()
    for held in state.alive:
        allocation = state.allocations[held.allocation]
        goes = held.returning or held.warned_until is not None or held.leaves_at is not None
        if goes and not allocation.reliable:
            leaving[allocation.market, allocation.bid is not None] += 1

    return Situation(
        now=now,
        offers=offers,
        price=price,
        holdings=tuple(holdings),
        baseline=terms.baseline,
        most_nu=terms.most_nu,
        work_left=terms.work * left,
        leaving=leaving,
    )


def _refusing(state: RunState, offer: Offer, now: int, *, spot: bool) -> bool:
    """Whether a market refused too recently to be asked again, or is about to evict machines."""
    return any(
        side is spot
        and covers(back_off.scope, market, offer.market)
        and now < (back_off.until if back_off.evicting_at is None else back_off.evicting_at)
        for (market, side), back_off in state.back_offs.items()
    )


def upkeep(state: RunState, now: int, times: LeaseTimes) -> list[Instruction]:
    """Instructions that are due whatever the strategy wants: renewals of leases, and returns that
    were scheduled.
    """
    instructions: list[Instruction] = []
    staying = tuple(held for held in state.alive if not held.returning)
    due = tuple(
        held.id
        for held in staying
        if (leaves := state.leaves_at(held)) is not None and leaves <= now
    )

    if due:
        instructions.append(ReturnMachines(due, "scheduled return"))
    # Machines whose leases run out are not renewed; renewals without an answer are repeated as they
    # are.
    asked = {
        name
        for intent in state.open.values()
        if isinstance(intent, RenewIntended)
        for name in intent.machines
    }

    for held in staying:
        if held.silence and held.id not in due:
            instructions.append(ReturnMachines((held.id,), held.silence))
            due += (held.id,)

    expiring = tuple(
        held.id
        for held in staying
        if held.id not in due
        and held.id not in asked
        and held.leaves_at is None
        and held.warned_until is None
        and held.lease_until - now < times.renew_before
    )

    if expiring:
        instructions.append(Renew(expiring, now + times.lease))
    return instructions


def actions_of(
    state: RunState, decision: Decision, now: int, times: LeaseTimes
) -> list[Instruction]:
    """The instructions that follow from a decision. Markets that refused recently get no order."""
    instructions: list[Instruction] = []
    # A machine that is replaced is returned after the orders of what replaces it.
    first = list[Rent | Return]()
    last = list[Rent | Return]()
    for action in decision.actions:
        is_late = isinstance(action, Return) and action.replaced
        (last if is_late else first).append(action)

    for action in (*first, *last):
        match action:
            case Return(number, at, replaced) if number in state.allocations:
                allocation = state.allocations[number]
                wanted = now if at is None else at
                # Not at once, as the work is moved away first. A request at the very end of a paid
                # hour would come too late, and another hour would be paid.
                leaves = max(wanted, now + times.notice)
                if (wanted - allocation.started) % HOUR == 0:
                    leaves = max(wanted - times.notice, now + times.notice // 2)
                scheduled = allocation.leaves_at
                if scheduled is None or leaves < scheduled:
                    instructions.append(ScheduleReturn(number, leaves, replaced=replaced))
            case Rent(offer, machines, bid) if machines > 0:
                # On-demand machines are asked for again at once: without them a deadline would be
                # missed.
                if bid is None or not _refusing(state, offer, now, spot=True):
                    instructions.append(Buy(action))

    return instructions


def nearly_done(state: RunState, left: float, now: int, times: LeaseTimes, least: int = 1) -> bool:
    """Whether the machines held, `least` or more, finish the rest of the work (a share of all)
    before new ones could help. If nothing should be left, it is not known how long the rest takes:
    it may be done in any moment."""
    if left >= 1.0:
        return False

    rest = (now - state.started) * left / (1.0 - left)
    staying = 0
    for held in state.alive:
        if held.returning:
            continue
        goes = min(
            (at for at in (held.warned_until, state.leaves_at(held)) if at is not None), default=inf
        )
        lasts = goes >= now + rest if left > 0 else goes == inf
        staying += lasts and not state.allocations[held.allocation].reliable

    return rest < times.startup and staying >= max(least, 1)


def missing_reliable(state: RunState, terms: StrategyTerms, now: int) -> list[Instruction]:
    """Orders for missing reliable machines, which a run holds from its start to its end."""
    if terms.reliable is None or _refusing(
        state, terms.reliable.offer, now, spot=terms.reliable.bid is not None
    ):
        return []
    if any(held.leaves_at is not None for held in state.alive):
        # The budget does not cover what is held already.
        return []

    held = sum(
        len(state.of(number))
        for number, allocation in state.allocations.items()
        if allocation.reliable
    )

    missing = terms.reliable.machines - held
    if missing <= 0:
        return []
    return [Buy(Rent(terms.reliable.offer, missing, terms.reliable.bid), reliable=True)]


def one_at_first(state: RunState, wanted: list[Instruction]) -> list[Instruction]:
    """The instructions, of whose purchases in a cloud one machine is ordered until one of the run
    has answered there.

    If none boots, boots of one machine are lost instead of all. Reserved machines are ordered
    together.
    """
    answered = clouds_that_answer(state)
    kept = list[Instruction]()
    tried = {state.allocations[held.allocation].market.cloud for held in state.alive}
    for instruction in wanted:
        if isinstance(instruction, Buy):
            market = instruction.rent.offer.market
            if (
                market.cloud not in answered
                and not market.reservation
                and stated_time(market) is not None
            ):
                if market.cloud in tried:
                    continue
                tried.add(market.cloud)
                kept.append(replace(instruction, rent=replace(instruction.rent, machines=1)))
                continue
        kept.append(instruction)

    return kept


def repeated_returns(
    state: RunState, running: Collection[str], now: int, times: LeaseTimes
) -> list[Instruction]:
    """Returns of machines that were returned a while ago and still run: an accepted call may fail
    later.
    """
    asked = {
        name
        for intent in state.open.values()
        if isinstance(intent, ReturnIntended)
        for name in intent.machines
    }

    before = now - 2 * times.teardown
    machines = tuple(
        held.id
        for held in state.alive
        if held.returned_at is not None
        and held.returned_at < before
        and held.id in running
        and held.id not in asked
    )

    return [ReturnMachines(machines, "its return had no effect")] if machines else []
