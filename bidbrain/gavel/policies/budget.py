"""`makespan-within-budget`: a batch is done as soon as a budget allows (section 6.4.3)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.gavel.lp import INF, CannotHold, FloatArray, Program, Rows, Solver, at_least, at_most
from bidbrain.gavel.policies.base import Warm, allocation, require_prices, require_steps
from bidbrain.gavel.problem import Allocation, BadProblem, Problem
from bidbrain.gavel.shares import Shares, best_throughput


@dataclass(frozen=True, slots=True)
class MakespanWithinBudget:
    """Minimises the makespan M of X with M sum_m cost(m, X) <= B.

    In X the program is not linear, and the paper bisects M; in hours H = M X it is: one program, M among its columns.
    """

    def allocate(self, problem: Problem, _warm: Warm | None = None, /) -> Allocation:
        """The objective is the makespan in seconds; hours and their cost come with it."""
        require_steps(problem, "makespan-within-budget")
        price = require_prices(problem, "makespan-within-budget")
        if problem.budget_usd is None:
            raise BadProblem("budget_usd: is missing: makespan-within-budget needs a budget to stay within")
        best = best_throughput(problem)
        columns = Shares.of(problem)
        alone = np.divide(problem.jobs.steps, best, out=np.zeros(len(best)), where=best > 0)
        unit = float(alone.max(initial=0.0))
        if not unit > 0:
            return allocation(problem, columns.matrix(np.zeros(columns.count)), 0.0)
        usd = columns.held * price[columns.type] * (unit / 3600)
        try:
            x = Solver(_program(columns, best, alone / unit, usd, problem.budget_usd)).optimum().x
        except CannotHold:
            least = -Solver(_cheapest(columns, best, alone / unit, usd)).optimum().value
            if least <= problem.budget_usd:
                raise
            raise CannotHold(
                f"budget_usd: {problem.budget_usd:g} cannot hold: however long they take, all jobs cost"
                f" at least {least:.6g} dollars"
            ) from None
        makespan = x[-1]
        found = allocation(problem, columns.matrix(x[:-1] / makespan), makespan * unit)
        hours = columns.placed(x[:-1]) * unit / 3600
        return replace(found, hours=hours, cost_usd=float(usd @ x[:-1]))


def _program(columns: Shares, best: FloatArray, work: FloatArray, usd: FloatArray, budget: float) -> Program:
    """Columns are times, in units of the longest job alone, and the makespan."""
    count = columns.count
    money = at_most(
        lambda _: f"budget_usd: {budget:g}", np.zeros(count, dtype=np.int64), np.arange(count), usd / budget, np.ones(1)
    )
    gain = np.zeros(count + 1)
    gain[-1] = -1.0
    rows = (_work(columns, best, work), *columns.limits_within(count), money)
    return Program(gain, np.zeros(count + 1), np.full(count + 1, INF), rows)


def _cheapest(columns: Shares, best: FloatArray, work: FloatArray, usd: FloatArray) -> Program:
    count = columns.count
    return Program(-usd, np.zeros(count), np.full(count, INF), (_work(columns, best, work),))


def _work(columns: Shares, best: FloatArray, work: FloatArray) -> Rows:
    job, column, throughput = columns.progress
    divisor = np.where(best > 0, best, 1.0)
    ids = columns.problem.jobs.ids
    return at_least(lambda m: f"job {ids[m]!r}: all its steps", job, column, throughput / divisor[job], work)
