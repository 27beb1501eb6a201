"""The on-demand cost of the same work: of all that a run has finished. Pure.

Finished work is the clocks of a training, and the time of a command that checkpoints or its end
kept. A clock takes the median over the run's own clocks: some take longer because machines stand
still or are replaced, which would not happen on demand. If the run is slower than its plan knew the
machines to be, a clock takes what the plan knew, and a command what its `hours` or its earlier runs
say: neither slowness nor work that is done twice is a saving. The machines are the cheapest
on-demand machines that the job allows, as the plan chose them; they start up, and are billed by
their provider's rule, with hours that have begun.
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from math import exp, inf
from operator import attrgetter
from typing import Any

import numpy as np

from bidbrain.billing import End, Life, rule_of_cloud, usd
from pricing_data.series import Ints
from pricing_data.units import HOUR
from spotctl.files.job.values import ProgramKind
from spotctl.log.budget import life_of
from spotctl.log.events import OnDemandOffer, RunEnded
from spotctl.log.ledger.rows import SameWork, Use
from spotctl.log.outcomes import FAILED
from spotctl.log.state import EVICTED, Held, RunState

UseSpan = tuple[int, int, Use]
"""Begin, end (exclusive) and use of a part of a machine's life."""


def use_spans(state: RunState, held: Held, end: int) -> list[UseSpan]:
    """A life until `end`, cut without gap or overlap.

    A machine works from the moment at which it was reported to be ready. Without a report, a
    machine works as soon as it runs, except in a training, whose nodes always report, and for a
    command that was never started.
    """
    ran = _within(held.ran, held.started, end)
    over = _within(state.stopped, ran, end)
    kind = None if state.began is None else state.began.spec.get("kind")
    is_idle = kind == ProgramKind.AGILEML or (
        kind == ProgramKind.COMMAND and state.work.attempt is None
    )
    turns = held.turns if held.turns or is_idle else (ran,)
    within = [_within(turn, ran, over) for turn in turns]
    if len(within) % 2:
        within.append(over)
    redone = sorted((stretch.begin, stretch.end) for stretch in state.redone)

    # It starts, loads, works with interruptions until the run stops, and then is idle.
    whole: list[UseSpan] = [(held.started, ran, Use.STARTING)]
    at = ran
    before = Use.LOADING
    for begin, until in zip(within[::2], within[1::2], strict=True):
        whole.append((at, begin, before))
        at = begin
        # Periods of redone work may overlap.
        for again_since, again_until in redone:
            first = max(again_since, at)
            last = min(again_until, until)
            if first < last:
                whole += [(at, first, Use.WORKING), (first, last, Use.REDONE)]
                at = last
        whole.append((at, until, Use.WORKING))
        at = until
        before = Use.IDLE

    if before is Use.LOADING:
        whole.append((at, over, before))
        at = over

    whole.append((at, end, Use.IDLE))
    return [part for part in whole if part[0] < part[1]]


def replacements(state: RunState) -> frozenset[str]:
    """Machines that replaced evicted ones: as many as were evicted, in the order in which they were
    rented.
    """
    evicted = (held for held in state.machines.values() if held.end_reason == EVICTED)
    evictions = sorted(held.ended for held in evicted if held.ended is not None)
    replacing: list[str] = []
    for held in sorted(state.machines.values(), key=attrgetter("started", "id")):
        before = sum(at <= held.started for at in evictions)
        if not state.allocations[held.allocation].reliable and before > len(replacing):
            replacing.append(held.id)
    return frozenset(replacing)


def _within(at: int | None, begin: int, end: int) -> int:
    return end if at is None else min(max(at, begin), end)


def final_figures(state: RunState, ended: RunEnded) -> dict[str, Any]:
    """The figures that `spotctl launch --json` prints, and that a message about the run has."""
    facts = dict(ended.facts)
    spent = facts.pop("spent", None)
    on_demand = facts.pop("on_demand", None)
    cost_usd = None if spent is None else usd(spent)
    on_demand_usd = None if on_demand is None else usd(on_demand)
    return {
        "run": state.run,
        "outcome": ended.outcome,
        "message": ended.message,
        "cost_usd": cost_usd,
        "on_demand_usd": on_demand_usd,
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
        until = state.at if held.ended is None else held.ended
        for begin, end, use in use_spans(state, held, until):
            whole += end - begin
            working += (end - begin) * (use is Use.WORKING)
    return working / whole if whole else None


_UNMEASURED_SPREAD = 0.5
"""Spread of the logarithm of the relative speed of two types, if it follows from their vCPUs
alone."""

_QUANTILES = (0.5, 0.25, 0.75)

_MAX_ALONE = (0.1, 1.0)
"""Clocks count as done by reliable machines alone if these were alone for more than this part of
the others' time: the speed of the others does not follow from such clocks. The second holds for a
run that has measured no others."""


_Needed = tuple[float, float, float, float]
"""Time of machines at work, weighted with their speed (microseconds times nu): the part of all of
this time that the work needed, what the work needs on demand, and the interval of that."""

NOT_MEASURED = (
    "reliable machines did all of the work, so that the speed of no other machine was measured"
)
MAYBE_REDONE = (
    "the command was started again, and without `hours` nothing says how much of its work it "
    "repeated"
)
NOTHING_TO_COMPARE = "the log names no on-demand machines that would have done the same work"


def same_work(state: RunState, now: int) -> SameWork:
    """The on-demand cost of what a run has done; nothing for a run that failed, whose work cannot
    be used.
    """
    failed = state.ended is not None and state.ended.outcome == FAILED
    is_training = state.work.attempt is None
    if failed or not state.machines or (is_training and not state.paces):
        return SameWork()

    working = list(_working(state, now, reliable=False))
    offer = _offer(state)
    if offer is None:
        return (
            SameWork(useful=Fraction(1), unknown=NOTHING_TO_COMPARE)
            if working or is_training
            else SameWork()
        )

    of_kept = (
        _of_clocks(state, working, now, offer)
        if is_training
        else _of_command(state, working, now, offer)
    )

    if of_kept is None:
        return SameWork(useful=Fraction(1), unknown=NOT_MEASURED)

    useful, needed, least, most = of_kept
    if not needed:
        return SameWork()
    if not is_training and offer.work is None and state.work.number > 1:
        # A checkpoint that the program does not load keeps no work.
        return SameWork(useful=Fraction(min(useful, 1.0)), unknown=MAYBE_REDONE)

    # How uncertain the speed of the on-demand machines is, relative to those that the run measured.
    used = {
        allocation.market.instance_type
        for allocation in state.allocations.values()
        if not allocation.reliable
    }

    spread = _UNMEASURED_SPREAD if offer.spread is None else offer.spread
    if used == {offer.market.instance_type}:
        spread = 0.0
    rule = rule_of_cloud(offer.market.cloud)
    costs = list[int]()
    for work in (needed, least * exp(-spread), most * exp(spread)):
        span = round(work / (offer.machines * offer.nu)) + offer.startup
        bill = rule.bill(Life(0, span, End.LEFT), offer.price)
        costs.append(offer.machines * bill.amount)

    return SameWork(costs[0], min(costs[:2]), max(costs[0], costs[2]), Fraction(min(useful, 1.0)))


_Working = tuple[int, int, float]
"""Begin, end, and nu of a machine at work."""


def _working(state: RunState, now: int, *, reliable: bool) -> Iterator[_Working]:
    """Time at work that was not spent on repeated work: of the reliable machines, or of the
    others."""
    for held in state.machines.values():
        allocation = state.allocations[held.allocation]
        if allocation.reliable is reliable:
            for begin, end, use in use_spans(state, held, life_of(held, now).end):
                if use is Use.WORKING:
                    yield begin, end, allocation.nu


def _of_command(
    state: RunState, working: Sequence[_Working], now: int, offer: OnDemandOffer
) -> _Needed:
    """The time that a command's kept work took, or what its `hours` or its earlier runs say if that
    is less: a command that begins again at each start does its work many times, and only once on
    demand."""
    whole = sum((end - begin) * nu for begin, end, nu in working)
    until = now if state.stopped is None else state.stopped
    work = state.work
    tried = sum(spell.worked for spell in work.spells)
    if work.runs:
        tried += work.until(until) - work.base

    kept = 0.0
    if tried > 0:
        kept = whole * min(work.done(until) / tried, 1.0)
    needed = kept if offer.work is None else min(kept, offer.work)
    useful = needed / whole if whole else 0.0
    return useful, needed, needed, kept


def _of_clocks(
    state: RunState, working: Sequence[_Working], now: int, offer: OnDemandOffer
) -> _Needed | None:
    """The time that the clocks of a training need, if each takes the median of the measured times,
    or less if the plan knew the machines to be faster; None if there is neither.

    Clocks that reliable machines did alone take as long as the others on demand. While both kinds
    work, reliable machines mostly keep the state, and do not count.
    """
    # The time at work up to each moment at which the progress is known, and how long any machine
    # worked.
    moments = np.array([state.started, *(at for at, _ in state.paces)])
    whole = sum((end - begin) * nu for begin, end, nu in working)
    begins, ends, speeds = np.array(working, dtype=float).reshape(-1, 3).T
    until = np.minimum(np.maximum(moments[:, None], begins), ends)
    worked = (until - begins) @ speeds
    shared = _time_in(moments, working)
    every = [*working, *_working(state, now, reliable=True)]
    for_alone = np.diff(_time_in(moments, every) - shared)
    with_others = np.diff(shared)
    strictly, loosely = (for_alone > with_others * most for most in _MAX_ALONE)
    is_alone = strictly if (with_others[~strictly] > 0).any() else loosely
    times = np.diff(worked).tolist()
    alone = is_alone.tolist()

    # A resumed training does not begin with clock 0. If the log does not say with which, the first
    # entry says only how long its clocks took together.
    alone[0] &= state.resumed_clock is not None
    opening = state.paces[0][1] - (state.resumed_clock or 0)
    counts: list[float] = [opening]
    counts += [clock - done for (_, done), (_, clock) in pairwise(state.paces)]
    spans = list[tuple[float, float]]()
    for time, count, lone in zip(times, counts, alone, strict=True):
        if time and not lone:
            spans.append((time / max(count, 1), count))

    opens = bool(times[0]) and not alone[0]
    measured = spans[opens:] or spans
    if not measured and offer.spread is None:
        return None

    middle, low, high = _quantiles(measured) if measured else (inf, inf, inf)
    if offer.spread is not None and middle > HOUR:
        # Weighted with the speed that the plan knew, a clock takes an hour of a machine.
        middle = float(HOUR)
        low = min(low, HOUR * exp(-offer.spread))
        high = min(high, HOUR * exp(offer.spread))

    if state.resumed_clock is None:
        counts[0] = min(opening, times[0] / middle if middle else 0.0)
    by_reliable = sum(count for count, lone in zip(counts, alone, strict=True) if lone)
    by_others = sum(counts) - by_reliable
    useful = min(by_others * middle / whole, 1.0) if whole else 1.0
    amounts = list[float]()
    for each in (middle, low, high):
        of_others = min(by_others * each, whole)
        amounts.append(of_others + by_reliable * each)

    needed, least, most = amounts
    return useful, needed, least, most


def _time_in(moments: Ints, spells: Iterable[_Working]) -> Ints:
    """For how long, up to each moment, at least one of these machines worked."""
    apart = list[list[int]]()
    for begin, end, _ in sorted(spells):
        if apart and begin <= apart[-1][1]:
            apart[-1][1] = max(end, apart[-1][1])
        else:
            apart.append([begin, end])

    total = np.zeros_like(moments)
    for begin, end in apart:
        total = total + (np.minimum(np.maximum(moments, begin), end) - begin)
    return total


def _quantiles(weighted: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """The median and the quartiles."""
    ordered = sorted(weighted)
    total = sum(weight for _, weight in weighted)
    quantiles = []
    for share in _QUANTILES:
        so_far = 0.0
        for value, weight in ordered:
            so_far += weight
            if so_far >= share * total:
                quantiles.append(value)
                break

    return tuple(quantiles)


def _offer(state: RunState) -> OnDemandOffer | None:
    """The on-demand machines of the plan. Logs of earlier versions have none: then the cheapest of
    those rented.
    """
    if state.planned is not None and state.planned.instead is not None:
        return state.planned.instead

    others = (
        of for of in state.allocations.values() if not of.reliable and not of.market.reservation
    )
    used = [allocation for allocation in others if allocation.nu > 0]
    if not used:
        return None

    best = min(used, key=lambda allocation: allocation.on_demand / allocation.nu)
    most = max(
        sum(held.allocation == allocation.number for held in state.machines.values())
        for allocation in used
    )
    starts = sorted(
        max(held.turns[0] - held.started, 0) for held in state.machines.values() if held.turns
    )
    startup = starts[len(starts) // 2] if starts else 0

    return OnDemandOffer(best.market, most, best.on_demand, best.nu, startup)
