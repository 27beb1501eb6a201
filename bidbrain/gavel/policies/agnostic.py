"""Any policy without heterogeneity-awareness, as the baseline: it believes that all workers are alike."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.gavel.policies.base import Policy, Warm, allocation
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterAllocation, ClusterJobs, FloatArray, Pairs
from bidbrain.gavel.shares import equal_throughput, nowhere, runnable, runnable_pairs


@dataclass(frozen=True, slots=True)
class Agnostic:
    """A policy over one type of workers, the mean of all; a job's time then falls on the types as workers do.

    What a job cannot run on is lost to it: the baseline does not know better.
    """

    policy: Policy

    def allocate(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is what the policy believes; throughputs and costs are what comes of it."""
        workers = problem.cluster.workers
        total = workers.sum()
        part = workers / total if total > 0 else np.zeros(len(workers))
        alike = _alike(problem, part)
        believed = self.policy.allocate(alike, warm)
        can = np.concatenate([runnable(problem), runnable_pairs(problem)])
        stuck = nowhere(alike)
        said = tuple(line for line in believed.infeasible if line not in stuck)
        found = allocation(problem, believed.shares * part * can, believed.objective, said, believed.notes)
        hours = None if believed.hours is None else believed.hours * part
        return replace(found, hours=hours, cost_usd=believed.cost_usd)


def _alike(problem: AllocationProblem, part: FloatArray) -> AllocationProblem:
    cluster, jobs, pairs = problem.cluster, problem.jobs, problem.pairs
    # Without any workers a price is paid by nobody, and still is a price.
    shared = part if part.any() else np.full(len(part), 1 / len(part))
    price = None if cluster.usd_per_hour is None else np.array([cluster.usd_per_hour @ shared])
    blind: ClusterJobs = replace(jobs, throughputs=equal_throughput(problem)[:, None])
    return replace(
        problem,
        cluster=Cluster(("any",), np.array([cluster.workers.sum()]), price),
        jobs=blind,
        pairs=None if pairs is None else Pairs(pairs.members, _alike_pairs(problem, pairs, part)),
    )


def _alike_pairs(problem: AllocationProblem, pairs: Pairs, part: FloatArray) -> FloatArray:
    usable = np.where(runnable_pairs(problem)[:, :, None], pairs.throughputs, 0.0)
    return np.asarray(np.einsum("pji,j->pi", usable, part)[:, None])
