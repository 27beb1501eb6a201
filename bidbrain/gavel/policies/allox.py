"""`allox`: least average completion time of jobs on single workers, as a matching of jobs with places in queues."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.policies.base import Warm, allocation, require_steps
from bidbrain.gavel.problem import AllocationProblem, BadProblem, ClusterAllocation, FloatArray, IntArray
from bidbrain.gavel.shares import rows_of, runnable

# Stands for "cannot run there" in a matching, which knows no infinity: more than all that can run there take together.
_NEVER = 1e3


@dataclass(frozen=True, slots=True)
class AlloX:
    """Each worker has a queue. The job that is k-th from its end makes k jobs wait for it: itself, and those after it.

    So the sum of completion times is a sum over jobs of k times the job's duration there, and a matching of jobs with
    (type, k) of least weight has the least sum. Who is first in a queue runs, all of the time, and nobody else.
    """

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the average completion time in seconds, over the jobs that run anywhere."""
        require_steps(problem, "allox")
        jobs = problem.jobs
        if (wide := np.flatnonzero(jobs.scale > 1)).size:
            name, scale = jobs.ids[wide[0]], jobs.scale[wide[0]]
            raise BadProblem(f"job {name!r}: scale {scale}: allox is about jobs of one worker; take another policy")
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
    """Each job's type and place from the end of a queue, and the sum of completion times."""
    from scipy.optimize import linear_sum_assignment

    count = len(duration)
    # Of one type no queue is longer by two than another: places beyond a fair split are never better.
    depth = np.where(workers > 0, -(-count // np.maximum(workers, 1)), 0)
    kind = np.repeat(np.arange(len(workers)), workers * depth)
    place = np.concatenate([np.repeat(np.arange(1, d + 1), w) for w, d in zip(workers, depth, strict=True)])
    finite = np.isfinite(duration)
    never = float(duration[finite].sum()) * _NEVER * count + 1.0
    weight = np.where(finite, duration, never)[:, kind] * place
    job, slot = linear_sum_assignment(weight)
    return kind[slot], place[slot], float(weight[job, slot].sum())


def _first_in_queues(runs: IntArray, kind: IntArray, place: IntArray, arrival: FloatArray) -> list[int]:
    """Of the jobs in one place, those that have nobody before them: which of them is all the same to the sum."""
    first: list[int] = []
    for j in np.unique(kind).tolist():
        of_type = np.flatnonzero(kind == j)
        for k in np.unique(place[of_type]).tolist():
            here = of_type[place[of_type] == k]
            waiting = int(np.count_nonzero(place[of_type] == k + 1))
            ordered = here[np.argsort(arrival[runs[here]], kind="stable")]
            first += ordered[: len(here) - waiting].tolist()
    return first
