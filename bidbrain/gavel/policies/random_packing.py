"""`random-packing`: puts jobs on workers at random, and two on one where there are too few (after Gandiva)."""

from dataclasses import dataclass

import numpy as np

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.policies.base import Warm, with_least_throughput
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.shares import performing, rows_of, runnable

_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class RandomPacking:
    """The mean of many random rounds, drawn from the seed; it ignores speeds and waiting times.

    In a round jobs come in random order. Each takes a random type that it fits on; if none is free, it joins a random
    job that it can share workers with; if there is none, it waits.
    """

    seed: int = 0

    def allocate(self, problem: AllocationProblem, _warm: Warm | None = None, /) -> ClusterAllocation:
        """The objective is the least weighted normalized throughput, as in max-min fairness."""
        rng = np.random.default_rng(self.seed)
        shares = np.zeros((rows_of(problem), len(problem.cluster.types)))
        round_ = _Round(problem)
        for _ in range(_ROUNDS):
            round_.draw(rng, shares)
        return with_least_throughput(problem, shares / _ROUNDS)


class _Round:
    """The constants of all rounds: where jobs fit, and which jobs they can join."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._jobs, self._workers = len(problem.jobs.ids), problem.cluster.workers
        self._scale, self._can = problem.jobs.scale, runnable(problem)
        self._partners: dict[tuple[int, int], list[tuple[int, int]]] = {}
        if problem.pairs is None:
            return
        members = problem.pairs.members.tolist()
        for pair, kind in np.argwhere(performing(problem)).tolist():
            for job, partner in (members[pair], members[pair][::-1]):
                self._partners.setdefault((job, kind), []).append((partner, pair))

    def draw(self, rng: np.random.Generator, shares: FloatArray) -> None:
        """Adds one round to the shares."""
        free, alone = self._workers.copy(), np.full(self._jobs, -1)
        for m in rng.permutation(self._jobs).tolist():
            fitting = np.flatnonzero(self._can[m] & (free >= self._scale[m]))
            if len(fitting):
                alone[m] = rng.choice(fitting)
                free[alone[m]] -= self._scale[m]
                continue
            joins = [
                (other, pair, kind)
                for kind in range(len(free))
                for other, pair in self._partners.get((m, kind), [])
                if alone[other] == kind
            ]
            if joins:
                other, pair, kind = joins[rng.integers(len(joins))]
                alone[other] = -1
                shares[self._jobs + pair, kind] += 1.0
        placed = np.flatnonzero(alone >= 0)
        shares[placed, alone[placed]] += 1.0
