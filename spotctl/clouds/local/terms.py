"""How the local market bills and evicts: it replays prices of the years in which bids mattered."""

from __future__ import annotations

from bidbrain.billing.rules import CloudTerms, HourlyRefund

TERMS = CloudTerms(HourlyRefund(), capacity_since=None)
