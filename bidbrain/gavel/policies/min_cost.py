"""`min-cost`: most work per dollar, within quotas (section 6.4.2)."""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.policies.base import Warm, allocation, require_prices
from bidbrain.gavel.policies.linear import most_worth, normalized_worth
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.shares import ShareColumns, effective_throughput, scale_of_rows


@dataclass(frozen=True, slots=True)
class MinCost:
    """Maximizes sum_mj (T_mj / c_j) / max_j (T_mj / c_j) X_mj: each job gets time where it is cheapest for it.

    The paper's objective, the sum of throughput over cost, is reported as a note: any X that gives each job a little of
    its cheapest type would maximize it.
    """

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the sum that is maximized; a note has the paper's, in steps per dollar."""
        price = require_prices(problem, "min-cost")
        columns = ShareColumns.of(problem)
        best = most_worth(columns, normalized_worth(columns, price=price))
        per_dollar = _steps_per_dollar(problem, best.shares, price)
        return allocation(problem, best.shares, best.value, notes={"sum_of_steps_per_dollar": per_dollar})


def _steps_per_dollar(problem: AllocationProblem, shares: FloatArray, price: FloatArray) -> float:
    """sum_m throughput(m, X) / cost(m, X) over the jobs that get time; the two jobs of a pair split its cost
    equally."""
    jobs = len(problem.jobs.ids)
    hourly = (scale_of_rows(problem)[:, None] * shares) @ price
    each = hourly[:jobs].copy()
    if problem.pairs is not None:
        np.add.at(each, problem.pairs.members, hourly[jobs:, None] / 2)
    throughput = effective_throughput(problem, shares) * 3600
    return float(np.divide(throughput, each, out=np.zeros(jobs), where=each > 0).sum())
