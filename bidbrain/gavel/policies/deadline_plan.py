"""The cheapest hours of each job on each type that finish it by its deadline: an exact program over intervals.

Nothing changes between two deadlines, so a plan only needs hours per (job, type, interval). Most of many deadlines do
not bind. The program therefore begins with few intervals, in which a job may use only the time until its deadline, and
relaxes the deadlines within an interval: it only requires that workers suffice on average. Its solution is optimal if
the work of each interval can be laid out so that the deadlines within it are kept, which one small program per interval
checks. The solution is also optimal if the stricter condition costs the same: that workers suffice although all jobs
run evenly from the interval's beginning until their deadlines. Otherwise intervals are split at deadlines that are not
kept.
"""

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.errors import BidBrainError
from bidbrain.gavel.problem import Pieces
from bidbrain.lp import INF, CannotHold, LinearProgram, Solver, at_least, at_most

_CAPACITY_MARGIN = 1 + 1e-7
# Counts as done: further from 1 than the solver's tolerance.
_DONE = 1 - 1e-6
# Relative difference below which the bounds of the cost count as equal.
_COST_TOLERANCE = 1e-6
# A plan that costs at most this much more than the bound of the cost is taken where the exact one takes too long.
_NEAR_COST = 0.02
# A fraction of a job's work that is solver rounding.
_WORK_TOLERANCE = 1e-9
_MAX_CUTS = 3
# A plan is small below this part of the unit of its costs; the unit is reduced this many times.
_SMALL_PLAN, _MAX_UNITS = 1e-3, 6
# Intervals with more parts are split without a layout program.
_MAX_LAYOUT_PARTS = 32
# Leaves out types on which a whole interval does less of a job than this; the solver could not tell it from zero.
_MIN_PART = 1e-6


@dataclass(frozen=True, slots=True)
class DeadlineBatch:
    """Jobs with deadlines: seconds left, and the seconds that the work takes on each type (infinite where it cannot
    run)."""

    names: tuple[str, ...]
    left: Floats
    alone: Floats
    scale: Floats
    types: tuple[str, ...]
    workers: Floats
    usd_per_second: Floats


@dataclass(frozen=True, slots=True)
class DeadlinePlan:
    """Seconds of each job on each type, the initial rates (X), the cost, when which job runs where, and whether no plan
    costs less."""

    seconds: Floats
    rates: Floats
    usd: float
    pieces: Pieces
    exact: bool = True


@dataclass(frozen=True, slots=True)
class _IntervalColumns:
    """Places for work: a job on a type in an interval, `span` of whose length lies before the job's deadline."""

    job: Ints
    type: Ints
    interval: Ints
    start: Floats
    span: Floats
    length: Floats
    alone: Floats

    @classmethod
    def of(cls, batch: DeadlineBatch, ends: Floats) -> "_IntervalColumns":
        starts = np.concatenate([[0.0], ends[:-1]])
        within = batch.left[:, None] > starts
        span = np.minimum(batch.left[:, None], ends) - starts
        worth = batch.alone[:, :, None] * _MIN_PART < span[:, None, :]
        job, kind, interval = np.nonzero(within[:, None, :] & worth)
        span = span[job, interval]
        return cls(job, kind, interval, starts[interval], span, (ends - starts)[interval], batch.alone[job, kind])


class InfeasibleDeadlines(CannotHold):
    """Not all deadlines can be kept; `done` is the finished share of each job's work when their sum is largest."""

    def __init__(self, done: Floats) -> None:
        super().__init__("not all deadlines can be kept together: give some jobs more time, or add workers")
        self.done = done


class NoExactPlan(BidBrainError):
    """No plan was found within the allowed number of columns."""


def cheapest(batch: DeadlineBatch, most_columns: int | None = None) -> DeadlinePlan:
    """The plan of least cost. Raises `InfeasibleDeadlines` if not all deadlines can be kept.

    With `most_columns` it raises `NoExactPlan` instead, also if the exact plan would take more columns, unless one was
    found that costs hardly more.
    """
    ends, brief = np.array([batch.left.max()]), most_columns is not None
    near: DeadlinePlan | None = None
    while True:
        columns = _IntervalColumns.of(batch, ends)
        if most_columns is not None and len(columns.job) > most_columns:
            if near is not None:
                return near
            raise NoExactPlan(f"an exact plan takes more than {most_columns} columns")
        try:
            x, usd = _least(batch, columns, _program(batch, ends, columns, columns.length), brief=brief)
        except CannotHold:
            if brief:
                raise NoExactPlan("not all deadlines can be kept together") from None
            raise InfeasibleDeadlines(_most_done(batch, ends, columns)) from None
        rates = _rates(columns, x)
        # Workers of each type held at the beginning of each interval, when the number is highest.
        cell = columns.interval * len(batch.types) + columns.type
        held = np.bincount(cell, batch.scale[columns.job] * rates, len(ends) * len(batch.types))
        held_at_begin = held.reshape(len(ends), len(batch.types))
        crowded = np.flatnonzero((held_at_begin > batch.workers * _CAPACITY_MARGIN).any(axis=1))
        cuts, laid_out = _cuts(batch, ends, columns, x, rates, crowded)
        if not len(cuts):
            return _plan(batch, columns, x, rates, laid_out)
        if most_columns is None or len(columns.job) > most_columns / 2:
            near = _even(batch, ends, columns, usd) or near
            if near is not None and near.exact:
                return near
        ends = np.unique(np.concatenate([ends, cuts]))


def _even(batch: DeadlineBatch, ends: Floats, columns: _IntervalColumns, usd: float) -> DeadlinePlan | None:
    """The plan in which all jobs run evenly in each interval, if it costs hardly more than this bound."""
    try:
        even, even_usd = _least(batch, columns, _program(batch, ends, columns, columns.span), brief=True)
    except CannotHold:
        return None
    if even_usd > usd * (1 + _NEAR_COST):
        return None
    exact = even_usd <= usd * (1 + _COST_TOLERANCE)
    return replace(_plan(batch, columns, even, _rates(columns, even), {}), exact=exact)


def _least(
    batch: DeadlineBatch, columns: _IntervalColumns, program: LinearProgram, *, brief: bool
) -> tuple[Floats, float]:
    """A solution of least cost, and its cost.

    Where the plan costs far less than its most expensive column, costs are counted again in a unit of the plan: in that
    of the column, the solver could not tell them from zero.
    """
    solver, cost = Solver(program, dual=True, brief=brief), _usd(batch, columns)
    x = solver.optimum().x
    unit = float(cost.max())
    for _ in range(_MAX_UNITS):
        usd = float(cost @ np.maximum(x, 0.0))
        if not 0 < usd < unit * _SMALL_PLAN:
            break
        unit = usd
        solver.set_gain(-cost / unit)
        x = solver.optimum().x
    return x, float(cost @ np.maximum(x, 0.0))


def _usd(batch: DeadlineBatch, columns: _IntervalColumns) -> Floats:
    """The cost of all of a job's work in each column."""
    return np.asarray(batch.scale[columns.job] * batch.usd_per_second[columns.type] * columns.alone)


def _most_done(batch: DeadlineBatch, ends: Floats, columns: _IntervalColumns) -> Floats:
    program = _program(batch, ends, columns, columns.length)
    work, *others = program.rows
    most = at_most(work.label, work.rows, work.columns, work.values, work.lower)
    most_done = Solver(
        LinearProgram(np.ones(len(program.gain)), program.lower, program.upper, (most, *others))
    ).optimum()
    return np.bincount(columns.job, most_done.x, len(batch.left)).astype(np.float64)


def _program(batch: DeadlineBatch, ends: Floats, columns: _IntervalColumns, over: Floats) -> LinearProgram:
    """Columns are shares of a job's work; rows are its work, its time in each interval, and the workers in each
    interval.

    Workers must suffice for what is held evenly over `over` seconds of the interval.
    """
    count, types = len(columns.job), len(batch.types)
    every = np.arange(count)
    pairs, time_row = np.unique(columns.job * len(ends) + columns.interval, return_inverse=True)
    work = at_least(
        lambda m: f"job {batch.names[m]!r}: its deadline", columns.job, every, np.ones(count), np.ones(len(batch.left))
    )
    time = at_most(
        lambda i: f"job {batch.names[pairs[i] // len(ends)]!r}: one type at a time",
        time_row,
        every,
        columns.alone / columns.span,
        np.ones(len(pairs)),
    )
    workers = at_most(
        lambda i: f"type {batch.types[i % types]!r}: its workers until {ends[i // types]:g} s",
        columns.interval * types + columns.type,
        every,
        batch.scale[columns.job] * columns.alone / over,
        np.tile(batch.workers, len(ends)),
    )
    cost = _usd(batch, columns)
    return LinearProgram(-cost / cost.max(), np.zeros(count), np.full(count, INF), (work, time, workers))


def _rates(columns: _IntervalColumns, x: Floats) -> Floats:
    """X of the columns if every job runs evenly in its time of an interval."""
    return np.asarray(x * columns.alone / columns.span)


def _plan(
    batch: DeadlineBatch, columns: _IntervalColumns, x: Floats, rates: Floats, laid_out: dict[int, Pieces]
) -> DeadlinePlan:
    seconds, opening = np.zeros(batch.alone.shape), np.zeros(batch.alone.shape)
    np.add.at(seconds, (columns.job, columns.type), x * columns.alone)
    first = columns.interval == 0
    np.add.at(opening, (columns.job[first], columns.type[first]), rates[first])
    usd = float((seconds * batch.scale[:, None] * batch.usd_per_second).sum())
    evenly = ~np.isin(columns.interval, list(laid_out))
    start = columns.start[evenly]
    even = Pieces(
        columns.job[evenly], columns.type[evenly], start, start + columns.span[evenly], _rates(columns, x)[evenly]
    )
    return DeadlinePlan(seconds, np.clip(opening, 0.0, 1.0), usd, Pieces.joined([even, *laid_out.values()]))


def _cuts(
    batch: DeadlineBatch,
    ends: Floats,
    columns: _IntervalColumns,
    x: Floats,
    rates: Floats,
    crowded: Ints,
) -> tuple[Floats, dict[int, Pieces]]:
    """Deadlines at which crowded intervals have to be split, and the pieces of those that can be laid out, for which it
    sets `rates`."""
    cuts, laid_out = [np.zeros(0)], {}
    for k in crowded.tolist():
        there = np.flatnonzero((columns.interval == k) & (x > _WORK_TOLERANCE))
        stay = _IntervalWork.of(batch, columns, ends, there, x[there])
        cut = stay.overfull()
        if not len(cut):
            cut, rates[there], laid_out[k] = stay.placed()
        cuts.append(cut)
    return np.concatenate(cuts), laid_out


@dataclass(frozen=True, slots=True)
class _IntervalWork:
    """The work of one interval: seconds of jobs on types, until the job's deadline or the interval's end.

    The `ends` of its parts are the deadlines within it; `until` is the part by whose end each job has to be done.
    """

    job: Ints
    type: Ints
    seconds: Floats
    scale: Floats
    until: Ints
    ends: Floats
    lengths: Floats
    workers: Floats

    @classmethod
    def of(
        cls, batch: DeadlineBatch, columns: _IntervalColumns, ends: Floats, there: Ints, x: Floats
    ) -> "_IntervalWork":
        """The work of some columns of one interval."""
        job, k = columns.job[there], int(columns.interval[there[0]])
        end, length = ends[k], columns.length[there[0]]
        # Counted from the beginning of the interval.
        due = np.minimum(batch.left[job], end) - (end - length)
        parts, until = np.unique(np.append(due, length), return_inverse=True)
        lengths = np.diff(np.concatenate([[0.0], parts]))
        seconds, scale = x * columns.alone[there], batch.scale[job]
        return cls(job, columns.type[there], seconds, scale, until[:-1], parts + (end - length), lengths, batch.workers)

    def overfull(self) -> Floats:
        """For each type, the end until which its workers are most overloaded, if there is one."""
        worst = []
        for j, workers in enumerate(self.workers.tolist()):
            of_type = self.type == j
            due = np.bincount(self.until[of_type], (self.scale * self.seconds)[of_type], len(self.ends))
            excess = np.cumsum(due) - workers * np.cumsum(self.lengths)
            if excess[:-1].max(initial=0.0) > workers * self.lengths.sum() * (_CAPACITY_MARGIN - 1):
                worst.append(self.ends[excess[:-1].argmax()])
        return np.array(worst)

    def placed(self) -> tuple[Floats, Floats, Pieces]:
        """Deadlines that no layout keeps, and otherwise the rates in the first part, and all pieces."""
        parts = len(self.ends)
        if parts > _MAX_LAYOUT_PARTS:
            nothing, empty = np.zeros(0, dtype=np.int64), np.zeros(0)
            return self._evenly(), np.zeros(len(self.job)), Pieces(nothing, nothing, empty, empty, empty)
        # Share of each piece of work that is done in a part.
        usable = self.seconds[:, None] * _MIN_PART < self.lengths
        which, part = np.nonzero((np.arange(parts) <= self.until[:, None]) & usable)
        job, kind, every = self.job[which], self.type[which], np.arange(len(which))
        rate = self.seconds[which] / self.lengths[part]
        cells, time_row = np.unique(job * parts + part, return_inverse=True)
        worker_row, held = part * len(self.workers) + kind, self.scale[which] * rate
        rows = (
            at_most(lambda _: "work", which, every, np.ones(len(every)), np.ones(len(self.job))),
            at_most(lambda _: "time", time_row, every, rate, np.ones(len(cells))),
            at_most(lambda _: "workers", worker_row, every, held, np.tile(self.workers, parts)),
        )
        count = len(every)
        x = Solver(LinearProgram(np.ones(count), np.zeros(count), np.full(count, INF), rows)).optimum().x
        lacking = np.bincount(which, x, len(self.job)) < _DONE
        first = np.zeros(len(self.job))
        first[which[part == 0]] = (x * rate)[part == 0]
        laid_out = Pieces(job, kind, (self.ends - self.lengths)[part], self.ends[part], x * rate)
        cuts = np.unique(self.until[lacking])
        inside = cuts[cuts < parts - 1]
        if len(cuts) and not len(inside):
            # Jobs that lack time run until the interval's end, and yielded to others at an earlier end.
            return self._evenly(), first, laid_out
        return self.ends[inside], first, laid_out

    def _evenly(self) -> Floats:
        """Some of the ends, evenly spread."""
        inside = len(self.ends) - 1
        return self.ends[np.linspace(0, inside - 1, min(_MAX_CUTS, inside)).astype(np.int64)]
