"""`max-min-fairness`: least attained service over throughputs instead of time (section 5.4.1)."""

from dataclasses import dataclass

from bidbrain.gavel.policies.base import Warm, allocation
from bidbrain.gavel.policies.interior import ROUGH
from bidbrain.gavel.policies.lift import lift_least
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.shares import equal_throughput


@dataclass(frozen=True, slots=True)
class MaxMinFairness:
    """Maximizes min_m scale_m / w_m throughput(m, X) / throughput(m, X_equal)."""

    def allocate(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is that minimum, over the jobs that run anywhere."""
        jobs = problem.jobs
        lifted = lift_least(problem, jobs.weight * equal_throughput(problem) / jobs.scale, warm, gap=ROUGH)
        return allocation(problem, lifted.shares, lifted.level)
