"""Stored prices of real clouds: the last known one holds while the store cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from pricing_data.errors import PricingDataError
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR
from spotctl.clouds.errors import NotFound
from spotctl.clouds.remote.prices import READ_AGAIN_SECONDS, PriceBook
from tests.spotctl.run.worlds import MARKETS, PRICES, START

if TYPE_CHECKING:
    from pricing_data.library import Library


class Store:
    is_readable = True

    def series(self, market: Market) -> PriceSeries:
        if not self.is_readable:
            raise PricingDataError("the store cannot be read")
        return PRICES[market]


def test_the_first_price_stands_for_the_time_before_it_as_far_as_that_is_assumed() -> None:
    book = PriceBook(lambda: cast("Library", Store()), lambda: START + HOUR)
    first = PRICES[MARKETS[0]].first
    assumed = book.prices(MARKETS[0], first - HOUR, START + HOUR, assumed=HOUR)
    assert (assumed.first, assumed.price_at(first - 1)) == (first - HOUR, assumed.price_at(first))
    with pytest.raises(NotFound, match="its stored prices begin"):
        book.prices(MARKETS[0], first - HOUR - 1, START + HOUR, assumed=HOUR)


def test_the_last_known_price_holds_while_the_store_cannot_be_read() -> None:
    store, seconds = Store(), [READ_AGAIN_SECONDS + 1.0]
    book = PriceBook(lambda: cast("Library", store), lambda: START + HOUR, lambda: seconds[0])
    known = book.prices(MARKETS[0], START, START + HOUR)
    store.is_readable = False
    seconds[0] += READ_AGAIN_SECONDS + 1.0
    again = book.prices(MARKETS[0], START, START + HOUR)
    assert list(again.prices) == list(known.prices)
