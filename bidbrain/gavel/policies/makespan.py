"""`makespan`: finishes a batch of jobs as early as possible (section 5.4.2)."""

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.gavel.policies.base import Warm, allocation, require_steps
from bidbrain.gavel.policies.interior import ROUGH
from bidbrain.gavel.policies.lift import lift_least
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation, Pieces


@dataclass(frozen=True, slots=True)
class Makespan:
    """Minimizes max_m steps_m / throughput(m, X): the max-min program, with steps as each job's need."""

    def allocate(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the makespan in seconds, over the jobs that run anywhere."""
        require_steps(problem, "makespan")
        lifted = lift_least(problem, problem.jobs.steps, warm, gap=ROUGH)
        earliest = allocation(problem, lifted.shares, 1 / lifted.level if lifted.level > 0 else 0.0)
        return earliest if problem.centered else replace(earliest, pieces=_to_the_end(problem, earliest))


def _to_the_end(problem: AllocationProblem, earliest: ClusterAllocation) -> Pieces:
    """X from now until each job is done, and that of a pair until the makespan."""
    row, kind = np.nonzero(earliest.shares)
    steps, rate = problem.jobs.steps, earliest.effective_throughput
    ends = np.divide(steps, rate, out=np.zeros(len(rate)), where=rate > 0)
    ends = np.append(ends, np.full(len(earliest.shares) - len(rate), earliest.objective))
    return Pieces(row, kind, np.zeros(len(row)), ends[row], earliest.shares[row, kind])
