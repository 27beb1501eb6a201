"""How machines of a market are evicted at a moment, also where no eviction was recorded.

Where clouds take machines back whatever the price, "no record of an eviction" does not mean "no eviction": a prior
stands in for the record, wide enough for markets that evict once a month and for those that evict several times a day.
Machines of the local market, and AWS's until it stopped deciding by bids, are evicted by the price alone.
"""

from dataclasses import replace

from bidbrain.billing.terms import terms_of
from bidbrain.eviction.hazard import UNRECORDED, Hazard, RateEvidence
from pricing_data.market import Market

PRIOR = Hazard((RateEvidence("a prior, because no eviction rate is recorded", UNRECORDED, "prior"),))
"""0.05 per machine-hour, with a 95% interval from almost none to 0.25."""


def in_force(market: Market, hazard: Hazard | None, at: int) -> Hazard | None:
    """The hazard of a market's machines at a moment; None where only the price evicts."""
    terms = terms_of(market.cloud)
    known = PRIOR if hazard is None and terms.capacity_evicts(at) else hazard
    return None if known is None else replace(known, longest_life=min(known.longest_life, terms.life_limit(at)))
