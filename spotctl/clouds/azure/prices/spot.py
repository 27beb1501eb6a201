"""Resource Graph's `SpotResources` table: the queries, and the parsers of its rows."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from pricing_data.availability import Interruption
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import PriceEvent
from pricing_data.market import Market
from pricing_data.units import DAY, parse_time, parse_usd
from spotctl.clouds.azure.machine_types import spelled
from spotctl.clouds.azure.prices.records import listed, number, text
from spotctl.clouds.errors import ApiRecord

SOURCE = "azure-resource-graph"
HISTORY = 90 * DAY
"""How far back the table's prices go."""

_PRICES = "microsoft.compute/skuspotpricehistory/ostype/location"
_EVICTIONS = "microsoft.compute/skuspotevictionrate/location"
_BAND = re.compile(r"(\d+)(?:-(\d+)|\+)")


def price_history_query(region: str) -> str:
    """All prices of a region's spot markets in the last 90 days, one row per size and operating system."""
    return _rows(_PRICES, region, "osType = tostring(properties.osType), spotPrices = properties.spotPrices")


def eviction_rates_query(region: str) -> str:
    """The eviction rate of each size in a region over the last four weeks."""
    return _rows(_EVICTIONS, region, "evictionRate = tostring(properties.evictionRate)")


def regions_query() -> str:
    """The regions that have spot markets."""
    return f"SpotResources | where type =~ '{_EVICTIONS}' | distinct location | order by location asc"


def _rows(kind: str, region: str, columns: str) -> str:
    # Without a total order, which only `id` gives, paging repeats and loses rows.
    return (
        f"SpotResources | where type =~ '{kind}' | where location =~ '{region}'"
        f" | project id, location, skuName = tostring(sku.name), {columns} | order by id asc"
    )


class PricePoint(NamedTuple):
    """A price and when it took effect."""

    time: int
    price: int


def read_market(row: ApiRecord) -> Market:
    """The market of a row of price history."""
    return Market.of("azure", text(row, "location"), None, spelled(text(row, "skuName")), text(row, "osType"))


def read_history(row: ApiRecord) -> tuple[Market, list[Any]]:
    """A row of price history: its market, and the entries that `read_point` reads."""
    return read_market(row), listed(row, "spotPrices")


def read_point(entry: ApiRecord) -> PricePoint:
    """One entry of a market's `spotPrices`."""
    return PricePoint(parse_time(text(entry, "effectiveDate")), parse_usd(number(entry, "priceUSD")))


def events_between(market: Market, points: Iterable[PricePoint], start: int, until: int) -> list[PriceEvent]:
    """A market's price changes from `start` to `until`.

    They begin with the change that set the price in force at `start`, at its own, earlier time.
    """
    known = sorted(point for point in points if point.time <= until)
    if not known:
        return []
    before = sum(point.time <= start for point in known)
    kept = known[max(before - 1, 0) :]
    return [PriceEvent(market, *point) for point in kept]


def read_eviction_rate(row: ApiRecord, as_of: int) -> Interruption:
    """The eviction rate of a row: a band such as `5-10` or `20+`, in percent of machines per hour.

    Azure publishes it per size, not per operating system; it is stored for the Linux market.
    """
    market = Market.of("azure", text(row, "location"), None, spelled(text(row, "skuName")))
    band = text(row, "evictionRate")
    matched = _BAND.fullmatch(band)
    if not matched:
        raise BadInput(f"{market}: eviction rate {band!r} is not a band such as 5-10 or 20+")
    low, high = int(matched[1]), int(matched[2] or 100)
    return Interruption(market, "eviction-rate", as_of, low / 100, high / 100, SOURCE)
