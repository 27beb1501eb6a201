"""`allox`: least average completion time of single-worker jobs, as a matching of jobs to queue positions."""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.policies.base import Warm, allocation, require_steps
from bidbrain.gavel.problem import AllocationProblem, BadProblem, ClusterAllocation
from bidbrain.gavel.shares import rows_of, runnable

# Stands for "cannot run there" in a matching, which needs finite weights: more than all jobs' durations together.
_CANNOT_RUN_WEIGHT = 1e3


@dataclass(frozen=True, slots=True)
class AlloX:
    """Each worker has a queue. The k-th job from the end delays k jobs: itself and those after it.

    So the sum of completion times is a sum over jobs of k times the job's duration there, and a minimum-weight matching
    of jobs with (type, k) minimizes it. The first job of each queue runs all of the time, all others wait.
    """

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the average completion time in seconds, over the jobs that run anywhere."""
        require_steps(problem, "allox")
        jobs = problem.jobs
        if (wide := np.flatnonzero(jobs.scale > 1)).size:
            name, scale = jobs.ids[wide[0]], jobs.scale[wide[0]]
            raise BadProblem(f"job {name!r}: scale {scale}: allox supports only jobs of one worker; use another policy")
        can = runnable(problem)
        runs = np.flatnonzero(can.any(axis=1))
        shares = np.zeros((rows_of(problem), can.shape[1]))
        if not len(runs):
            return allocation(problem, shares, 0.0)
        duration = np.full(can.shape, np.inf)
        np.divide(jobs.steps[:, None], jobs.throughputs, out=duration, where=can)
        kind, place, total = _matched(duration[runs], problem.cluster.workers.astype(np.int64))
        for m in _first_in_queues(runs, kind, place, jobs.arrival):
            shares[runs[m], kind[m]] = 1.0
        return allocation(problem, shares, total / len(runs))


def _matched(duration: FloatArray, workers: IntArray) -> tuple[IntArray, IntArray, float]:
    """Each job's type and position from the end of a queue, and the sum of completion times."""
    from scipy.optimize import linear_sum_assignment

    count = len(duration)
    # Queues of one type differ in length by at most one: longer ones are never better.
    depth = np.where(workers > 0, -(-count // np.maximum(workers, 1)), 0)
    kind = np.repeat(np.arange(len(workers)), workers * depth)
    place = np.concatenate([np.repeat(np.arange(1, d + 1), w) for w, d in zip(workers, depth, strict=True)])
    finite = np.isfinite(duration)
    never = float(duration[finite].sum()) * _CANNOT_RUN_WEIGHT * count + 1.0
    weight = np.where(finite, duration, never)[:, kind] * place
    job, slot = linear_sum_assignment(weight)
    return kind[slot], place[slot], float(weight[job, slot].sum())


def _first_in_queues(runs: IntArray, kind: IntArray, place: IntArray, arrival: FloatArray) -> list[int]:
    """One job for each queue's front: which of them goes first makes no difference to the sum."""
    first: list[int] = []
    for j in np.unique(kind).tolist():
        of_type = np.flatnonzero(kind == j)
        for k in np.unique(place[of_type]).tolist():
            here = of_type[place[of_type] == k]
            waiting = int(np.count_nonzero(place[of_type] == k + 1))
            ordered = here[np.argsort(arrival[runs[here]], kind="stable")]
            first += ordered[: len(here) - waiting].tolist()
    return first
