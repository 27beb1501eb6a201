"""The age and the source of each price that a plan rests on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pricing_data.market import Market

if TYPE_CHECKING:
    from bidbrain.strategies.base import Rent
    from spotctl.planning.offers import MarketSnapshot

SYNTHETIC, STORED = "synthetic", "stored spot price"


@dataclass(frozen=True, slots=True)
class PriceDate:
    """A price per machine in nano-dollars per hour: the moment when it was last known to hold, and its source."""

    market: Market
    spot: bool
    price: int
    as_of: int
    source: str


def price_dates(rents: Iterable[Rent], snapshot: MarketSnapshot) -> tuple[PriceDate, ...]:
    """The prices of what is rented: the spot price where there is a bid, and the list price of each market."""
    bids: dict[Market, bool] = {}
    for rent in rents:
        bids[rent.offer.market] = bids.get(rent.offer.market, False) or rent.bid is not None
    return tuple(date for market, bid in bids.items() for date in _of_market(market, bid, snapshot))


def _of_market(market: Market, bid: bool, snapshot: MarketSnapshot) -> Iterator[PriceDate]:
    if bid:
        row = snapshot.markets.index(market)
        seen = snapshot.at - int(snapshot.age[row])
        yield PriceDate(market, True, int(snapshot.price[row]), seen, SYNTHETIC if market.is_synthetic else STORED)
    listed = snapshot.catalog.on_demand(market, snapshot.at)
    yield PriceDate(market, False, listed.price, listed.as_of, listed.source)
