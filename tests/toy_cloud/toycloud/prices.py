"""Where the prices of the toy cloud come from: a public list, for which no account is needed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from pricing_data.catalog import OnDemandPrice
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import LINUX
from pricing_data.sources.base import Effort, FetchRequest, FetchTask, SourceNeeds
from pricing_data.units import Span
from toycloud.price_list import CLOUD, MARKETS, SOURCE, TYPES, ZONES, history

if TYPE_CHECKING:
    from spotctl.home.config import Settings

SPOT_PRICES, LIST_PRICES = "spot prices", "list prices"
NEEDS = (SourceNeeds(CLOUD, "spot and on-demand prices", "", "public price list"),)
EFFORTS = {SPOT_PRICES: Effort(1, 10, 0.001, is_daily=True), LIST_PRICES: Effort(1, 10, 0.001)}


class ToySource:
    """See `Source`: two tasks for each region."""

    cloud = CLOUD

    def tasks(self, request: FetchRequest) -> list[FetchTask]:
        return [
            FetchTask(
                CLOUD, region, what, partial(pull, region, request), spot_prices=what == SPOT_PRICES
            )
            for region in request.regions or ZONES
            for what, pull in ((SPOT_PRICES, self._spot_prices), (LIST_PRICES, self._list_prices))
        ]

    def _spot_prices(self, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        key = request.history(CLOUD, region)
        span = Span(request.start_of(key), request.until)
        series = (
            history(market, span.start, span.end)
            for market in MARKETS
            if market.region == region and request.wants_type(market.instance_type)
        )
        events = (
            PriceEvent(prices.market, time, price)
            for prices in series
            for time, price in zip(prices.times.tolist(), prices.prices.tolist(), strict=True)
        )
        yield FetchedRows(prices=PriceBatch.of(events), covered={key: span})

    def _list_prices(self, region: str, request: FetchRequest) -> Iterator[FetchedRows]:
        listed = [entry for entry in TYPES if request.wants_type(entry.hardware.name)]
        yield FetchedRows(
            types=tuple(entry.hardware for entry in listed),
            on_demand=tuple(
                OnDemandPrice(
                    CLOUD, region, entry.hardware.name, LINUX, request.until, entry.price, SOURCE
                )
                for entry in listed
            ),
        )


def source(_: Settings) -> ToySource:
    """See `PricesPart`."""
    return ToySource()
