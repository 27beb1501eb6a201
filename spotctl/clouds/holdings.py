"""The prices of a machine's disk and, if it has one, public address, which clouds bill next to the machine."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from pricing_data import list_prices as listed
from pricing_data.errors import UnknownPrice
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.capabilities import Holdings

if TYPE_CHECKING:
    from pricing_data.list_prices import ListPrices
    from pricing_data.market import Market


@dataclass(frozen=True, slots=True)
class HeldDisk:
    """A disk as its cloud names it. If the list lacks this kind, the price of the `usual` kind is used."""

    kind: str
    gib: int
    usual: str


def holdings_of(market: Market, disk: HeldDisk, lists: ListPrices, *, spot: bool, public_ip: bool) -> Holdings:
    """The newest list prices of a machine's disk and address."""
    cloud, region = market.cloud, market.region
    try:
        price = listed.disk(cloud, region, disk.kind, disk.gib, lists=lists)
    except UnknownPrice:
        price = listed.disk(cloud, region, disk.usual, disk.gib, lists=lists)
    held = listed.address(cloud, region, "spot" if spot else "on-demand", lists=lists) if public_ip else 0.0
    return Holdings(_nanos(price), _nanos(held))


def _nanos(usd: float) -> int:
    return ceil(usd * NANOS_PER_DOLLAR)
