"""The history of a run, as `status --watch` and its page show it: a fold over its events, next to
its state. Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pricing_data.units import bid_usd, usd, usd_text
from spotctl.log import events as ev, folding
from spotctl.log.state import EVICTED, LogRow, RunState
from spotctl.show.phrases import machines_text, terms_text

MAX_EVENTS = 500
"""Only the latest events are kept."""
_MERGE_WITHIN = 4
"""Machines of one allocation with the same ending are merged into one line, if at most this many
lines came between."""


@dataclass(frozen=True, slots=True)
class MachineCount:
    """The number of machines from a moment on."""

    at: int
    reliable: int
    transient: int


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """A line of the event list about `count` machines. Later events with an equal `about` are added
    to the count.
    """

    at: int
    text: str
    count: int = 1
    about: object = None

    def __str__(self) -> str:
        return self.text.format(n=self.count)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run from its beginning to the last event that was read."""

    state: RunState = field(default_factory=RunState)
    footprint: tuple[MachineCount, ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    events: tuple[TimelineEvent, ...] = ()


def follow(timeline: Timeline, rows: Iterable[LogRow]) -> Timeline:
    """The timeline extended by more log rows."""
    for row in rows:
        state = folding.fold([row], timeline.state)
        event, events, losses = _event(timeline.state, row), timeline.events, timeline.losses
        if event is not None:
            # The log has an event for each machine: those about one thing are shown as one.
            merged = (*events, event)[-MAX_EVENTS:]
            for back, other in enumerate(reversed(events[-_MERGE_WITHIN:]), 1):
                if event.about is not None and other.about == event.about:
                    place, count = len(events) - back, other.count + event.count
                    joined = replace(other, count=count)
                    merged = (*events[:place], joined, *events[place + 1 :])
                    break
            events = merged

        if isinstance(row.event, ev.Progressed) and row.event.loss is not None:
            losses = (*losses, (row.event.clock, row.event.loss))
        timeline = Timeline(state, _footprint(timeline, state, row), losses, events)
    return timeline


def _footprint(timeline: Timeline, state: RunState, row: LogRow) -> tuple[MachineCount, ...]:
    match row.event:
        case ev.Rented(machines=granted):
            at = min((machine.started for machine in granted), default=row.at)
        case ev.MachineEnded(at=at):
            pass
        case _:
            return timeline.footprint

    reliable = sum(state.allocations[held.allocation].reliable for held in state.alive)
    transient = len(state.alive) - reliable
    before = timeline.footprint
    if before:
        # Events are logged after they happened, so their times may go backwards; the order is that
        # of the log.
        at = max(at, before[-1].at)
    return (*before, MachineCount(at, reliable, transient))


def _event(before: RunState, row: LogRow) -> TimelineEvent | None:
    event, name, text = row.event, "", ""
    match event:
        case ev.Rented(intent=intent, machines=machines) if machines:
            order = before.orders[intent]
            terms = terms_text(order.market, order.bid, order.on_demand)
            rented = f"rented {machines_text('{n}', order.market)}{terms}"
            return TimelineEvent(row.at, rented, len(machines), ("rented", intent))
        case ev.MachineWarned(id=name) if before.machines[name].warned_until is None:
            text = "eviction warning"
        case ev.BootAdvanced(id=name, stage=stage) if before.machines[name].phase != stage:
            text = stage
        case ev.BootSilent(id=name, why=why):
            text = f"silent ({why})"
        case ev.MachineEnded(id=name, reason=reason, failure=failure) if failure:
            text = f"{reason} ({failure})"
        case ev.MachineEnded(id=name, reason=reason):
            unwarned = reason == EVICTED and before.machines[name].warned_until is None
            text = f"{reason} without warning" if unwarned else reason
        case _:
            name = ""

    said = text if name else _of_run(before, event)
    if said is None:
        return None
    # Text from outside must not become a placeholder.
    plain = said.replace("{", "{{").replace("}", "}}")
    if not name:
        return TimelineEvent(row.at, plain)
    number = before.machines[name].allocation
    whose = machines_text("{n}", before.allocations[number].market)
    return TimelineEvent(row.at, f"{plain}: {whose}", 1, (number, text))


def _of_run(before: RunState, event: ev.Event) -> str | None:
    text: str | None = None
    match event:
        case ev.RunBegan(provider=provider):
            text = f"run started on {provider}"
        case ev.RunResumed():
            text = "run resumed by another process"
        case ev.RentRefused(intent=intent, why=why):
            order = before.orders[intent]
            # `NoCapacity` as `no capacity`.
            letters = [f" {letter.lower()}" if letter.isupper() else letter for letter in why]
            words = "".join(letters).strip()
            text = f"refused: {machines_text(order.machines, order.market)}: {words}"
        case ev.Decided(departures=departures) if departures:
            text = f"left the plan: {'; '.join(departures)}"
        case ev.BidIntended() | ev.BidChanged():
            text = _of_bid(before, event)
        case ev.BudgetExceeded(action=what):
            text = f"held back by the budget: {what}"
        case ev.BudgetSet(limit=limit):
            text = f"budget set to {usd_text(usd(limit))}"
        case ev.StopRequested(outcome=outcome):
            text = f"{outcome}: returning all machines"
        case ev.RunEnded(outcome=outcome, message=message):
            text = f"run ended: {outcome} ({message})" if message else f"run ended: {outcome}"

    return text


def _of_bid(before: RunState, event: ev.BidIntended | ev.BidChanged) -> str | None:
    """The line about a raised bid: why it is raised, then the bid that the machine has if it
    changed."""
    match event:
        case ev.BidIntended(bid=bid, why=why):
            return f"raising a bid to {bid_usd(bid)}/h: {why}"
        case ev.BidChanged(id=name, bid=bid, refused=refused) if bid != before.machines[name].bid:
            why = f": {refused}" if refused else ""
            return f"{name} bids {bid_usd(bid)}/h{why}"
    return None
