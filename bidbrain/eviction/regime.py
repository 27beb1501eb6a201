"""How machines of a market are evicted at a moment, also where no eviction was recorded.

Where clouds take machines back whatever the price, "no record of an eviction" does not mean "no eviction": a prior
stands in for the record, wide enough for markets that evict once a month and for those that evict several times a day.
Machines of the local market, and AWS's until it stopped deciding by bids, are evicted by the price alone.
"""

from dataclasses import replace
from math import inf

from bidbrain.eviction.hazard import UNRECORDED, Hazard, RateEvidence
from pricing_data.market import Market
from pricing_data.units import parse_time

PRIOR = Hazard((RateEvidence("a prior, as no eviction rate is recorded", UNRECORDED, "prior"),))
"""0.05 per machine-hour, with a 95% interval from almost none to 0.25."""

# AWS announced on this day that the price moves smoothly, and that machines are interrupted for capacity.
_AWS_WITHOUT_BIDS = parse_time("2017-11-28")
# Until then, GCP sold its spare capacity as preemptible machines, which end after 24 hours.
_GCP_SPOT = parse_time("2022-01-01")
_PREEMPTIBLE_HOURS = 24.0


def in_force(market: Market, hazard: Hazard | None, at: int) -> Hazard | None:
    """The hazard of a market's machines at a moment; None where only the price evicts."""
    known = PRIOR if hazard is None and capacity_evicts(market.cloud, at) else hazard
    return None if known is None else replace(known, longest_life=min(known.longest_life, life_limit(market.cloud, at)))


def capacity_evicts(cloud: str, at: int) -> bool:
    """Whether a cloud takes machines back at any bid."""
    return cloud in ("gcp", "azure") or (cloud == "aws" and at >= _AWS_WITHOUT_BIDS)


def life_limit(cloud: str, at: int) -> float:
    """The age in hours at which a cloud ends every spot machine; infinite if it has no such rule."""
    return _PREEMPTIBLE_HOURS if cloud == "gcp" and at < _GCP_SPOT else inf
