"""Dispatchers other than Gavel's: first in, first out, and a batch within a budget.

In the queue, as in the published simulator, jobs start in order and run to their end, or also move. Within a budget,
each allocation may use the dollars that are not spent yet.
"""

from dataclasses import replace

import numpy as np

from bidbrain.arrays import Floats, Ints
from bidbrain.gavel.policies.base import Policy, Warm
from bidbrain.gavel.policies.linear import BudgetTooLow
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.rounds import NO_JOB, RoundCandidates
from bidbrain.gavel.simulator.dispatch import ByShares, ClusterState, DispatchRules
from bidbrain.gavel.workload import ClusterSimulation

# Margin on the least cost of the jobs, so that rounding does not make it insufficient.
_MIN_COST_MARGIN = 1 + 1e-6
_MIN_BUDGET = 1e-9


class InOrder:
    """A queue without preemption. The head takes its fastest type with room, or with `rng` a random one.

    Starts are decided as often as others allocate: when jobs came or went, at most once in `allocation_seconds`. With
    `moves` every decision is made for all jobs again (the published `fifo_perf`), so that earlier jobs move to faster
    types that have become free.
    """

    def __init__(
        self, scenario: ClusterSimulation, blind: np.random.Generator | None = None, *, moves: bool = False
    ) -> None:
        self._scenario, self._blind, self._moves = scenario, blind, moves
        self._rates, self._scale = scenario.workload.rates, scenario.workload.scale
        self._type_of: dict[int, int] = {}
        self._since, self._stale = -np.inf, True
        self.allocations, self.patience = 0, np.inf

    def dispatch(self, state: ClusterState) -> RoundCandidates:
        """All started jobs, after starting those that are next."""
        self._stale |= state.changed
        waited = state.now - self._since >= self._scenario.settings.allocation_seconds
        if self._stale and (waited or not self._type_of):
            # As published, the first decision is replaced as soon as a job comes or goes.
            self._since, self._stale = state.now if self.allocations else -np.inf, False
            self.allocations += 1
            self._start(state.active)
        jobs = np.fromiter(self._type_of, np.int64, len(self._type_of))
        types = np.fromiter(self._type_of.values(), np.int64, len(self._type_of))
        return RoundCandidates(jobs, np.full(len(jobs), NO_JOB), types, self._scale[jobs])

    def book_round(self, _seconds: Floats, finished: Ints) -> None:
        """Finished jobs free their workers."""
        for job in finished.tolist():
            del self._type_of[job]

    def _start(self, active: Ints) -> None:
        if self._moves:
            self._type_of.clear()
        free = self._scenario.cluster.workers.copy()
        for job, type_ in self._type_of.items():
            free[type_] -= self._scale[job]
        for job in active.tolist():
            if job in self._type_of:
                continue
            fits = self._scale[job] <= free
            if not fits.any():
                return
            room = np.flatnonzero((self._rates[job] > 0) & fits)
            if not room.size:
                continue
            type_ = int(self._blind.choice(room) if self._blind else room[self._rates[job, room].argmax()])
            self._type_of[job] = type_
            free[type_] -= self._scale[job]


class WithinBudget:
    """Runs a cluster by `makespan-within-budget`; each allocation gets the remaining dollars.

    A round may exceed its part of the plan, by less than the cost of one round of the whole cluster; that amount is
    held back where possible. If later arrivals make the budget insufficient for all jobs, they run at their least cost.
    A budget that is insufficient for the first jobs is refused.
    """

    def __init__(self, scenario: ClusterSimulation, policy: Policy, budget_usd: float) -> None:
        self._policy, self._left = policy, budget_usd
        price = scenario.cluster.usd_per_hour
        self._usd_per_second = np.zeros(len(scenario.cluster.types)) if price is None else price / 3600
        self._kept = float(self._usd_per_second @ scenario.cluster.workers) * scenario.settings.round_seconds
        # Idle workers are intended by this policy, so they stay idle.
        self._shares = ByShares(scenario, self._allocate, DispatchRules(beyond_shares=False))
        self._running: RoundCandidates | None = None

    @property
    def allocations(self) -> int:
        return self._shares.allocations

    @property
    def patience(self) -> float:
        """Seconds after which the dispatcher may reallocate although no job came or went."""
        return self._shares.patience

    def _allocate(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        """The policy's shares within the remaining budget, or at the least cost of all jobs."""
        try:
            return self._policy(replace(problem, budget_usd=max(self._left - self._kept, _MIN_BUDGET)), warm)
        except BudgetTooLow as error:
            usd = error.least_usd * _MIN_COST_MARGIN
            if self._running is None and error.least_usd > self._left:
                usd = self._left
            return self._policy(replace(problem, budget_usd=max(usd, _MIN_BUDGET)), warm)

    def dispatch(self, state: ClusterState) -> RoundCandidates:
        """The candidates that run in the round that begins now."""
        self._running = self._shares.dispatch(state)
        return self._running

    def book_round(self, seconds: Floats, finished: Ints) -> None:
        """Pays for the round."""
        assert self._running is not None
        self._left -= float((seconds * self._running.scale) @ self._usd_per_second[self._running.type])
        self._shares.book_round(seconds, finished)
