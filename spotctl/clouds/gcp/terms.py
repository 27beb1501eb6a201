"""How Google Cloud bills spot machines and takes them back."""

from __future__ import annotations

from bidbrain.billing.rules import CloudTerms, PerSecond
from pricing_data.units import MINUTE, parse_time

TERMS = CloudTerms(
    PerSecond("gcp", free_until=MINUTE),
    # Until then, Google sold its spare capacity as preemptible machines.
    aged_until=parse_time("2022-01-01"),
    longest_hours=24.0,
)
