"""The cheapest hours of each job on each type with which it is done by its deadline: an exact program over intervals.

Between two deadlines nothing changes, so a plan needs no more than hours per (job, type, interval). Of many deadlines
most do not matter. So the program begins with few intervals, in which a job may use only the time until its deadline,
and is solved twice: asking less than deadlines within an interval ask (the workers are enough on average), and asking
more (they are enough although all jobs run evenly until their deadlines, from the beginning). Where both cost the same,
that is the least; else the intervals that do not fit are split at a deadline. When none is left to split, both are one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.lp import INF, CannotHold, FloatArray, IntArray, Program, Solver, at_least, at_most

_FITS = 1 + 1e-7
# What the bounds of the cost may differ by, relatively, where they count as equal.
_NO_MATTER = 1e-6
_PARTS = 3
# A type on which a whole interval does less of a job than this is left out: the solver could not tell it from nothing.
_LEAST_PART = 1e-6


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs with deadlines: seconds left, seconds that the work takes on each type (infinite where it cannot run)."""

    names: tuple[str, ...]
    left: FloatArray
    alone: FloatArray
    scale: FloatArray
    types: tuple[str, ...]
    workers: FloatArray
    usd_per_second: FloatArray


@dataclass(frozen=True, slots=True)
class Plan:
    """Seconds of each job on each type, the rates (X) to begin with, and what it costs."""

    seconds: FloatArray
    rates: FloatArray
    usd: float


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where work can be done: a job on a type in an interval, of whose length `span` lies before the job's deadline."""

    job: IntArray
    type: IntArray
    interval: IntArray
    span: FloatArray
    length: FloatArray
    alone: FloatArray

    @classmethod
    def of(cls, batch: Batch, ends: FloatArray) -> _Columns:
        starts = np.concatenate([[0.0], ends[:-1]])
        within = batch.left[:, None] > starts
        span = np.minimum(batch.left[:, None], ends) - starts
        worth = batch.alone[:, :, None] * _LEAST_PART < span[:, None, :]
        job, kind, interval = np.nonzero(within[:, None, :] & worth)
        span = span[job, interval]
        return cls(job, kind, interval, span, (ends - starts)[interval], batch.alone[job, kind])


class TooMany(CannotHold):
    """Not all deadlines can be kept; `done` is the share of each job's work that is, where their sum is largest."""

    def __init__(self, done: FloatArray) -> None:
        super().__init__("not all deadlines can be kept together: give some jobs more time, or add workers")
        self.done = done


def cheapest(batch: Batch) -> Plan:
    """The plan of least cost. Refuses (`TooMany`) where not all deadlines can be kept."""
    ends = np.array([batch.left.max()])
    while True:
        columns = _Columns.of(batch, ends)
        try:
            least = Solver(_program(batch, ends, columns, columns.length), dual=True).optimum()
        except CannotHold:
            raise TooMany(_most_done(batch, ends, columns)) from None
        even = _rates(columns, least.x)
        crowded = np.flatnonzero((_held(batch, ends, columns, even) > batch.workers * _FITS).any(axis=1))
        if not len(crowded):
            return _plan(batch, columns, least.x)
        try:
            found = Solver(_program(batch, ends, columns, columns.span), dual=True).optimum()
        except CannotHold:
            found = None
        if found is not None and found.value >= least.value - _NO_MATTER * abs(least.value):
            return _plan(batch, columns, found.x)
        ends = _split(batch, ends, crowded)


def _most_done(batch: Batch, ends: FloatArray, columns: _Columns) -> FloatArray:
    program = _program(batch, ends, columns, columns.length)
    work, *others = program.rows
    most = at_most(work.label, work.rows, work.columns, work.values, work.lower)
    found = Solver(Program(np.ones(len(program.gain)), program.lower, program.upper, (most, *others))).optimum()
    return np.bincount(columns.job, found.x, len(batch.left)).astype(np.float64)


def _program(batch: Batch, ends: FloatArray, columns: _Columns, over: FloatArray) -> Program:
    """Columns are shares of a job's work; rows its work, its time in each interval, the workers in each interval.

    Workers must be enough for what is held evenly over so many seconds of the interval.
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
    cost = batch.scale[columns.job] * batch.usd_per_second[columns.type] * columns.alone
    return Program(-cost / cost.max(), np.zeros(count), np.full(count, INF), (work, time, workers))


def _rates(columns: _Columns, x: FloatArray) -> FloatArray:
    """X of the columns where every job runs evenly in its time of an interval."""
    return np.asarray(x * columns.alone / columns.span)


def _held(batch: Batch, ends: FloatArray, columns: _Columns, rates: FloatArray) -> FloatArray:
    """Workers held of each type at the beginning of each interval, when most are."""
    cell = columns.interval * len(batch.types) + columns.type
    held = np.bincount(cell, batch.scale[columns.job] * rates, len(ends) * len(batch.types))
    return np.asarray(held.reshape(len(ends), len(batch.types)))


def _plan(batch: Batch, columns: _Columns, x: FloatArray) -> Plan:
    seconds, rates = np.zeros(batch.alone.shape), np.zeros(batch.alone.shape)
    np.add.at(seconds, (columns.job, columns.type), x * columns.alone)
    first = columns.interval == 0
    np.add.at(rates, (columns.job[first], columns.type[first]), _rates(columns, x)[first])
    usd = float((seconds * batch.scale[:, None] * batch.usd_per_second).sum())
    return Plan(seconds, np.clip(rates, 0.0, 1.0), usd)


def _split(batch: Batch, ends: FloatArray, crowded: IntArray) -> FloatArray:
    """Each crowded interval in some, at deadlines within that part them evenly."""
    starts = np.concatenate([[0.0], ends[:-1]])
    deadlines = np.unique(batch.left)
    cuts = [ends]
    for k in crowded.tolist():
        inside = deadlines[(deadlines > starts[k]) & (deadlines < ends[k])]
        cuts.append(inside[np.linspace(0, len(inside) - 1, min(_PARTS, len(inside))).astype(np.int64)])
    return np.unique(np.concatenate(cuts))
