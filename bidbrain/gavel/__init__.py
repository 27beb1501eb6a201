"""Gavel: which job runs on which machines, and for how long.

The names of policies stand here, as users write them. It imports nothing, so that settings and job
files load quickly.
"""

POLICIES = (
    "max-min-fairness",
    "finish-time-fairness",
    "makespan",
    "shortest-job-first",
    "fifo",
    "min-cost",
    "min-cost-slo",
    "makespan-within-budget",
    "max-throughput",
    "hierarchical",
)
"""The policies that a queue may have, next to its default."""
ENTITY_POLICIES = ("fairness", "fifo")
"""The orders of an owner's jobs under `hierarchical`."""
