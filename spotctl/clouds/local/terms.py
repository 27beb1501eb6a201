"""How the local market bills and evicts: it replays prices of the years in which bids mattered."""

from __future__ import annotations

from bidbrain.billing.rules import HourlyRefund
from bidbrain.billing.terms import CloudTerms

TERMS = CloudTerms(HourlyRefund(), capacity_since=None)
