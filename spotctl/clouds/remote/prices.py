"""`PriceBook`: where a cloud's provider gets the prices of its markets."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil
from typing import TYPE_CHECKING

from pricing_data import list_prices as listed
from pricing_data.errors import PricingDataError, UnknownPrice
from pricing_data.market import Market
from pricing_data.units import NANOS_PER_DOLLAR, format_time
from spotctl.clouds.errors import NotFound
from spotctl.clouds.provider import Holdings

if TYPE_CHECKING:
    from pricing_data.library import Library
    from pricing_data.list_prices import ListPrices
    from pricing_data.market import Market
    from pricing_data.series import PriceSeries


READ_AGAIN_SECONDS = 60.0
"""How long prices are used before they are read again: another process may have stored newer
ones."""


class PriceBook:
    """Stored prices of clouds. The last known price of a market is in force until another one is
    stored.
    """

    def __init__(
        self,
        library: Callable[[], Library],
        now: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library, self._now, self._monotonic = library, now, monotonic
        self._known: dict[Market, tuple[float, PriceSeries]] = {}
        self._lists: tuple[float, ListPrices | None] = 0.0, None

    def markets(self, cloud: str) -> tuple[Market, ...]:
        """The markets of a cloud whose prices are known."""
        from pricing_data.library import Selection

        return tuple(self._library().select(Selection(clouds=(cloud,))))

    def lists(self) -> ListPrices:
        """The prices of disks and addresses."""
        now, (read_at, lists) = self._monotonic(), self._lists
        if lists is None or now - read_at > READ_AGAIN_SECONDS:
            lists = self._library().catalog.lists
            self._lists = now, lists
        return lists

    def prices(self, market: Market, start: int, end: int, assumed: int = 0) -> PriceSeries:
        """A market's prices on [start, end]. NotFound: they are not known for all of this time. The
        first one that was seen stands for as long before it as is `assumed`."""
        if end > (now := self._now()):
            problem = (
                f"{market}: its price at {format_time(end)} is not yet known at {format_time(now)}"
            )
            raise NotFound(problem)

        read_at, series = self._known.get(market, (0.0, None))
        if series is None or self._monotonic() - read_at > READ_AGAIN_SECONDS:
            try:
                series = self._library().series(market)
                self._known[market] = self._monotonic(), series
            except PricingDataError as error:
                # If the store cannot be read now, the last known price holds.
                if series is None:
                    unknown = f"{market}: no price is stored"
                    raise NotFound(f"{unknown}; fetch one (spotctl prices fetch)") from error

        if series.first - assumed <= start < series.first:
            series = series.held_from(start)
        if start < series.first:
            cure = "fetch or import earlier ones (spotctl prices fetch)"
            problem = (
                f"{market}: its stored prices begin at {format_time(series.first)}, after "
                f"{format_time(start)}; {cure}"
            )
            raise NotFound(problem)

        return series.held_until(end).window(start, end)

    def on_demand(self, market: Market) -> int:
        """The newest on-demand price, in nano-dollars per hour. NotFound: none is known."""
        try:
            return self._library().catalog.on_demand(market).price
        except PricingDataError as error:
            raise NotFound(str(error)) from error


def holdings_of(
    market: Market,
    lists: ListPrices,
    disk: str,
    gib: int,
    *,
    spot: bool,
    public_ip: bool,
    usual: str = "",
) -> Holdings:
    """The newest list prices of a machine's disk, of the kind that its cloud calls `disk`, and of
    its address.

    If the list lacks that kind, the price of the `usual` kind is used.
    """
    cloud, region = market.cloud, market.region
    try:
        price = listed.disk(cloud, region, disk, gib, lists=lists)
    except UnknownPrice:
        if not usual:
            raise
        price = listed.disk(cloud, region, usual, gib, lists=lists)

    held = (
        listed.address(cloud, region, "spot" if spot else "on-demand", lists=lists)
        if public_ip
        else 0.0
    )

    return Holdings(ceil(price * NANOS_PER_DOLLAR), ceil(held * NANOS_PER_DOLLAR))
