"""The cheapest hours of each job on each type that finish it by its deadline: a program over
intervals.

Nothing changes between two deadlines, so a plan only needs hours per (job, type, interval), and
with an interval for each deadline the program is exact. With fewer intervals, a job may use the
part of an interval before its deadline, and workers must suffice although all jobs run evenly from
the interval's beginning until their deadlines: such a plan can be carried out, and is one of least
cost if it costs no more than a bound.

That a job is on one type at a time is a row for each job and interval, but few of these rows bind.
So they enter the program when a solution violates them. Of the intervals that cost the same, a job
gets the earliest.
"""

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.errors import BidBrainError
from bidbrain.gavel.problem import Pieces
from bidbrain.lp import CannotHold, LinearProgram, Solver, at_least, at_most

# Relative difference below which the cost and its bound count as equal.
_COST_TOLERANCE = 1e-6
# A plan that costs at most this much more than the bound of the cost is taken where the exact one
# takes too long.
_NEAR_COST = 0.02
# Work that stays undone costs this many times the most expensive work.
_UNDONE_COSTS = 1e3
# A plan is small below this part of the unit of its costs; the unit is reduced this many times.
_SMALL_PLAN, _MAX_UNITS = 1e-3, 6
# Up to this number of deadlines each ends an interval; for more, these numbers of intervals are
# tried.
MAX_DEADLINES, _INTERVALS = 128, (1, 8, 64)
_MAX_COLUMNS = 30_000
# Types on which a job does less of its work than this in an interval are left out; the solver takes
# it for zero.
_MIN_PART = 1e-10
# A job that exceeds its time in one interval by more than the tolerance gets a row for each
# interval in which it uses this share of its time: its work moves there next.
_TIME_TOLERANCE, _BUSY = 1e-8, 0.5
# A fraction of an interval that is rounding.
_NO_TIME, _FITS = 1e-9, 1 - 1e-9


@dataclass(frozen=True, slots=True)
class DeadlineBatch:
    """Jobs with deadlines: seconds left, and the seconds that the work takes on each type (infinite
    where it cannot run)."""

    names: tuple[str, ...]
    left: Floats
    alone: Floats
    scale: Floats
    types: tuple[str, ...]
    workers: Floats
    usd_per_second: Floats


def part_of(batch: DeadlineBatch, jobs: Ints) -> DeadlineBatch:
    """The batch of some of the jobs."""
    kept_names = (batch.names[m] for m in jobs.tolist())
    names = tuple(kept_names)
    return replace(
        batch, names=names, left=batch.left[jobs], alone=batch.alone[jobs], scale=batch.scale[jobs]
    )


@dataclass(frozen=True, slots=True)
class DeadlinePlan:
    """Seconds of each job on each type, the initial rates (X), the cost, when which job runs where,
    and whether no plan costs less."""

    seconds: Floats
    rates: Floats
    usd: float
    pieces: Pieces
    exact: bool = True


class NoNearPlan(BidBrainError):
    """No plan was found whose cost is near its bound."""


def uncrowded(batch: DeadlineBatch) -> DeadlinePlan | None:
    """The plan in which each job runs as if it were alone, if workers suffice for that."""
    # The seconds on each type that finish a job for the fewest dollars if it has all workers: on
    # one type, or on two if the slower one alone is too slow.
    runs = np.isfinite(batch.alone)
    left = batch.left[:, None]
    every, (jobs, types) = np.arange(len(left)), runs.shape
    alone = np.where(runs, batch.alone, 0.0)
    usd = batch.scale[:, None] * batch.usd_per_second * alone
    grid = np.indices((types, types))
    slow, fast = grid.reshape(2, -1)

    # The part of the work on the fast type that leaves no time; all of it where both are one type.
    gain = alone[:, slow] - alone[:, fast]
    over = alone[:, slow] - left
    part_over = np.divide(over, gain, out=np.zeros(over.shape), where=gain > 0)
    part = np.where(slow == fast, 1.0, part_over)
    in_time = (alone[:, fast] <= left) & (part > 0)
    both_run = runs[:, slow] & runs[:, fast]
    mixed = both_run & in_time
    slow_usd = usd[:, slow] * (1 - part)
    fast_usd = usd[:, fast] * part
    mixed_usd = slow_usd + fast_usd
    best = np.where(mixed, mixed_usd, np.inf).argmin(axis=1)
    share = np.zeros((jobs, types))
    fast_part = part[every, best]
    share[every, slow[best]] += 1 - fast_part
    share[every, fast[best]] += part[every, best]

    seconds = np.asarray(share * alone)

    spans = _spans(batch, _ends(batch, MAX_DEADLINES))
    placed = _earliest(batch, spans, seconds, None)
    if placed is None:
        return None
    return _plan(batch, spans, placed)


def near_cheapest(batch: DeadlineBatch, least_usd: float) -> DeadlinePlan:
    """The plan of least cost, or for many deadlines one that costs hardly more than this bound.

    Raises `CannotHold` if not all of few deadlines can be kept, and `NoNearPlan` if many have no
    such plan.
    """
    every = np.arange(len(batch.left))
    near = list[DeadlinePlan]()
    if len(every) <= MAX_DEADLINES:
        return DeadlineProgram(batch).cheapest(every)

    for count in _INTERVALS:
        program = DeadlineProgram(batch, count)
        if program.columns > _MAX_COLUMNS:
            break
        with suppress(CannotHold):
            plan = program.cheapest(every)
            is_exact = plan.usd <= least_usd * (1 + _COST_TOLERANCE)
            near.append(replace(plan, exact=is_exact))
            if near[-1].exact:
                break

    if not near or near[-1].usd > least_usd * (1 + _NEAR_COST):
        raise NoNearPlan(f"no plan of {len(every)} deadlines is near its bound")

    return near[-1]


def _ends(batch: DeadlineBatch, most: int) -> Floats:
    """At most this many of the deadlines, evenly spread among all."""
    ends = np.unique(batch.left)
    if len(ends) <= most:
        return ends
    shares = np.linspace(0, 1, most + 1)[1:]
    ends_of_jobs = np.quantile(batch.left, shares, method="higher")
    return np.unique(ends_of_jobs)


def _spans(batch: DeadlineBatch, ends: Floats) -> Floats:
    """Seconds of each interval before the jobs' deadlines (jobs by intervals)."""
    starts = np.append(0.0, ends[:-1])
    until = np.minimum(batch.left[:, None], ends)
    spans_of_jobs = np.maximum(until - starts, 0.0)
    return np.asarray(spans_of_jobs)


def _earliest(
    batch: DeadlineBatch, spans: Floats, seconds: Floats, placed: Floats | None
) -> Floats | None:
    """The jobs' seconds on each type in each interval, by deadline and as early as there are free
    workers.

    Jobs that are `placed` stay there where that is not possible. Others must fit; without that, the
    answer is None.
    """
    nonzero = np.where(spans > 0, spans, 1.0)
    lengths = nonzero[:, None]
    early = np.zeros((*seconds.shape, spans.shape[1]))
    rates = 0.0 * early if placed is None else placed / lengths
    used = np.einsum("m,mjk->jk", batch.scale, rates)
    free = batch.workers[:, None] - used

    for m in np.argsort(batch.left, kind="stable").tolist():
        free += batch.scale[m] * rates[m]
        rate = np.zeros(free.shape)
        idle = np.ones(len(spans[m]))
        for j in np.flatnonzero(seconds[m]).tolist():
            workers = free[j] / batch.scale[m]
            most = np.maximum(np.minimum(idle, workers), 0.0)
            reached = np.cumsum(spans[m] * most)
            least = seconds[m, j] * _FITS
            if reached[-1] < least:
                if placed is None:
                    return None
                rate = rates[m]
                break

            np.minimum(reached, seconds[m, j], out=reached)
            reached[1:] -= reached[:-1].copy()
            rate[j] = reached / lengths[m, 0]
            idle -= rate[j]

        free -= batch.scale[m] * rate
        early[m] = rate * spans[m]

    return early


def _plan(batch: DeadlineBatch, spans: Floats, placed: Floats) -> DeadlinePlan:
    """The plan of seconds by job, type and interval, spread evenly within each interval."""
    nonzero = np.where(spans > 0, spans, 1.0)
    rate = placed / nonzero[:, None]
    row, kind, interval = np.nonzero(rate > _NO_TIME)
    seconds = placed.sum(axis=2)
    summed = np.cumsum(spans[batch.left.argmax()])
    all_starts = np.append(0.0, summed[:-1])
    starts = all_starts[interval]
    scaled = seconds * batch.scale[:, None]
    dollars = (scaled * batch.usd_per_second).sum()
    usd = float(dollars)
    lengths = spans[row, interval]
    ends = starts + lengths
    share = rate[row, kind, interval]
    pieces = Pieces(row, kind, starts, ends, share)

    clipped = np.clip(rate[:, :, 0], 0.0, 1.0)
    return DeadlinePlan(seconds, clipped, usd, pieces)


class DeadlineProgram:
    """Places for the work of jobs; the jobs to be finished may change from one solve to the next.

    A column is the time of a job on a type in an interval, in units of what it can use there: the
    time until its deadline, or that of all its work. Then comes the share of each job's work that
    stays undone. Rows are the jobs' work, then the workers of each interval and type.
    """

    def __init__(self, batch: DeadlineBatch, intervals: int = MAX_DEADLINES) -> None:
        ends = _ends(batch, intervals)
        types = len(batch.types)
        spans = _spans(batch, ends)
        least_parts = _MIN_PART * batch.alone[:, :, None]
        matters = spans[:, None, :] > least_parts
        job, kind, interval = np.nonzero(matters)
        self._batch = batch
        self._job = job
        self._type = kind
        self._interval = interval
        self._spans = spans
        self._span = spans[job, interval]
        alone = batch.alone[job, kind]
        self._unit = np.minimum(self._span, alone)
        self._done = self._unit / alone
        self._part = self._unit / self._span
        usd_per_second = batch.scale[job] * batch.usd_per_second[kind]
        self._usd = usd_per_second * self._unit
        usd_of_work = self._usd / self._done
        self._dearest = float(usd_of_work.max(initial=0.0))

        # A job's time in an interval is one cell; some cells have a row.
        self._cell = job * len(ends) + interval
        self._rowed = np.zeros(spans.size, dtype=bool)
        jobs = np.arange(len(spans))
        columns = np.arange(len(job))
        self._undone = len(job) + np.arange(len(spans))

        all_work = np.ones(len(jobs))
        rows_of_work = np.append(job, jobs)
        columns_of_work = np.append(columns, self._undone)
        values_of_work = np.append(self._done, all_work)
        work = at_least(
            "job {!r}: its deadline",
            batch.names,
            rows_of_work,
            columns_of_work,
            values_of_work,
            all_work,
        )

        held = batch.scale[job] * self._part
        there = np.tile(batch.workers, len(ends))
        names_of_workers = [(name, end) for end in ends.tolist() for name in batch.types]
        rows_of_workers = interval * types + kind
        workers = at_most(
            "type {0[0]!r}: its workers until {0[1]:g} s",
            names_of_workers,
            rows_of_workers,
            columns,
            held,
            there,
        )

        nothing = np.zeros(len(job) + len(jobs))
        coefficients = np.ones(len(jobs))
        upper = np.append(1 / self._part, coefficients)
        program = LinearProgram(nothing, nothing, upper, (work, workers))
        self._solver = Solver(program, dual=True, brief=True)

    @property
    def columns(self) -> int:
        return len(self._job)

    def undone(self) -> Floats:
        """The share of each job's work that stays undone when their sum is least, or nearly."""
        nobody = np.zeros(0, dtype=np.int64)
        self._leave(nobody, _UNDONE_COSTS, self._dearest)
        return self._optimum()[1]

    def cheapest(self, kept: Ints) -> DeadlinePlan:
        """The plan of least cost that finishes these jobs. Raises `CannotHold` if there is none.

        Where the plan costs far less than the most expensive work, costs are counted again in a
        unit of the plan: in that of the work, the solver could not tell them from zero.
        """
        unit = self._dearest
        for _ in range(_MAX_UNITS):
            self._leave(kept, 0.0, unit)
            seconds, _ = self._optimum()
            usd = float(self._usd @ (seconds / self._unit))
            if not 0 < usd < unit * _SMALL_PLAN:
                break
            unit = usd

        placed = np.zeros((len(self._spans), len(self._batch.types), self._spans.shape[1]))
        placed[self._job, self._type, self._interval] = seconds
        batch = part_of(self._batch, kept)
        spans = self._spans[kept]
        placed = placed[kept]
        early = _earliest(batch, spans, placed.sum(axis=2), placed)
        return _plan(batch, spans, placed if early is None else early)

    def _leave(self, kept: Ints, cost: float, unit: float) -> None:
        """Work of all but these jobs may stay undone at a cost; other costs are in this unit."""
        most = np.ones(len(self._undone))
        most[kept] = 0.0
        self._solver.set_columns(self._undone, 0.0 * most, most)
        costs = np.append(self._usd / unit, cost * most)
        self._solver.set_gain(-costs)

    def _optimum(self) -> tuple[Floats, Floats]:
        """The seconds of the columns, and what stays undone, when each job is on one type at a
        time.
        """
        while True:
            x = np.maximum(self._solver.optimum().x, 0.0)
            seconds = x[: self.columns] * self._unit
            undone = x[self._undone]
            shares = seconds / self._span
            used = np.bincount(self._cell, shares, len(self._rowed))
            over = (used > 1 + _TIME_TOLERANCE) & ~self._rowed
            if not over.any():
                return seconds, undone

            jobs = len(self._batch.left)
            jobs_over = over.reshape(jobs, -1).any(axis=1)
            exceeds = np.repeat(jobs_over, len(over) // jobs)
            crowded = exceeds & (used > _BUSY) & ~self._rowed
            new = np.flatnonzero(crowded)
            self._rowed[new] = True
            row = np.full(len(over), -1)
            row[new] = np.arange(len(new))
            here = np.flatnonzero(row[self._cell] >= 0)
            of_new = row[self._cell[here]]
            rows_of_types = at_most(
                "one type at a time",
                range(len(new)),
                of_new,
                here,
                self._part[here],
                np.ones(len(new)),
            )
            self._solver.add_rows(rows_of_types)
