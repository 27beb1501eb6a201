"""The uses of a machine's time, from the event log. Pure."""

from collections.abc import Iterable, Iterator

from spotctl.files.job.values import ProgramKind
from spotctl.log.ledger.rows import Use
from spotctl.log.state import EVICTED, Held, RunState

UseSpan = tuple[int, int, Use]
"""Begin, end (exclusive) and use of a part of a machine's life."""


def use_spans(state: RunState, held: Held, end: int) -> list[UseSpan]:
    """A life until `end`, cut without gap or overlap.

    A machine works from the moment at which it was reported to be ready. Without a report, a machine works as soon as
    it runs, except in a training, whose nodes always report.
    """
    ran = _within(held.ran, held.started, end)
    over = _within(state.stopped, ran, end)
    turns = held.turns if held.turns or _reports_readiness(state) else (ran,)
    whole = ((held.started, ran, Use.STARTING), *_since(ran, over, end, turns, state))
    return [part for part in whole if part[0] < part[1]]


def _since(ran: int, over: int, end: int, turns: Iterable[int], state: RunState) -> Iterator[UseSpan]:
    """The time after a machine was seen running: loading, work with interruptions until the run stops, then idle."""
    within = [_within(turn, ran, over) for turn in turns]
    if len(within) % 2:
        within.append(over)
    redone = [(stretch.begin, stretch.end) for stretch in state.redone]
    at, before = ran, Use.LOADING
    for begin, until in zip(within[::2], within[1::2], strict=True):
        yield at, begin, before
        yield from _with_redone(begin, until, redone)
        at, before = until, Use.IDLE
    if before is Use.LOADING:
        yield at, over, before
        at = over
    yield at, end, Use.IDLE


def replacements(state: RunState) -> frozenset[str]:
    """Machines that replaced evicted ones: as many as were evicted, in the order in which they were rented."""
    evictions = sorted(_ended(held) for held in state.machines.values() if held.end_reason == EVICTED)
    replacing: list[str] = []
    for held in sorted(state.machines.values(), key=lambda held: (held.started, held.id)):
        before = sum(at <= held.started for at in evictions)
        if not state.allocations[held.allocation].reliable and before > len(replacing):
            replacing.append(held.id)
    return frozenset(replacing)


def _reports_readiness(state: RunState) -> bool:
    return state.began is not None and state.began.spec.get("kind") == ProgramKind.AGILEML


def _ended(held: Held) -> int:
    assert held.ended is not None
    return held.ended


def _within(at: int | None, begin: int, end: int) -> int:
    return end if at is None else min(max(at, begin), end)


def _with_redone(begin: int, end: int, redone: Iterable[tuple[int, int]]) -> Iterator[UseSpan]:
    """Working time, and periods of redone work, which may overlap."""
    at = begin
    for since, until in sorted(redone):
        first, last = max(since, at), min(until, end)
        if first < last:
            yield at, first, Use.WORKING
            yield first, last, Use.REDONE
            at = last
    yield at, end, Use.WORKING
