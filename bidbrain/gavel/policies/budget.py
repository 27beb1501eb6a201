"""`makespan-within-budget`: a batch is done as soon as a budget allows (section 6.4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.gavel.lp import INF, CannotHold, ConstraintRows, FloatArray, IntArray, Program, Solver, at_least, at_most
from bidbrain.gavel.policies.base import Warm, allocation, require_prices, require_steps
from bidbrain.gavel.problem import AllocationProblem, BadProblem, ClusterAllocation
from bidbrain.gavel.shares import Shares, best_throughput


class TooDear(CannotHold):
    """A budget does not pay for all jobs, however long they take; `least_usd` would."""

    def __init__(self, budget_usd: float, least_usd: float) -> None:
        super().__init__(
            f"budget_usd: {budget_usd:g} cannot hold: however long they take, all jobs cost"
            f" at least {least_usd:.6g} dollars"
        )
        self.least_usd = least_usd


@dataclass(frozen=True, slots=True)
class MakespanWithinBudget:
    """Minimises the makespan M of X with M sum_m cost(m, X) <= B.

    In X the program is not linear, and the paper bisects M; in hours H = M X it is: one program, M among its columns.
    """

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the makespan in seconds; hours and their cost come with it."""
        require_steps(problem, "makespan-within-budget")
        price = require_prices(problem, "makespan-within-budget")
        if problem.budget_usd is None:
            raise BadProblem("budget_usd: is missing: makespan-within-budget needs a budget to stay within")
        batch = _Batch.of(Shares.of(problem), price)
        columns, nothing = batch.columns, np.zeros(batch.columns.count)
        if not len(batch.jobs):
            rest = allocation(problem, columns.matrix(nothing), 0.0)
            return replace(rest, hours=columns.placed(nothing), cost_usd=0.0)
        try:
            x = Solver(_program(batch, problem.budget_usd)).optimum().x
        except CannotHold:
            least = -Solver(_cheapest(batch)).optimum().value * float(batch.usd.max())
            if least <= problem.budget_usd:
                raise
            raise TooDear(problem.budget_usd, least) from None
        seconds, makespan = x[:-1] * batch.seconds, x[-1] * batch.longest
        found = allocation(problem, columns.matrix(seconds / makespan), makespan)
        return replace(found, hours=columns.placed(seconds / 3600), cost_usd=float(batch.usd @ x[:-1]))


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the programs are made of. A unit of a column is the time in which one of its jobs does all its work there.

    So jobs may differ by any number of decades in what they take: each row of work has entries of about 1. `work` are
    entries (job, column, share of the job's work); `jobs` those that have any, `longest` what the longest of them takes
    where it is fastest; `seconds` and `usd` what a unit of a column takes and costs.
    """

    columns: Shares
    jobs: IntArray
    longest: float
    work: tuple[IntArray, IntArray, FloatArray]
    seconds: FloatArray
    usd: FloatArray

    @classmethod
    def of(cls, columns: Shares, price: FloatArray) -> _Batch:
        steps, best = columns.problem.jobs.steps, best_throughput(columns.problem)
        jobs = np.flatnonzero((steps > 0) & (best > 0))
        longest = float((steps[jobs] / best[jobs]).max(initial=0.0))
        job, column, throughput = columns.progress
        row = np.full(len(steps), -1)
        row[jobs] = np.arange(len(jobs))
        counted = row[job] >= 0
        row, column, pace = row[job[counted]], column[counted], throughput[counted] / steps[job[counted]]
        seconds = np.full(columns.count, longest)
        np.minimum.at(seconds, column, 1 / pace)
        work = (row, column, pace * seconds[column])
        return cls(columns, jobs, longest, work, seconds, columns.held * price[columns.type] * seconds / 3600)

    def rows(self) -> ConstraintRows:
        """All work is done."""
        ids = self.columns.problem.jobs.ids
        return at_least(lambda i: f"job {ids[self.jobs[i]]!r}: all its steps", *self.work, np.ones(len(self.jobs)))


def _program(batch: _Batch, budget: float) -> Program:
    """Columns are those of X, as time, and the makespan in units of the longest job."""
    count = batch.columns.count
    money = at_most(
        lambda _: f"budget_usd: {budget:g}",
        np.zeros(count, dtype=np.int64),
        np.arange(count),
        batch.usd / budget,
        np.ones(1),
    )
    unit = np.append(batch.seconds / batch.longest, 1.0)
    limits = (replace(kind, values=kind.values * unit[kind.columns]) for kind in batch.columns.limits_within(count))
    gain = np.zeros(count + 1)
    gain[-1] = -1.0
    return Program(gain, np.zeros(count + 1), np.full(count + 1, INF), (batch.rows(), *limits, money))


def _cheapest(batch: _Batch) -> Program:
    count = batch.columns.count
    return Program(-batch.usd / batch.usd.max(), np.zeros(count), np.full(count, INF), (batch.rows(),))
