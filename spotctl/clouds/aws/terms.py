"""How AWS bills spot machines and takes them back."""

from __future__ import annotations

from bidbrain.billing.rules import FIRST_HOUR_FREE, CloudTerms
from pricing_data.units import parse_time

# AWS announced on this day that the price moves smoothly, and that machines are interrupted for
# capacity.
TERMS = CloudTerms(FIRST_HOUR_FREE, capacity_since=parse_time("2017-11-28"))
