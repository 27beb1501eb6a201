"""What a run went through, as far as it is worth seeing: a fold over its events beside that of its state. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import reduce

from spotctl.runlog import events as ev
from spotctl.runlog import state as running
from spotctl.runlog.state import EVICTED, RunState
from spotctl.runlog.store import Row
from spotctl.show.run_tables import at_most

MOST_TOLD = 500
"""So many things that happened are kept, the latest."""
_TOGETHER = 4
"""What happens to machines of an allocation together may be written down with so many other things in between."""


@dataclass(frozen=True, slots=True)
class Step:
    """How many machines there are from a moment on."""

    at: int
    reliable: int
    transient: int


@dataclass(frozen=True, slots=True)
class Told:
    """Something that happened: to `count` machines, where it happened to machines. `text` has a place for it."""

    at: int
    text: str
    count: int = 1
    about: object = None

    def __str__(self) -> str:
        return self.text.format(n=self.count)


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run until now."""

    state: RunState = field(default_factory=RunState)
    footprint: tuple[Step, ...] = ()
    losses: tuple[tuple[int, float], ...] = ()
    told: tuple[Told, ...] = ()


def follow(past: Timeline, rows: Iterable[Row]) -> Timeline:
    """The past after more events."""
    return reduce(_after, rows, past)


def _after(past: Timeline, row: Row) -> Timeline:
    state = running.after(past.state, row)
    told = _told(past.state, row)
    return Timeline(
        state,
        _footprint(past, state, row),
        _losses(past.losses, row.event),
        past.told if told is None else _with(past.told, told),
    )


def _footprint(past: Timeline, state: RunState, row: Row) -> tuple[Step, ...]:
    match row.event:
        case ev.Rented(machines=came):
            at = min((granted.started for granted in came), default=row.at)
        case ev.MachineEnded(at=at):
            pass
        case _:
            return past.footprint
    reliable = sum(state.allocations[held.allocation].reliable for held in state.alive)
    # What was done is written down after it was: the order is that of the log.
    at = max([at, *(step.at for step in past.footprint[-1:])])
    return (*past.footprint, Step(at, reliable, len(state.alive) - reliable))


def _losses(losses: tuple[tuple[int, float], ...], event: ev.Event) -> tuple[tuple[int, float], ...]:
    if not isinstance(event, ev.Progressed) or event.loss is None:
        return losses
    return (*losses, (event.clock, event.loss))


def _with(told: tuple[Told, ...], one: Told) -> tuple[Told, ...]:
    """What happens to machines that were bought together happens to each of them; it is told once."""
    for back, other in enumerate(reversed(told[-_TOGETHER:]), 1):
        if one.about is not None and other.about == one.about:
            there = len(told) - back
            return (*told[:there], replace(other, count=other.count + one.count), *told[there + 1 :])
    return (*told, one)[-MOST_TOLD:]


def _told(before: RunState, row: Row) -> Told | None:
    """What an event tells a person: of machines, or of the run."""
    match row.event:
        case ev.Rented(intent=intent, machines=machines) if machines:
            return Told(row.at, f"rented {{n}} of {_bought(before.orders[intent])}", len(machines), ("rented", intent))
        case ev.MachineWarned(id=name) if before.machines[name].warned_until is None:
            return _of_machine(before, row.at, name, "will be taken away")
        case ev.MachineEnded(id=name, reason=reason):
            unwarned = reason == EVICTED and before.machines[name].warned_until is None
            return _of_machine(before, row.at, name, f"{reason}{' without a warning' if unwarned else ''}")
        case event:
            text = _of_run(before, event)
            return None if text is None else Told(row.at, _plain(text))


def _of_run(before: RunState, event: ev.Event) -> str | None:
    text: str | None = None
    match event:
        case ev.RunBegan(provider=provider):
            text = f"the run begins, on {provider}"
        case ev.RunResumed():
            text = "another process goes on with the run"
        case ev.RentRefused(intent=intent, why=why):
            text = f"{before.orders[intent].market} refused: {_words(why)}"
        case ev.Refrained(what=what):
            text = f"refrained, because of the budget: {what}"
        case ev.StopRequested(outcome=outcome):
            text = f"the run is to end: {outcome}; everything is given back"
        case ev.RunEnded(outcome=outcome, message=message):
            text = f"over: {outcome}{f' ({message})' if message else ''}"
    return text


def _of_machine(before: RunState, at: int, name: str, what: str) -> Told:
    number = before.machines[name].allocation
    return Told(at, f"{{n}} of {_plain(before.allocations[number].market)} {_plain(what)}", 1, (number, what))


def _bought(order: ev.RentIntended) -> str:
    how = "on demand" if order.bid is None else f"for at most {at_most(order.bid)}"
    return f"{_plain(order.market)} {how}"


def _words(name: str) -> str:
    """`NoCapacity` as `no capacity`."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _plain(text: object) -> str:
    """Nobody else's braces are places for a number."""
    return str(text).replace("{", "{{").replace("}", "}}")
