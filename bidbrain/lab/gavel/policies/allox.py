"""`allox`: least average completion time of single-worker jobs, as a matching of jobs to queue positions."""

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.lab.gavel.policies.base import Warm, allocation, require_steps
from bidbrain.lab.gavel.problem import NO_TYPE, AllocationProblem, BadProblem, ClusterAllocation
from bidbrain.lab.gavel.shares import rows_of, runnable

# Stands for "cannot run there" in a matching, which needs finite weights: more than all jobs' durations together.
_CANNOT_RUN_WEIGHT = 1e3


def allox_policy(problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
    """Each worker has a queue. The k-th job from the end delays k jobs: itself and those after it.

    So the sum of completion times is a sum over jobs of k times the job's duration there, and a minimum-weight matching
    of jobs with (type, k) minimizes it. The first job of each queue runs all of the time, all others wait.

    The objective is the average completion time in seconds, over the jobs that run anywhere.
    """
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
    begun = np.full(len(can), NO_TYPE) if jobs.begun is None else jobs.begun
    stay = runs[begun[runs] != NO_TYPE]
    shares[stay, begun[stay]] = 1.0
    free = problem.cluster.workers - shares.sum(axis=0)
    waiting = np.setdiff1d(runs, stay)
    first, kind, total = _matched(duration[waiting], free.astype(np.int64), jobs.arrival[waiting])
    shares[waiting[first], kind] = 1.0
    return allocation(problem, shares, (total + float(duration[stay, begun[stay]].sum())) / len(runs))


def _matched(duration: Floats, workers: Ints, arrival: Floats) -> tuple[Ints, Ints, float]:
    """The jobs that come first in their queues, their types, and the sum of completion times."""
    from scipy.optimize import linear_sum_assignment

    count = len(duration)
    # Queues of one type differ in length by at most one: longer ones are never better.
    depth = np.where(workers > 0, -(-count // np.maximum(workers, 1)), 0)
    number = np.repeat(np.arange(len(workers)), workers)
    place, worker = (part.ravel() for part in np.indices((int(depth.max(initial=0)), len(number))))
    usable = place < depth[number[worker]]
    place, worker = place[usable], worker[usable]
    finite = np.isfinite(duration)
    never = float(duration[finite].sum()) * _CANNOT_RUN_WEIGHT * count + 1.0
    order = np.argsort(arrival, kind="stable")
    weight = (np.where(finite, duration, never)[:, number[worker]] * (place + 1))[order]
    job, slot = linear_sum_assignment(weight)
    # The one farthest from the end of each worker's queue.
    last = np.full(len(number), -1)
    np.maximum.at(last, worker[slot], place[slot])
    first = place[slot] == last[worker[slot]]
    return order[job[first]], number[worker[slot[first]]], float(weight[job, slot].sum())
