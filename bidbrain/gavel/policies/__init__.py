"""Scheduling policies by name; `POLICIES[name]()` makes one. All share one input and one output type."""

from collections.abc import Callable

from bidbrain.gavel.policies.allox import AlloX
from bidbrain.gavel.policies.base import Policy, UnknownPolicy, Warm
from bidbrain.gavel.policies.baselines import Agnostic, Isolated, Proportional, RandomPacking
from bidbrain.gavel.policies.fairness import FinishTimeFairness, Makespan, MaxMinFairness
from bidbrain.gavel.policies.hierarchical import Hierarchical
from bidbrain.gavel.policies.linear import Fifo, MakespanWithinBudget, MaxThroughput, MinCost, ShortestJobFirst
from bidbrain.gavel.policies.min_cost_slo import MinCostSlo

POLICIES: dict[str, Callable[[], Policy]] = {
    "max-min-fairness": MaxMinFairness,
    "makespan": Makespan,
    "finish-time-fairness": FinishTimeFairness,
    "fifo": Fifo,
    "shortest-job-first": ShortestJobFirst,
    "max-throughput": MaxThroughput,
    "min-cost": MinCost,
    "min-cost-slo": MinCostSlo,
    "makespan-within-budget": MakespanWithinBudget,
    "hierarchical": Hierarchical,
    "isolated": Isolated,
    "proportional": Proportional,
    "allox": AlloX,
    "random-packing": RandomPacking,
}


def policy_named(name: str, *, agnostic: bool = False) -> Policy:
    """The policy with this name, or its heterogeneity-agnostic form."""
    if name not in POLICIES:
        raise UnknownPolicy(f"policy {name!r} is unknown (known: {', '.join(POLICIES)})")
    policy = POLICIES[name]()
    return Agnostic(policy) if agnostic else policy


__all__ = ["POLICIES", "Agnostic", "Policy", "UnknownPolicy", "Warm", "policy_named"]
