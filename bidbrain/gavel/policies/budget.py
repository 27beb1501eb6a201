"""`makespan-within-budget`: finishes a batch as early as a budget allows (section 6.4.3)."""

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.lp import INF, CannotHold, ConstraintRows, LinearProgram, Solver, at_least, at_most
from bidbrain.gavel.policies.base import Warm, allocation, require_prices, require_steps
from bidbrain.gavel.problem import AllocationProblem, BadProblem, ClusterAllocation, Pieces
from bidbrain.gavel.shares import ShareColumns, best_throughput


class BudgetTooLow(CannotHold):
    """The budget cannot pay for all jobs, at any speed; `least_usd` would."""

    def __init__(self, budget_usd: float, least_usd: float) -> None:
        super().__init__(
            f"budget_usd: {budget_usd:g} is too low: even without a time limit, all jobs cost"
            f" at least {least_usd:.6g} dollars"
        )
        self.least_usd = least_usd


@dataclass(frozen=True, slots=True)
class MakespanWithinBudget:
    """Minimizes the makespan M of X with M sum_m cost(m, X) <= B.

    The budget is not linear in X, and the paper bisects M; in hours H = M X this is one linear program with M among its
    columns.
    """

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the makespan in seconds; the result includes hours and their cost."""
        require_steps(problem, "makespan-within-budget")
        price = require_prices(problem, "makespan-within-budget")
        if problem.budget_usd is None:
            raise BadProblem("budget_usd: missing: makespan-within-budget needs a budget")
        batch = _BudgetBatch.of(ShareColumns.of(problem), price)
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
            raise BudgetTooLow(problem.budget_usd, least) from None
        seconds, makespan = x[:-1] * batch.seconds, x[-1] * batch.longest
        result = allocation(problem, columns.matrix(seconds / makespan), makespan)
        every = np.full(columns.count, makespan)
        fixed = Pieces(columns.row, columns.type, 0 * every, every, seconds / makespan)
        hours = columns.placed(seconds / 3600)
        return replace(result, hours=hours, cost_usd=float(batch.usd @ x[:-1]), pieces=fixed)


@dataclass(frozen=True, slots=True)
class _BudgetBatch:
    """Data of the programs. A unit of a column is the time in which one of its jobs does all its work there.

    So durations may differ by any number of decades: each row of work has entries of about 1. `work` are entries (job,
    column, share of the job's work); `jobs` those with any entry, `longest` the duration of the longest of them on its
    fastest type; `seconds` and `usd` the time and cost of a unit of a column.
    """

    columns: ShareColumns
    jobs: IntArray
    longest: float
    work: tuple[IntArray, IntArray, FloatArray]
    seconds: FloatArray
    usd: FloatArray

    @classmethod
    def of(cls, columns: ShareColumns, price: FloatArray) -> "_BudgetBatch":
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


def _program(batch: _BudgetBatch, budget: float) -> LinearProgram:
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
    return LinearProgram(gain, np.zeros(count + 1), np.full(count + 1, INF), (batch.rows(), *limits, money))


def _cheapest(batch: _BudgetBatch) -> LinearProgram:
    count = batch.columns.count
    return LinearProgram(-batch.usd / batch.usd.max(), np.zeros(count), np.full(count, INF), (batch.rows(),))
