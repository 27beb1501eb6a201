"""What holds in a cloud's market by default: how it bills, and what changes of machines cost a job in time."""

from __future__ import annotations

from bidbrain.billing import BillingRule, billing_rule
from bidbrain.values import Overheads
from pricing_data.units import MINUTE

_BILLING = {"aws": "per-second-first-hour-free", "gcp": "gcp", "azure": "azure", "local": "hourly-refund"}
"""The synthetic market has prices of the years in which bids mattered, and the rule of those years."""

OVERHEADS = Overheads(startup=5 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
"""Assumed until a run has measured its own."""


def billing_of(cloud: str) -> BillingRule:
    """The rule by which a cloud bills today."""
    return billing_rule(_BILLING[cloud])
