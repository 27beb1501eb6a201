"""Resource Graph's `SpotResources` table: the questions put to it, and what its rows say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from pricing_data.errors import BadInput
from pricing_data.fetched_rows import PriceEvent
from pricing_data.interruptions import Interruption
from pricing_data.market import Market
from pricing_data.sources.azure.records import Record, listed, number, text
from pricing_data.sources.azure.sizes import spelt
from pricing_data.units import DAY, parse_time, parse_usd

SOURCE = "azure-resource-graph"
HISTORY = 90 * DAY
"""How far back the table's prices reach; what was asked for before that will never come."""

_PRICES = "microsoft.compute/skuspotpricehistory/ostype/location"
_EVICTIONS = "microsoft.compute/skuspotevictionrate/location"
_BAND = re.compile(r"(\d+)(?:-(\d+)|\+)")


def price_history_query(region: str) -> str:
    """Every price of the last 90 days of a region's spot markets, one row per size and operating system."""
    return _rows(_PRICES, region, "osType = tostring(properties.osType), spotPrices = properties.spotPrices")


def eviction_rates_query(region: str) -> str:
    """How often each size was evicted in a region over the last four weeks."""
    return _rows(_EVICTIONS, region, "evictionRate = tostring(properties.evictionRate)")


def regions_query() -> str:
    """The regions that have spot markets."""
    return f"SpotResources | where type =~ '{_EVICTIONS}' | distinct location | order by location asc"


def _rows(kind: str, region: str, columns: str) -> str:
    # Paging repeats and loses rows unless their order is total, which only `id` makes it.
    return (
        f"SpotResources | where type =~ '{kind}' | where location =~ '{region}'"
        f" | project id, location, skuName = tostring(sku.name), {columns} | order by id asc"
    )


class Point(NamedTuple):
    """A price and when it took effect."""

    time: int
    price: int


def read_market(row: Record) -> Market:
    """The market of a row of price history."""
    return Market.of("azure", text(row, "location"), None, spelt(text(row, "skuName")), text(row, "osType"))


def read_history(row: Record) -> tuple[Market, list[Any]]:
    """A row of price history: its market, and the entries that `read_point` reads."""
    return read_market(row), listed(row, "spotPrices")


def read_point(entry: Record) -> Point:
    """One entry of a market's `spotPrices`."""
    return Point(parse_time(text(entry, "effectiveDate")), parse_usd(number(entry, "priceUSD")))


def events_between(market: Market, points: Iterable[Point], start: int, until: int) -> list[PriceEvent]:
    """A market's changes from the price in force at `start` on, and its last price observed again at `until`.

    The change that set the price in force at `start` keeps its own time, earlier than `start`.
    """
    known = sorted(point for point in points if point.time <= until)
    if not known:
        return []
    before = sum(point.time <= start for point in known)
    kept = known[max(before - 1, 0) :]
    return [PriceEvent(market, *point) for point in (*kept, Point(until, kept[-1].price))]


def read_eviction_rate(row: Record, as_of: int) -> Interruption:
    """The band of a row such as `5-10` or `20+`: percent of machines evicted per hour.

    It is published per size, not per operating system, and stands at the Linux market.
    """
    market = Market.of("azure", text(row, "location"), None, spelt(text(row, "skuName")))
    band = text(row, "evictionRate")
    matched = _BAND.fullmatch(band)
    if not matched:
        raise BadInput(f"{market}: eviction rate {band!r} is not a band such as 5-10 or 20+")
    low, high = int(matched[1]), int(matched[2] or 100)
    return Interruption(market, "eviction-rate", as_of, low / 100, high / 100, SOURCE)
