"""Policies that maximize a sum of worths over the columns of X."""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.lp import INF, GrowingSolver, LinearProgram
from bidbrain.gavel.policies.base import Warm, allocation
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.shares import ShareColumns


@dataclass(frozen=True, slots=True)
class Worth:
    """X of the largest sum of worths, and that sum."""

    shares: FloatArray
    value: float


def most_worth(columns: ShareColumns, worth: FloatArray, at_least: FloatArray | None = None) -> Worth:
    """The valid X of the greatest worth, among those that give each column at least `at_least`."""
    count = columns.count
    if not count:
        return Worth(columns.matrix(np.zeros(0)), 0.0)
    lower = np.zeros(count) if at_least is None else at_least
    program = LinearProgram(worth, lower, np.full(count, INF), columns.limits())
    solution = GrowingSolver(program, np.arange(columns.alone)).optimum()
    return Worth(columns.matrix(solution.x), solution.value)


def normalized_worth(
    columns: ShareColumns, *, price: FloatArray | None = None, weight: FloatArray | None = None
) -> FloatArray:
    """Throughput over the job's fastest, so that jobs with short steps do not dominate, times a weight.

    With prices of types it is throughput per price, over its maximum.
    """
    problem = columns.problem
    price = np.ones(len(problem.cluster.types)) if price is None else price
    job, column, throughput = columns.progress
    best = columns.best(price)
    worth = throughput / price[columns.type[column]] / best[job]
    if weight is not None:
        worth = worth * weight[job]
    return np.bincount(column, worth, columns.count).astype(np.float64)


@dataclass(frozen=True, slots=True)
class MaxThroughput:
    """`max-throughput`: maximizes sum_m throughput(m, X) / throughput(m, X_fastest) (sections 5.3.1, 6.4.1)."""

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the sum of normalized throughputs. Weights are ignored."""
        columns = ShareColumns.of(problem)
        best = most_worth(columns, normalized_worth(columns))
        return allocation(problem, best.shares, best.value)
