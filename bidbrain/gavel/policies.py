"""Scheduling policies by name: functions from a problem to an allocation."""

from bidbrain.gavel.baselines import (
    Agnostic,
    Policy,
    UnknownPolicy,
    allox_policy,
    isolated_policy,
    proportional_policy,
    random_packing_policy,
)
from bidbrain.gavel.fairness import (
    finish_time_fairness_policy,
    makespan_policy,
    max_min_fairness_policy,
)
from bidbrain.gavel.hierarchical import hierarchical_policy
from bidbrain.gavel.linear import (
    fifo_policy,
    makespan_within_budget_policy,
    max_throughput_policy,
    min_cost_policy,
    shortest_job_first_policy,
)
from bidbrain.gavel.min_cost_slo import min_cost_slo_policy

POLICIES: dict[str, Policy] = {
    "max-min-fairness": max_min_fairness_policy,
    "makespan": makespan_policy,
    "finish-time-fairness": finish_time_fairness_policy,
    "fifo": fifo_policy,
    "shortest-job-first": shortest_job_first_policy,
    "max-throughput": max_throughput_policy,
    "min-cost": min_cost_policy,
    "min-cost-slo": min_cost_slo_policy,
    "makespan-within-budget": makespan_within_budget_policy,
    "hierarchical": hierarchical_policy,
    "isolated": isolated_policy,
    "proportional": proportional_policy,
    "allox": allox_policy,
    "random-packing": random_packing_policy,
}


def policy_named(name: str, *, agnostic: bool = False) -> Policy:
    """The policy with this name, or its heterogeneity-agnostic form."""
    if name not in POLICIES:
        raise UnknownPolicy(f"policy {name!r} is unknown (known: {', '.join(POLICIES)})")
    if agnostic:
        return Agnostic(POLICIES[name])
    return POLICIES[name]


__all__ = ["POLICIES", "Agnostic", "Policy", "UnknownPolicy", "policy_named"]
