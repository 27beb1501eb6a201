"""Baselines: `isolated` and `proportional` shares of the whole cluster."""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.policies.base import Warm, with_least_throughput
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.shares import rows_of, runnable


@dataclass(frozen=True, slots=True)
class Isolated:
    """`isolated`: every job has 1/n of each type to itself; unused time stays unused (section 5.4.1)."""

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the least normalized throughput, as in max-min fairness."""
        return _of_jobs(problem, isolated_shares(problem))


@dataclass(frozen=True, slots=True)
class Proportional:
    """`proportional`: each job's time is spread over the types like the workers; worker-time is shared by weight."""

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the least normalized throughput, as in max-min fairness."""
        workers, jobs = problem.cluster.workers, problem.jobs
        total = workers.sum()
        if not total > 0:
            return _of_jobs(problem, np.zeros(jobs.throughputs.shape))
        time = _filled(jobs.weight / jobs.scale, jobs.scale.astype(np.float64), total)
        return _of_jobs(problem, time[:, None] * (workers / total) * runnable(problem))


def isolated_shares(problem: AllocationProblem) -> FloatArray:
    """X_isolated of the jobs: 1/n of each type's workers, divided by the workers that a job holds at once."""
    jobs = problem.jobs
    part = problem.cluster.workers / max(1, len(jobs.ids)) / jobs.scale[:, None] * runnable(problem)
    return np.asarray(part / np.maximum(1.0, part.sum(axis=1, keepdims=True)))


def _of_jobs(problem: AllocationProblem, shares: FloatArray) -> ClusterAllocation:
    every = np.zeros((rows_of(problem), shares.shape[1]))
    every[: len(shares)] = shares
    return with_least_throughput(problem, every)


def _filled(rate: FloatArray, scale: FloatArray, total: float) -> FloatArray:
    """min(1, level rate) for the level at which all workers are held, or all jobs run all the time."""
    order = np.argsort(-rate, kind="stable")
    # Jobs with the highest rates are full first: the workers they hold, and what the rest take per unit of level.
    full = np.concatenate([[0.0], np.cumsum(scale[order])[:-1]])
    rest = np.cumsum((scale * rate)[order][::-1])[::-1]
    level = (total - full) / rest
    enough = np.flatnonzero(level * rate[order] <= 1.0)
    reached = level[enough[0]] if len(enough) else np.inf
    return np.asarray(np.minimum(1.0, reached * rate))
