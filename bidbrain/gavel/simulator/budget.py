"""Runs a batch within a budget: each allocation may use the dollars that are not spent yet."""

from dataclasses import replace

import numpy as np

from bidbrain.gavel.arrays import FloatArray, IntArray
from bidbrain.gavel.policies.base import Policy, Warm
from bidbrain.gavel.policies.budget import BudgetTooLow
from bidbrain.gavel.problem import AllocationProblem, ClusterAllocation
from bidbrain.gavel.rounds import RoundCandidates
from bidbrain.gavel.simulator.dispatch import ByShares, ClusterState, DispatchRules
from bidbrain.gavel.simulator.scenario import ClusterSimulation

# Margin on the least cost of the jobs, so that rounding does not make it insufficient.
_LEAST_COST_MARGIN = 1 + 1e-6
_LEAST_BUDGET = 1e-9


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
        self._shares = ByShares(scenario, self, DispatchRules(beyond_shares=False))
        self._running: RoundCandidates | None = None

    @property
    def allocations(self) -> int:
        return self._shares.allocations

    @property
    def patience(self) -> float:
        """Seconds after which the dispatcher may reallocate although no job came or went."""
        return self._shares.patience

    def allocate(self, problem: AllocationProblem, warm: Warm | None = None, /) -> ClusterAllocation:
        """The policy's shares within the remaining budget, or at the least cost of all jobs."""
        try:
            return self._within(problem, self._left - self._kept, warm)
        except BudgetTooLow as error:
            if self._running is None and error.least_usd > self._left:
                return self._within(problem, self._left, warm)
            return self._within(problem, error.least_usd * _LEAST_COST_MARGIN, warm)

    def _within(self, problem: AllocationProblem, usd: float, warm: Warm | None) -> ClusterAllocation:
        return self._policy.allocate(replace(problem, budget_usd=max(usd, _LEAST_BUDGET)), warm)

    def dispatch(self, state: ClusterState) -> RoundCandidates:
        """The candidates that run in the round that begins now."""
        self._running = self._shares.dispatch(state)
        return self._running

    def book_round(self, seconds: FloatArray, finished: IntArray) -> None:
        """Pays for the round."""
        assert self._running is not None
        self._left -= float((seconds * self._running.scale) @ self._usd_per_second[self._running.type])
        self._shares.book_round(seconds, finished)
