"""The heterogeneity-agnostic baseline of any policy: it assumes that all workers are alike."""

from dataclasses import dataclass, replace

import numpy as np

from bidbrain.gavel.arrays import BoolArray, FloatArray
from bidbrain.gavel.policies.base import Policy, Warm, allocation
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterAllocation, ClusterJobs, Pairs, Pieces
from bidbrain.gavel.shares import equal_throughput, nowhere, runnable, runnable_pairs


@dataclass(frozen=True, slots=True)
class Agnostic:
    """A policy over one worker type, the mean of all; each job's time is then spread over the types like the workers.

    Time on types that a job cannot run on is wasted: the baseline does not know better.
    """

    policy: Policy

    def allocate(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the policy's belief; throughputs and costs are the true ones."""
        workers = problem.cluster.workers
        total = workers.sum()
        part = workers / total if total > 0 else np.zeros(len(workers))
        alike = _alike(problem, part)
        believed = self.policy.allocate(alike, warm)
        can = np.concatenate([runnable(problem), runnable_pairs(problem)])
        stuck = nowhere(alike)
        others = tuple(line for line in believed.infeasible if line not in stuck)
        actual = allocation(problem, believed.shares * part * can, believed.objective, others, believed.notes)
        hours = None if believed.hours is None else believed.hours * part * can
        spread = None if believed.pieces is None else _spread(believed.pieces, part, can)
        return replace(actual, hours=hours, cost_usd=believed.cost_usd, pieces=spread, exact=believed.exact)


def _spread(pieces: Pieces, part: FloatArray, can: BoolArray) -> Pieces:
    """Each piece on every type that its row can run on, for the type's part of the time."""
    kinds = [
        replace(pieces, type=0 * pieces.type + kind, share=pieces.share * share * can[pieces.row, kind])
        for kind, share in enumerate(part)
    ]
    return Pieces.joined(kinds)


def _alike(problem: AllocationProblem, part: FloatArray) -> AllocationProblem:
    cluster, jobs, pairs = problem.cluster, problem.jobs, problem.pairs
    # Without any workers nothing is bought, but the mean price must still be positive.
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
