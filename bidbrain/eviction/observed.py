"""Evictions and machine-hours from observed availability; older ones count less."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from bidbrain.eviction.hazard import Evidence
from bidbrain.eviction.survival import Exposure
from pricing_data.availability import AvailabilitySpan
from pricing_data.market import Market
from pricing_data.units import DAY, HOUR

HALF_LIFE: Final = 30 * DAY


def evidence_of_spans(spans: Iterable[AvailabilitySpan], now: int) -> list[Evidence]:
    """The evidence of each market at a moment. Machines that were held together count as one."""
    seen: defaultdict[Market, Exposure] = defaultdict(Exposure)
    for whole in spans:
        span = whole.before(now)
        if span is not None and span.up and span.until > span.since:
            life = Exposure(float(span.ended == "evicted"), (span.until - span.since) / HOUR)
            seen[span.market] += life.scaled(0.5 ** ((now - span.until) / HALF_LIFE))
    return [Evidence(market, exposure) for market, exposure in seen.items()]
