"""How the toy cloud bills spot machines and takes them back: by the second, and only when the price
exceeds the bid.
"""

from __future__ import annotations

from bidbrain.billing.rules import CloudTerms, PerSecond
from pricing_data.units import SECOND

TERMS = CloudTerms(PerSecond("toy", minimum=10 * SECOND), capacity_since=None)
