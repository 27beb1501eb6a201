"""`fixed-bid`: as `proteus`, but always at one distance above the price."""

from __future__ import annotations

from collections.abc import Mapping

from bidbrain.strategies.base import Offer
from bidbrain.strategies.odds import Odds
from bidbrain.strategies.proteus import Application, Proteus
from pricing_data.market import Market
from pricing_data.units import format_usd


def fixed_bid(offers: tuple[Offer, ...], odds: Mapping[Market, Odds], application: Application, delta: int) -> Proteus:
    """Chooses market, count and renewals by cost per work, and never the bid."""
    return Proteus(offers, odds, application, deltas=(delta,), name=f"fixed-bid:{format_usd(delta)}")
