"""The uses of a machine's time, and the figures of a run that has ended, as `--json` and messages have them. Pure."""

from collections.abc import Iterable, Iterator
from typing import Any

from bidbrain.billing import usd
from pricing_data.units import HOUR
from spotctl.files.job.values import ProgramKind
from spotctl.log.events import RunEnded
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
    reports_readiness = state.began is not None and state.began.spec.get("kind") == ProgramKind.AGILEML
    turns = held.turns if held.turns or reports_readiness else (ran,)
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
    evicted = (held for held in state.machines.values() if held.end_reason == EVICTED)
    evictions = sorted(held.ended for held in evicted if held.ended is not None)
    replacing: list[str] = []
    for held in sorted(state.machines.values(), key=lambda held: (held.started, held.id)):
        before = sum(at <= held.started for at in evictions)
        if not state.allocations[held.allocation].reliable and before > len(replacing):
            replacing.append(held.id)
    return frozenset(replacing)


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


def final_figures(state: RunState, ended: RunEnded) -> dict[str, Any]:
    """The figures that `spotctl launch --json` prints, and that a message about the run has."""
    facts = dict(ended.facts)
    spent, on_demand = facts.pop("spent", None), facts.pop("on_demand", None)
    return {
        "run": state.run,
        "outcome": ended.outcome,
        "message": ended.message,
        "cost_usd": None if spent is None else usd(spent),
        "on_demand_usd": None if on_demand is None else usd(on_demand),
        "replayed": state.is_replayed,
        "hours": (state.at - state.started) / HOUR,
        **facts,
        "evictions": state.evictions,
        "busy": busy(state),
    }


def without_run(job: str, outcome: str, message: str) -> dict[str, Any]:
    """The answer for a job that has no run."""
    return {"job": job, "run": None, "outcome": outcome, "message": message}


def busy(state: RunState) -> float | None:
    """The share of the machines' time that was useful work; work that was redone counts once."""
    whole = working = 0
    for held in state.machines.values():
        for begin, end, use in use_spans(state, held, state.at if held.ended is None else held.ended):
            whole += end - begin
            working += (end - begin) * (use is Use.WORKING)
    return working / whole if whole else None
