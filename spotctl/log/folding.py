"""Computes the state of a run from its events. No other code does, so that every process computes
the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pricing_data.market import Market
from pricing_data.units import DAY, MINUTE
from spotctl.log import events as ev
from spotctl.log.events import Event, Intended
from spotctl.log.outcomes import BrokenLog
from spotctl.log.state import (
    EVICTED,
    MAX_PACES,
    Allocation,
    AttemptSpan,
    BackOff,
    Held,
    LogRow,
    RefusedOrder,
    RunState,
    covers,
)

FIRST_BACK_OFF, LONGEST_BACK_OFF, LONGEST_REFUSAL = 2 * MINUTE, 20 * MINUTE, 5 * MINUTE
"""The back-off of a market after an eviction, or a refusal: it doubles each time. A refused order
costs nothing, but a job that asks seldom misses short spells, or meets them late (`python -m
bench.live_deadline`)."""

ABANDONED = "Abandoned"
"""Why an order is closed that got no answer, or was refused when it was repeated. The machines of
the order may have been created; if so, a list of the provider has them."""

NOT_SENT = "NotSent"
"""Why an order is closed that never reached the provider, because the run was asked to stop; this
says nothing about the market."""

NO_MACHINES = "NoCapacity"
"""Why an order is refused of a market that has no machines now."""

NO_QUOTA = "QuotaReached"
"""Why an order is refused that exceeds what the account may have."""

NO_MARKET = ("NotFound", "NotHere")
"""Why an order is refused that names a market which does not exist for the account: asking again
does not help."""

_Outcome = ev.Rented | ev.RentRefused | ev.Renewed | ev.Returned | ev.BidChanged
_Value = TypeVar("_Value", RunState, Held)


def _changed(value: _Value, **changes: Any) -> _Value:  # noqa: ANN401 - of any field
    """`dataclasses.replace`, many times as fast: the log of a year makes tens of thousands of
    states.
    """
    changed = object.__new__(type(value))
    vars(changed).update(vars(value), **changes)
    return changed


def fold(rows: Iterable[LogRow], state: RunState | None = None) -> RunState:
    """The state after events."""
    state = state or RunState()
    last = None
    at = state.at
    paces = list(state.paces)
    progress = state.progress
    done = paces[-1][1] if paces else 0
    for last in rows:
        event = last.event
        at = max(at, last.at)
        if not isinstance(event, ev.Progressed):
            state = _step(state, last)
            continue
        # Most events of a training say only how far it is. Applying such events together is much
        # faster.
        if event.ready or event.left or event.redone or event.resumed_clock is not None:
            state = _turns(state, event)
        progress = event
        if event.clock > done:
            done = event.clock
            if len(paces) >= MAX_PACES:
                del paces[1::2]
            paces.append((last.at, done))

    state = _changed(state, progress=progress, paces=tuple(paces))
    return state if last is None else _changed(state, run=last.run, at=at, last_row=last.id)


def _step(state: RunState, row: LogRow) -> RunState:
    """Applies an event, without its position in the log, which no step needs."""
    step = _STEPS.get(type(row.event))
    try:
        return state if step is None else step(state, row.event, row.at)
    except KeyError as error:
        kind = type(row.event).__name__
        raise BrokenLog(
            f"the event log lacks the row that row {row.id} of run {row.run}, {kind}, refers to"
        ) from error


_EVENT, _AT = "*event", "*at"
"""Stand in the tables below for the event itself, and for its time."""
_OF_STATE: Mapping[type[Event], Mapping[str, str]] = {
    ev.RunBegan: {"began": _EVENT, "started": _AT, "quotas": "quotas"},
    ev.QuotasShared: {"quotas": "quotas", "waits": "waits"},
    ev.Planned: {"planned": _EVENT},
    ev.LoginAwaited: {"login": _EVENT},
    ev.ClockStood: {"stood_seconds": "seconds"},
    ev.LoginWorks: {},
    ev.RunEnded: {"ended": _EVENT},
}
"""Fields of the state that an event gives a value, and the field of the event that has the
value."""
_OF_MACHINE: Mapping[type[Event], Mapping[str, str]] = {
    ev.BootAdvanced: {"phase": "stage", "sign": "sign", "signed_at": _AT},
    ev.MachineRan: {"ran": _AT},
    ev.CardsUsed: {"gpus": _EVENT, "gpus_at": _AT},
    ev.TrafficCounted: {"traffic": _EVENT, "traffic_at": _AT},
    ev.MachineListedAgain: {},
}
"""Fields of the machine that the event names, likewise."""
_CONSTANTS: Mapping[type[Event], Mapping[str, Any]] = {
    ev.LoginWorks: {"login": None},
    ev.MachineRan: {"running": True, "phase": "agent"},
    ev.MachineListedAgain: {"ended": None, "end_reason": ""},
}
"""Values of such fields that are the same for each event of the kind."""
_ALL: Mapping[type[Event], str] = {
    ev.Sent: "sent",
    ev.Corrected: "corrections",
    ev.RowsLost: "lost",
}
"""Where the state keeps all events of a kind."""


# Of a kind in the tables above.
def _kept(state: RunState, event: Any, at: int) -> RunState:  # noqa: ANN401
    kind = type(event)
    if kind in _ALL:
        if kind is ev.Corrected and event.id not in state.machines:
            raise KeyError(event.id)
        name = _ALL[kind]
        return _changed(state, **{name: (*getattr(state, name), event)})

    own = {_EVENT: event, _AT: at}
    changes = dict(_CONSTANTS.get(kind, {}))
    fields = _OF_STATE[kind] if kind in _OF_STATE else _OF_MACHINE[kind]
    for field, source in fields.items():
        changes[field] = own[source] if source in own else getattr(event, source)

    if kind in _OF_STATE:
        return _changed(state, **changes)
    return _machines(state, (event.id,), **changes)


def _decided(state: RunState, event: ev.Decided, _: int) -> RunState:
    """Keeps the first departure to each market at some terms: figures differ from one to the
    next."""
    new = list[str]()
    for text in dict.fromkeys(event.departures):
        terms = text.partition(", where ")[0]
        if not any(known.startswith(terms) for known in state.left_plan):
            new.append(text)
    return _changed(state, reason=event.reason, left_plan=(*state.left_plan, *new))


def _intended(state: RunState, event: Intended, at: int) -> RunState:
    """An intent is open until its outcome is known. Machines count as returned from then on."""
    if isinstance(event, ev.ReturnIntended):
        state = _machines(state, event.machines, returned_at=at)
    elif isinstance(event, ev.RentIntended):
        orders = {**state.orders, event.intent: event}
        ordered = {**state.ordered, event.intent: at}
        state = _changed(state, orders=orders, ordered=ordered)
    elif isinstance(event, ev.BidIntended):
        # The raised bid counts before it is sent.
        bids = (*state.machines[event.id].bids, (at, event.bid))
        state = _changed(_machines(state, (event.id,), bids=bids), reason=event.why)

    intents = max(state.intents, event.intent)
    return _changed(state, intents=intents, open={**state.open, event.intent: event})


def _rented(state: RunState, event: ev.Rented, at: int) -> RunState:
    """Machines may come in several events: those of a lost answer are found by listing."""
    order = state.orders[event.intent]
    came = dict[str, Held]()
    is_spot = order.bid is not None
    for granted in event.machines:
        since = granted.started
        bids = () if order.bid is None else ((since, order.bid),)
        lease = (since, order.lease_until, at)
        came[granted.id] = Held(
            granted.id, event.intent, *lease, signed_at=at, host=granted.host, bids=bids
        )

    allocations = dict(state.allocations)
    if event.intent not in allocations and came:
        started = min(granted.started for granted in event.machines)
        allocations[event.intent] = Allocation(
            event.intent,
            order.market,
            order.bid,
            order.on_demand,
            order.nu,
            order.reliable,
            started,
            disk=order.disk,
            address=order.address,
            list_price=order.list_price,
        )

    closed = _closed(state, event)
    machines = {**came, **state.machines}
    if not came:
        return _changed(closed, allocations=allocations, machines=machines)

    # The market has machines of this kind after all.
    denied = frozenset(side for side in state.denied if side[1] is not is_spot)
    refused = dict(state.refused)
    for (market, spot), refusal in state.refused.items():
        if spot is is_spot and covers(refusal.scope, market, order.market):
            del refused[market, spot]

    return _changed(
        closed,
        allocations=allocations,
        machines=machines,
        denied=denied,
        refused=refused,
        unknown={},
    )


def _refused(state: RunState, event: ev.RentRefused, at: int) -> RunState:
    if event.why == NOT_SENT:
        return _closed(state, event)

    order = state.orders[event.intent]
    market = order.market
    spot = order.bid is not None
    state = _changed(state, refusal=event.message)
    if event.unknown:
        state = _changed(state, unknown={**state.unknown, event.intent: event.unknown})

    if event.why in NO_MARKET:
        absent = BackOff(at + DAY, 1, None, exists=False, scope=event.scope)
        missing = dict.fromkeys(((market, True), (market, False)), absent)
        return _changed(_closed(state, event), back_offs={**state.back_offs, **missing})

    if event.why == ABANDONED:
        state = _changed(state, unclear={**state.unclear, event.intent: at})
    else:
        if event.why == NO_MACHINES:
            state = _changed(state, sold_out=state.sold_out | {event.intent})
        refusal = RefusedOrder(at, order.machines, event.scope)
        state = _changed(state, refused={**state.refused, (market, spot): refusal})

    if event.why == NO_QUOTA and not any(
        (allocation.bid is not None) is spot for allocation in state.allocations.values()
    ):
        state = _changed(state, denied=state.denied | {(market, spot)})

    # Where on-demand machines are sold out, so are spot machines; a quota is of one kind.
    sides = (spot,) if spot or event.why == NO_QUOTA else (True, False)
    return _backed_off(_closed(state, event), market, sides, at, eviction=False, scope=event.scope)


def _settled(state: RunState, event: ev.OrderSettled, _: int) -> RunState:
    """It is known now what became of an order that got no answer."""
    unclear = {order: since for order, since in state.unclear.items() if order != event.intent}
    return _changed(state, unclear=unclear)


def _renewed(state: RunState, event: ev.Renewed, _: int) -> RunState:
    """The leases of the machines that are still there end later, and never earlier."""
    intent = state.open.get(event.intent)
    if isinstance(intent, ev.RenewIntended):
        longer = list[Held]()
        for name in intent.machines:
            held = state.machines[name]
            if held.alive:
                until = max(intent.lease_until, held.lease_until)
                longer.append(_changed(held, lease_until=until))
        state = _with(state, longer)

    return _closed(state, event)


def _bid_changed(state: RunState, event: ev.BidChanged, at: int) -> RunState:
    """The time between the intent and its outcome counts at the bid that came of it."""
    bids = state.machines[event.id].bids
    if event.intent in state.open:
        *before, (at, _) = bids
        bids = tuple(before)
    if event.bid != bids[-1][1]:
        bids = (*bids, (at, event.bid))

    return _machines(_closed(state, event), (event.id,), bids=bids)


def _leaves(state: RunState, event: ev.ReturnScheduled, _: int) -> RunState:
    if event.machines:
        return _machines(state, event.machines, leaves_at=event.at)
    leaving = replace(state.allocations[event.allocation], leaves_at=event.at)
    return _changed(state, allocations={**state.allocations, event.allocation: leaving})


def _warned(state: RunState, event: ev.MachineWarned, at: int) -> RunState:
    first = state.machines[event.id].warned_until is None
    state = _machines(state, (event.id,), warned_until=event.deadline)
    # The back-off begins with the eviction: until then, the market would sell the same machines
    # again.
    until = max(at, event.deadline)
    if not first:
        return state

    return _avoided(state, event.id, until, warned_until=event.deadline)


def _ended(state: RunState, event: ev.BootSilent | ev.MachineEnded, at: int) -> RunState:
    """A machine that ended, or that stays silent and is of no use."""
    if isinstance(event, ev.BootSilent):
        silence = event.why
        state = _machines(state, (event.id,), silence=silence, silent_at=at, console=event.console)
        return _avoided(state, event.id, at, useless=True)

    warned = state.machines[event.id].warned_until is not None
    state = _machines(state, (event.id,), ended=event.at, end_reason=event.reason)
    if state.machines[event.id].silence:
        return state
    if event.failure:
        state = _machines(state, (event.id,), silence=event.failure, silent_at=at)
    if state.machines[event.id].useless:
        return _avoided(state, event.id, at, useless=True)
    if event.reason != EVICTED:
        return state

    state = _changed(state, evictions=state.evictions + 1)
    return state if warned else _avoided(state, event.id, at, ended=event.at)


def _avoided(state: RunState, machine: str, at: int, **together: object) -> RunState:
    """The market of a machine goes into back-off. Machines that go together count once: those of
    its allocation whose field has the value that is given here. Only a useless machine says
    something about the on-demand machines of the market, too.
    """
    ((field, value),) = together.items()
    number = state.machines[machine].allocation
    for held in state.machines.values():
        is_other = held.allocation == number and held.id != machine
        if is_other and getattr(held, field) == value:
            return state

    is_eviction = field != "useless"
    sides = (True,) if is_eviction else (True, False)
    market = state.allocations[number].market
    return _backed_off(state, market, sides, at, eviction=is_eviction)


def _turns(state: RunState, event: ev.Progressed) -> RunState:
    """Machines that began or stopped to work, and work that was repeated."""
    for works, moments in ((True, event.ready), (False, event.left)):
        at_of = {moment.id: moment.at for moment in moments if moment.id in state.machines}
        turned = []
        for name, at in at_of.items():
            held = state.machines[name]
            worked = len(held.turns) % 2 == 1
            # A restarted controller may report the same event twice.
            if works != worked:
                turned.append(_changed(held, turns=(*held.turns, max((at, *held.turns[-1:])))))
        state = _with(state, turned)

    if state.resumed_clock is None:
        state = _changed(state, resumed_clock=event.resumed_clock)
    return _changed(state, redone=(*state.redone, *event.redone)) if event.redone else state


def _command_work(
    state: RunState,
    event: ev.AttemptBegan | ev.AttemptStopped | ev.Checkpointed | ev.SetupFailed,
    at: int,
) -> RunState:
    """The state after an attempt of a command began or stopped, a checkpoint was stored, or a setup
    failed. Only checkpoints of the first node count.
    """
    work = state.work
    match event:
        case ev.AttemptBegan():
            lost = 0 if work.stopped is None else max(work.until(work.stopped_at) - work.safe, 0)
            work = replace(work, attempt=event, since=at, stopped=None, base=work.safe, lost=lost)

        case ev.AttemptStopped():
            span = AttemptSpan(work.since, at, work.safe - work.base, work.share)
            moves = work.moves + 1 if event.by_program else 0
            failures = dict(work.failures)
            if event.code is not None:
                failures[event.code] = failures.get(event.code, 0) + 1
            work = replace(
                work,
                stopped=event,
                stopped_at=at,
                spells=(*work.spells, span),
                moves=moves,
                failures=failures,
            )

        case ev.Checkpointed(rank=0) if event.attempt != work.number:
            work = replace(work, checkpoint=event, checkpointed_at=at)

        case ev.Checkpointed(rank=0):
            # A checkpoint stored after the stop was written at the stop.
            until = at if work.stopped is None else min(at, work.stopped_at)
            safe = max(work.safe, work.until(until))
            spells = work.spells
            if work.stopped is not None:
                spells = (*spells[:-1], replace(spells[-1], kept=safe - work.base))
            work = replace(work, checkpoint=event, checkpointed_at=at, safe=safe, spells=spells)

        case ev.SetupFailed():
            work = replace(work, setups_failed=work.setups_failed + 1)

    return _changed(state, work=work)


def _budget_set(state: RunState, event: ev.BudgetSet, _: int) -> RunState:
    """Machines that leave alone do so for the earlier budget, or for other jobs, which ask
    again."""
    leaving = [held.id for held in state.alive if held.leaves_at is not None]
    state = _machines(state, leaving, leaves_at=None)
    return _changed(state, budget_set=event.limit, over_budget={})


def _stop(state: RunState, event: ev.StopRequested, at: int) -> RunState:
    return state if state.stopping else _changed(state, stopping=event, stopped=at)


def _priced(state: RunState, event: ev.Priced, _: int) -> RunState:
    """The prices of an event replace those from its first time on."""
    before = state.prices.get(event.market)
    if before is not None and event.times:
        kept = bisect_left(before.times, event.times[0])
        times = before.times[:kept] + event.times
        prices = before.prices[:kept] + event.prices
        event = replace(event, times=times, prices=prices)
    return _changed(state, prices={**state.prices, event.market: event})


def _closed(state: RunState, event: _Outcome, _: int = 0) -> RunState:
    """An intent is no longer open once its outcome is known."""
    still_open = {number: intent for number, intent in state.open.items() if number != event.intent}
    return _changed(state, open=still_open)


# Of any field.
def _machines(state: RunState, ids: Iterable[str], **changes: Any) -> RunState:  # noqa: ANN401
    """Gives fields of machines the same new values; a machine that is not known is left out."""
    known = (state.machines[name] for name in ids if name in state.machines)
    return _with(state, (_changed(held, **changes) for held in known))


def _with(state: RunState, machines: Iterable[Held]) -> RunState:
    changed = {held.id: held for held in machines}
    return _changed(state, machines={**state.machines, **changed}) if changed else state


def _backed_off(
    state: RunState,
    market: Market,
    sides: Iterable[bool],
    at: int,
    *,
    eviction: bool,
    scope: str = "",
) -> RunState:
    back_offs = dict(state.back_offs)
    for spot in sides:
        before = state.back_offs.get((market, spot), BackOff(at, 0, None))
        # A market that was fine for long enough starts with the shortest back-off again.
        times = before.times + 1 if at <= before.until + LONGEST_BACK_OFF else 1
        until = at + min(
            FIRST_BACK_OFF << (times - 1), LONGEST_BACK_OFF if eviction else LONGEST_REFUSAL
        )
        back_offs[market, spot] = BackOff(until, times, at if eviction else None, scope=scope)

    return _changed(state, back_offs=back_offs)


_STEPS: Mapping[type[Event], Callable[[RunState, Any, int], RunState]] = {
    ev.RunBegan: _kept,
    ev.QuotasShared: _kept,
    ev.Planned: _kept,
    ev.Decided: _decided,
    ev.RentIntended: _intended,
    ev.Rented: _rented,
    ev.RentRefused: _refused,
    ev.OrderSettled: _settled,
    ev.RenewIntended: _intended,
    ev.Renewed: _renewed,
    ev.ReturnIntended: _intended,
    ev.Returned: _closed,
    ev.ReturnScheduled: _leaves,
    ev.BidIntended: _intended,
    ev.BidChanged: _bid_changed,
    ev.BootAdvanced: _kept,
    ev.BootSilent: _ended,
    ev.MachineRan: _kept,
    ev.MachineWarned: _warned,
    ev.CardsUsed: _kept,
    ev.TrafficCounted: _kept,
    ev.MachineEnded: _ended,
    ev.MachineListedAgain: _kept,
    ev.Sent: _kept,
    ev.AttemptBegan: _command_work,
    ev.AttemptStopped: _command_work,
    ev.Checkpointed: _command_work,
    ev.SetupFailed: _command_work,
    ev.BudgetExceeded: lambda state, event, _: _changed(
        state, over_budget={**state.over_budget, event.action: event}
    ),
    ev.BudgetSet: _budget_set,
    ev.LoginAwaited: _kept,
    ev.LoginWorks: _kept,
    ev.ClockStood: _kept,
    ev.StopRequested: _stop,
    ev.RunEnded: _kept,
    ev.Priced: _priced,
    ev.Corrected: _kept,
    ev.RowsLost: _kept,
}
"""The change that each event makes to the state, besides `Progressed`, which `fold` applies itself.
Other events are for reports and the ledger, and change nothing."""
