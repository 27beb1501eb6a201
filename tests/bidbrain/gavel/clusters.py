"""Small random clusters with jobs, and a slow reference simulator: plain Python, one worker at a
time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.gavel.baselines import Agnostic, Policy
from bidbrain.gavel.problem import AllocationProblem, Cluster, ClusterAllocation, ClusterJobs
from bidbrain.lab.gavel.dispatch import PLAN_ROUNDS, DispatchRules, good_pairs
from bidbrain.lab.gavel.workload import (
    ClusterSimulation,
    ClusterWorkload,
    JobKind,
    Throughputs,
)


def workload(
    rates: Sequence[Sequence[float]],
    steps: Sequence[float],
    scale: Sequence[int] | None = None,
    arrival: Sequence[float] | None = None,
) -> ClusterWorkload:
    """One kind per job, types named by letters, without sharing."""
    jobs, types = len(rates), len(rates[0])
    kinds = tuple(JobKind(f"kind {m}", (scale or [1] * jobs)[m]) for m in range(jobs))
    table = Throughputs(
        tuple("abcdef"[:types]),
        kinds,
        np.array(rates, dtype=float),
        np.zeros((jobs, jobs, types, 2)),
    )
    return ClusterWorkload(
        table,
        tuple(str(m) for m in range(jobs)),
        np.arange(jobs),
        np.array(steps, dtype=float),
        np.array(arrival or [0.0] * jobs),
        np.ones(jobs),
        np.full(jobs, np.inf),
    )


def scenario(
    work: ClusterWorkload,
    workers: Sequence[float],
    *,
    allocation_seconds: float = 1920,
    checkpoint_seconds: float = 0,
) -> ClusterSimulation:
    """All jobs are measured."""
    return ClusterSimulation(
        work,
        Cluster(work.throughputs.types, np.array(workers, dtype=float)),
        range(len(work.names)),
        allocation_seconds=allocation_seconds,
        checkpoint_seconds=checkpoint_seconds,
    )


def random_scenario(seed: int, *, sharing: bool) -> ClusterSimulation:
    """Up to a dozen jobs of few kinds on two or three types; every job fits somewhere."""
    rng = np.random.default_rng(seed)
    types, kinds, jobs = int(rng.integers(1, 4)), int(rng.integers(2, 6)), int(rng.integers(2, 13))
    workers = rng.integers(1, 5, types).astype(float)
    workers[0] = 4.0
    scales = rng.choice([1, 1, 2, 4], kinds)
    alone = rng.uniform(0.2, 5.0, (kinds, types)) * (rng.random((kinds, types)) < 0.8)
    alone[:, 0] = rng.choice([0.3, 1.0, 2.0], kinds)
    together = np.zeros((kinds, kinds, types, 2))
    for a in range(kinds):
        for b in range(kinds):
            if scales[a] == scales[b]:
                together[a, b, :, 0] = alone[a] * rng.uniform(0.3, 1.0)
                together[a, b, :, 1] = alone[b] * rng.uniform(0.3, 1.0)
    names = tuple(JobKind(f"kind {k}", int(scale)) for k, scale in enumerate(scales))
    kind = rng.integers(0, kinds, jobs)
    arrival = np.sort(rng.choice([0.0, 1.0], jobs) * rng.integers(0, 20_000, jobs)).astype(float)
    work = ClusterWorkload(
        Throughputs(tuple("abc"[:types]), names, alone, together),
        tuple(str(m) for m in range(jobs)),
        kind,
        rng.integers(1, 8_000, jobs).astype(float),
        arrival,
        rng.choice([1.0, 2.0], jobs),
        rng.choice([1.5, 4.0, np.inf], jobs),
    )
    first, last = sorted(rng.choice(jobs + 1, 2, replace=False).tolist())
    seconds = (
        float(rng.choice([60, 360])),
        float(rng.choice([0, 360, 1920])),
        float(rng.choice([0, 5])),
    )
    cluster = Cluster(work.throughputs.types, workers, rng.uniform(0.1, 3.0, types))
    return ClusterSimulation(
        work, cluster, range(first, last), *seconds, work.throughputs if sharing else None
    )


@dataclass(frozen=True)
class Whim:
    """Random shares, the same for the same jobs; some jobs have none as long as others have
    some."""

    def __call__(self, problem: AllocationProblem, /) -> ClusterAllocation:
        """The shares neither sum to one nor fit the cluster: the mechanism has to handle that."""
        rows = len(problem.jobs.ids) + (0 if problem.pairs is None else len(problem.pairs.members))
        rng = np.random.default_rng([int(name) for name in problem.jobs.ids])
        shares = rng.choice([0.0, 0.25, 0.5, 1.0, rng.random()], (rows, len(problem.cluster.types)))
        shares[0] = 0.5
        return ClusterAllocation(shares, np.zeros(len(problem.jobs.ids)), 0.0)


@dataclass(frozen=True)
class Fixed:
    """Fixed shares per job, regardless of the other jobs."""

    shares: Mapping[str, Sequence[float]]

    def __call__(self, problem: AllocationProblem, /) -> ClusterAllocation:
        """By the jobs' names."""
        return ClusterAllocation(
            np.array([self.shares[name] for name in problem.jobs.ids]), np.zeros(0), 0.0
        )


@dataclass
class Slow:
    """Results of the slow simulation."""

    finish: dict[int, float] = field(default_factory=dict)
    moves: dict[int, int] = field(default_factory=dict)
    held: dict[tuple[int, int], float] = field(default_factory=dict)
    busy: float = 0.0
    rounds: int = 0
    allocations: int = 0


def play_slowly(asked: ClusterSimulation, policy: Policy, rules: DispatchRules) -> Slow:
    """The mechanism's semantics without arrays: every worker has a name, every round is played."""
    return _Slow(asked, policy, rules).play()


Row = tuple[int, ...]


class _Slow:
    def __init__(self, asked: ClusterSimulation, policy: Policy, rules: DispatchRules) -> None:
        self.asked, self.policy, self.rules = asked, policy, rules
        work = asked.workload
        self.types = range(len(work.throughputs.types))
        self.left = dict(enumerate(work.steps.tolist()))
        self.found = Slow()
        self.now, self.since, self.stale = float(work.arrival[0]), -math.inf, True
        self.waits_from = -math.inf
        self.shuffler = random.Random(5) if isinstance(policy, Agnostic) else None
        self.order = sorted(self.types, key=lambda j: -self._speed(j))
        self.there: list[int] = []
        self.share: dict[tuple[Row, int], float] = {}
        self.time: dict[tuple[Row, int], float] = {}
        self.start: dict[tuple[Row, int], float] = {}
        self.owed = {(m, j): 0.0 for m in self.left for j in self.types}
        self.on: dict[Row, tuple[int, frozenset[int]]] = {}

    def play(self) -> Slow:
        while not all(m in self.found.finish for m in self.asked.measured):
            self._admit()
            chosen = self._chosen()
            if chosen:
                self._round(chosen)
                continue
            arrivals = [a for a in self.asked.workload.arrival.tolist() if a > self.now]
            times = self.asked
            again = (
                [self.now + max(times.allocation_seconds, times.round_seconds)]
                if self.rules.periodic
                else []
            )
            self.now = min([*arrivals[:1], *again])
        return self.found

    def _admit(self) -> None:
        for m, arrival in enumerate(self.asked.workload.arrival.tolist()):
            if arrival <= self.now and m not in self.there and m not in self.found.finish:
                self.there.append(m)
                self.stale = True

    def _chosen(self) -> list[tuple[Row, int]]:
        self.stale |= (
            self.rules.periodic and self.now - self.since >= PLAN_ROUNDS * self.asked.round_seconds
        )
        if not self.there:
            return []
        if self.stale and self.now - self.waits_from >= self.asked.allocation_seconds:
            self._allocate()
        chosen = self._greedy()
        if self.stale and not chosen:
            self._allocate()
            chosen = self._greedy()
        return chosen

    def _allocate(self) -> None:
        elapsed = self.now - self.since if self.share else 0.0
        half = self.asked.round_seconds / 2
        for (row, j), share in self.share.items():
            if len(row) == 1:
                self.owed[row[0], j] += share * elapsed - (self.time[row, j] - self.start[row, j])
        problem = self._problem()
        shares = self.policy(problem).shares
        rows: list[Row] = [(m,) for m in self.there]
        if problem.pairs is not None:
            rows += [tuple(self.there[i] for i in pair) for pair in problem.pairs.members.tolist()]
        self.share = {}
        for i, row in enumerate(rows):
            for j in self.types:
                share = float(shares[i, j]) if shares[i, j] > 1e-9 else 0.0
                if self._runs(row, j) and (share > 0 or self.rules.beyond_shares):
                    self.share[row, j] = share
        self.start = {
            (row, j): max(half - max(self._owed(row, j) - 40 * half, 0), 1e-6 * half)
            for row, j in self.share
        }
        self.time = dict(self.start)
        self.waits_from = self.now if self.found.allocations else -math.inf
        self.since, self.stale = self.now, False
        self.found.allocations += 1

    def _problem(self) -> AllocationProblem:
        work, there = self.asked.workload, np.array(self.there)
        slo = work.slo_factor * work.alone_seconds()
        jobs = ClusterJobs(
            tuple(work.names[m] for m in self.there),
            work.rates[there],
            work.scale[there],
            work.weight[there],
            np.array([self.left[m] for m in self.there]),
            self.now - work.arrival[there],
            slo[there],
            work.arrival[there],
            (None,) * len(there),
        )
        believed = self.asked.believed
        pairs = None if believed is None else good_pairs(believed, work.kind[there])
        return AllocationProblem(self.asked.cluster, jobs, pairs, centered=True)

    def _rates(self, row: Row, j: int) -> list[float]:
        kind, table = self.asked.workload.kind, self.asked.workload.throughputs
        if len(row) == 1:
            return [float(table.alone[kind[row[0]], j])]
        return [float(rate) for rate in table.together[kind[row[0]], kind[row[1]], j]]

    def _scale(self, row: Row) -> int:
        return int(self.asked.workload.scale[row[0]])

    def _runs(self, row: Row, j: int) -> bool:
        return min(self._rates(row, j)) > 0 and self._scale(row) <= self.asked.cluster.workers[j]

    def _owed(self, row: Row, j: int) -> float:
        return self.owed[row[0], j] if len(row) == 1 else 0.0

    def _greedy(self) -> list[tuple[Row, int]]:
        order = list(self.order)
        if self.shuffler is not None and self.rules.beyond_shares:
            self.shuffler.shuffle(order)
        queues = [[j] for j in order] if self.rules.beyond_shares else [list(self.types)]
        chosen: list[tuple[Row, int]] = []
        for kinds in queues:
            here = [(row, j) for row, j in self.share if j in kinds]
            for row, j in sorted(here, key=self._urgency):
                taken = sum(self._scale(other) for other, k in chosen if k == j)
                busy = {m for other, _ in chosen for m in other}
                if (
                    not busy & set(row)
                    and taken + self._scale(row) <= self.asked.cluster.workers[j]
                ):
                    chosen.append((row, j))
        return chosen

    def _urgency(self, place: tuple[Row, int]) -> tuple[float, float]:
        return -self.share[place] / self.time[place], -self._owed(*place)

    def _speed(self, j: int) -> float:
        alone = self.asked.workload.throughputs.alone
        return float(np.mean([row[j] / row.max() for row in alone if row[j] > 0] or [0.0]))

    def _round(self, chosen: list[tuple[Row, int]]) -> None:
        moved = self._seated(chosen)
        length = self.asked.round_seconds
        ends = []
        for row, j in chosen:
            lost = self.asked.checkpoint_seconds
            times = []
            for m, rate in zip(row, self._rates(row, j), strict=True):
                loading = lost if m in moved else 0.0
                steps = min(max(math.floor(rate * (length - loading)), 1), self.left[m])
                self.left[m] -= steps
                times.append(loading + steps / rate)
                if self.left[m] <= 0:
                    self.found.finish[m] = self.now + times[-1]
            for m in row:
                self.found.held[m, j] = self.found.held.get((m, j), 0.0) + max(times) / len(row)
            self.time[row, j] += max(times)
            self.found.busy += max(times) * self._scale(row)
            ends.append(max(times))
        self.now += max(ends)
        self.found.rounds += 1
        for m in [m for m in self.there if m in self.found.finish]:
            self.there.remove(m)
            self.stale = True
            self.share = {place: share for place, share in self.share.items() if m not in place[0]}

    def _seated(self, chosen: list[tuple[Row, int]]) -> set[int]:
        """Assigns named workers to each row, the same ones where it stays; a job on other workers
        has moved.
        """
        free = [set(range(int(count))) for count in self.asked.cluster.workers]
        seats: dict[Row, tuple[int, frozenset[int]]] = {}
        for row, j in chosen:
            if row in self.on and self.on[row][0] == j:
                seats[row] = self.on[row]
                free[j] -= self.on[row][1]
        moved = set()
        for row, j in chosen:
            if row not in seats:
                seats[row] = (j, frozenset(sorted(free[j])[: self._scale(row)]))
                free[j] -= seats[row][1]
                moved |= {m for m in row if m in self.found.moves}
        for m in [m for row, _ in chosen for m in row]:
            self.found.moves[m] = self.found.moves.get(m, 0) + (m in moved)
        self.on = seats
        return moved


def integrated_fairness(
    asked: ClusterSimulation, finish: Floats, end: float, step: float
) -> list[float]:
    """rho of each measured job by walking through time with its share of the cluster."""
    work, workers = asked.workload, asked.cluster.workers
    arrival = work.arrival
    found = []
    for m in asked.measured:
        scale = int(work.scale[m])
        rate = float(np.where(scale <= workers, work.rates[m], 0.0) @ workers) / float(
            workers.sum()
        )
        left, now = float(work.steps[m]), float(arrival[m])
        while left > 0:
            # The middle of the step, or the last state after the end.
            at = min(now + step / 2, end - step / 2)
            there = max(int(((arrival <= at) & (finish > at)).sum()), 1)
            left -= step * rate * min(float(workers.sum()) / (there * scale), 1.0)
            now += step
        found.append((finish[m] - arrival[m]) / (now - arrival[m]))
    return found
