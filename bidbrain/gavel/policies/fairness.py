"""Fairness by max-min programs (section 5.4).

`max-min-fairness` shares throughput, `makespan` ends a batch early, and `finish-time-fairness` limits each job's
slowdown.
"""

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.gavel.policies.base import Warm, allocation, require_steps
from bidbrain.gavel.policies.baselines import isolated_shares
from bidbrain.gavel.policies.interior import ROUGH, Lifted
from bidbrain.gavel.policies.lift import lift_least
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation, Pieces, best_throughput, equal_throughput
from bidbrain.lp import SolverFailed

_REACHED, _CONVERGED = 1 - 1e-9, 1 + 1e-10
_MAX_STEPS = 100


def max_min_fairness_policy(problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
    """Maximizes min_m scale_m / w_m throughput(m, X) / throughput(m, X_equal).

    The objective is that minimum, over the jobs that run anywhere.
    """
    jobs = problem.jobs
    lifted = lift_least(problem, jobs.weight * equal_throughput(problem) / jobs.scale, warm, gap=ROUGH)
    return allocation(problem, lifted.shares, lifted.level)


def makespan_policy(problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
    """Minimizes max_m steps_m / throughput(m, X): the max-min program, with steps as each job's need.

    The objective is the makespan in seconds, over the jobs that run anywhere.
    """
    require_steps(problem, "makespan")
    lifted = lift_least(problem, problem.jobs.steps, warm, gap=ROUGH)
    earliest = allocation(problem, lifted.shares, 1 / lifted.level if lifted.level > 0 else 0.0)
    if problem.centered:
        return earliest
    # X from now until each job is done, and that of a pair until the makespan.
    row, kind = np.nonzero(earliest.shares)
    steps, rate = problem.jobs.steps, earliest.effective_throughput
    ends = np.divide(steps, rate, out=np.zeros(len(rate)), where=rate > 0)
    ends = np.append(ends, np.full(len(earliest.shares) - len(rate), earliest.objective))
    pieces = Pieces(row, kind, np.zeros(len(row)), ends[row], earliest.shares[row, kind])
    return replace(earliest, pieces=pieces)


def finish_time_fairness_policy(problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
    """Minimizes max_m rho_m, rho_m = (t_m + steps_m / throughput(m, X)) / (t_isolated_m + steps_m / isolated).

    For a given rho every job needs a certain throughput, and the max-min program decides whether all can have it. If
    not, its prices give a lower bound of the least rho, which is the next candidate (Newton's method, from below).

    The objective is the largest rho, over the jobs that run anywhere.
    """
    require_steps(problem, "finish-time-fairness")
    race = _Race.of(problem)
    if not len(race.jobs):
        return allocation(problem, lift_least(problem, np.zeros(len(problem.jobs.ids)), warm).shares, 0.0)
    rho, exactly = race.least(), replace(problem, centered=False)
    for _ in range(_MAX_STEPS):
        need = race.need(rho, len(problem.jobs.ids))
        lifted = lift_least(exactly, need, warm)
        bound = race.bound(rho, lifted)
        if lifted.level >= _REACHED or bound <= rho * _CONVERGED:
            lifted = lift_least(problem, need, warm, gap=ROUGH) if problem.centered else lifted
            return allocation(problem, lifted.shares, rho)
        rho = bound
    raise SolverFailed(f"finish-time fairness did not converge beyond {rho:g}: check the spread of steps and times")


@dataclass(frozen=True, slots=True)
class _Race:
    """The jobs with steps left that run somewhere: steps, elapsed time, time under a 1/n share, least time left."""

    jobs: Ints
    steps: Floats
    elapsed: Floats
    isolated: Floats
    soonest: Floats

    @classmethod
    def of(cls, problem: AllocationProblem) -> "_Race":
        best, jobs = best_throughput(problem), problem.jobs
        runs = np.flatnonzero((best > 0) & (jobs.steps > 0))
        alone = (jobs.throughputs * isolated_shares(problem)).sum(axis=1)[runs]
        steps, elapsed = jobs.steps[runs], jobs.elapsed_seconds[runs]
        past = elapsed if jobs.isolated_seconds is None else jobs.isolated_seconds[runs]
        return cls(runs, steps, elapsed, past + steps / alone, steps / best[runs])

    def least(self) -> float:
        """A lower bound: the largest rho of any job that has the cluster to itself."""
        return float(((self.elapsed + self.soonest) / self.isolated).max())

    def need(self, rho: float, count: int) -> Floats:
        """The throughput at which each job's own rho has this value."""
        need = np.zeros(count)
        need[self.jobs] = self.steps / (rho * self.isolated - self.elapsed)
        return need

    def bound(self, rho: float, lifted: Lifted) -> float:
        """The rho at which the need, at the solution's prices, equals the supply: a lower bound of the least rho."""
        prices = lifted.prices[self.jobs]
        for _ in range(_MAX_STEPS):
            left = rho * self.isolated - self.elapsed
            need = prices * self.steps / left
            slope = (need * self.isolated / left).sum()
            step = (need.sum() - lifted.level) / slope
            rho += step
            if step <= 1e-14 * rho:
                break
        return rho
