"""`fixed-bid`: like `proteus`, but always bids the same amount above the price."""

from collections.abc import Mapping

from bidbrain.strategies.base import REQUEST_VCPUS, Offer
from bidbrain.strategies.odds import Odds
from bidbrain.strategies.proteus import JobCosts, Proteus
from pricing_data.market import Market
from pricing_data.units import format_usd


def fixed_bid(
    offers: tuple[Offer, ...],
    odds: Mapping[Market, Odds],
    application: JobCosts,
    delta: int,
    request_nu: float = REQUEST_VCPUS,
) -> Proteus:
    """Chooses market, count and renewals by cost per work, but never the bid."""
    return Proteus(offers, odds, application, request_nu, (delta,), name=f"fixed-bid:{format_usd(delta)}")
