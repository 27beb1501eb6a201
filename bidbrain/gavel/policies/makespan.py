"""`makespan`: finishes a batch of jobs as early as possible (section 5.4.2)."""

from dataclasses import dataclass

from bidbrain.gavel.policies.base import Warm, allocation, require_steps
from bidbrain.gavel.policies.interior import ROUGH
from bidbrain.gavel.policies.lift import lift_least
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation


@dataclass(frozen=True, slots=True)
class Makespan:
    """Minimizes max_m steps_m / throughput(m, X): the max-min program, with steps as each job's need."""

    def allocate(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the makespan in seconds, over the jobs that run anywhere."""
        require_steps(problem, "makespan")
        lifted = lift_least(problem, problem.jobs.steps, warm, gap=ROUGH)
        return allocation(problem, lifted.shares, 1 / lifted.level if lifted.level > 0 else 0.0)
