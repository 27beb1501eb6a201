"""How current the stored prices of each cloud are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pricing_data.units import DAY

if TYPE_CHECKING:
    from pricing_data.library import Library
    from pricing_data.market import Market
    from pricing_data.store.table import PriceTable

STALE = 7 * DAY
"""Spot prices change daily; older ones say little about today's."""


@dataclass(frozen=True, slots=True)
class CloudPrices:
    """The moment of a cloud's newest stored price; None if no price is stored."""

    cloud: str
    newest: int | None

    def state(self, now: int) -> Literal["missing", "old", "fresh"]:
        """Whether the prices are of use."""
        if self.newest is None:
            return "missing"
        return "old" if now - self.newest > STALE else "fresh"


def outdated(clouds: Iterable[CloudPrices], now: int) -> list[CloudPrices]:
    """The clouds whose prices are missing or old."""
    return [prices for prices in clouds if prices.state(now) != "fresh"]


def freshness_of(table: PriceTable, clouds: Iterable[str]) -> list[CloudPrices]:
    """How current the prices of a table are, for each of these clouds."""
    newest: dict[str, int] = {}
    for market, end in zip(table.markets, table.starts[1:].tolist(), strict=True):
        newest[market.cloud] = max(int(table.times[end - 1]), newest.get(market.cloud, 0))
    return [CloudPrices(cloud, newest.get(cloud)) for cloud in clouds]


def freshness_of_stored(library: Library, markets: Iterable[Market]) -> list[CloudPrices]:
    """How current the prices of these markets are, for each of their clouds; synthetic ones have no age."""
    newest: dict[str, int] = {}
    for stats in library.statistics(market for market in markets if not market.is_synthetic):
        newest[stats.market.cloud] = max(stats.last, newest.get(stats.market.cloud, 0))
    return [CloudPrices(cloud, moment) for cloud, moment in newest.items()]
