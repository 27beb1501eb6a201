"""The toy cloud's machine types and prices, for every day in the past and the future. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pricing_data.catalog import InstanceType
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY

CLOUD = "toy"
SOURCE = "https://toy.example/prices"
ZONES = {"shelf1-north": ("shelf1-north-a", "shelf1-north-b"), "shelf2-south": ("shelf2-south-a",)}


@dataclass(frozen=True, slots=True)
class ListedType:
    """A machine type, and its list price in nano-dollars per hour."""

    hardware: InstanceType
    price: int


TYPES = (
    ListedType(InstanceType(CLOUD, "block.2", 2, 8.0), 40_000_000),
    ListedType(InstanceType(CLOUD, "block.8", 8, 32.0), 160_000_000),
    ListedType(InstanceType(CLOUD, "robot.8", 8, 64.0, "V100", 1), 900_000_000),
)
MARKETS = {
    Market(CLOUD, region, zone, listed.hardware.name): listed.price
    for region, zones in ZONES.items()
    for zone in zones
    for listed in TYPES
}


def spot_price(market: Market, at: int) -> int:
    """The price on the day of this moment: from 30 to 38 percent of the list price, depending on
    day and place.
    """
    place = list(MARKETS).index(market)
    return MARKETS[market] * (30 + 2 * ((at // DAY + place) % 5)) // 100


def history(market: Market, start: int, end: int) -> PriceSeries:
    """The prices of a market on [start, end], with an event at both ends and at each midnight."""
    midnights = range((start // DAY + 1) * DAY, end, DAY)
    times = [start, *midnights, *([end] if end > start else [])]
    prices = [spot_price(market, at) for at in times]
    return PriceSeries(market, np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))
