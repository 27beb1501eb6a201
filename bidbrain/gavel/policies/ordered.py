"""`fifo` and `shortest-job-first`: jobs in order, each on the fastest type that earlier ones leave (5.4.2)."""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.policies.base import Warm, allocation, require_steps
from bidbrain.gavel.policies.linear import most_worth, normalized_worth
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.shares import ShareColumns, best_throughput


@dataclass(frozen=True, slots=True)
class Fifo:
    """Maximizes sum_m (M - m) throughput(m, X) / throughput(m, X_fastest), m by arrival.

    This is the paper's objective, not a queue: several later jobs together may outweigh an earlier one that holds many
    workers, and displace it.
    """

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """Jobs that arrive together keep the order in which they are given."""
        columns = ShareColumns.of(problem)
        best = most_worth(columns, normalized_worth(columns, weight=_precedence(problem.jobs.arrival)))
        return allocation(problem, best.shares, best.value)


@dataclass(frozen=True, slots=True)
class ShortestJobFirst:
    """Minimizes min_m steps_m / throughput(m, X): the job that can finish first gets its fastest type.

    The paper's objective does not rank the others; they follow as in `fifo`, by their shortest duration.
    """

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the duration of the shortest job in seconds."""
        require_steps(problem, "shortest-job-first")
        best = best_throughput(problem)
        duration = np.full(len(best), np.inf)
        np.divide(problem.jobs.steps, best, out=duration, where=best > 0)
        if not np.isfinite(duration).any():
            return allocation(problem, ShareColumns.of(problem).matrix(np.zeros(0)), 0.0)
        first = int(np.argmin(duration))
        columns = ShareColumns.of(problem)
        fastest = (columns.row == first) & (problem.jobs.throughputs[first, columns.type] >= best[first])
        # Running the first job at once and all of the time outweighs all others together.
        weight = _precedence(duration)
        worth = normalized_worth(columns, weight=weight)
        given = np.zeros(columns.count)
        given[np.flatnonzero(fastest)[:1]] = 1.0
        ordered = most_worth(columns, worth, at_least=given)
        return allocation(problem, ordered.shares, float(duration[first]))


def _precedence(key: FloatArray) -> FloatArray:
    """M for the job with the smallest key, 1 for that with the largest."""
    weight = np.empty(len(key))
    weight[np.argsort(key, kind="stable")] = np.arange(len(key), 0, -1)
    return weight
