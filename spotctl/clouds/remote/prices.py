"""`PriceLookup`: where a cloud's provider gets the prices of its markets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pricing_data.market import Market

if TYPE_CHECKING:
    from pricing_data.list_prices import ListPrices
    from pricing_data.series import PriceSeries


class PriceLookup(Protocol):
    """The markets of a cloud and what they cost, from what is stored and what the cloud says."""

    def markets(self, cloud: str) -> tuple[Market, ...]:
        """The markets of a cloud whose prices are known."""
        ...

    def lists(self) -> ListPrices:
        """The prices of disks and addresses."""
        ...

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        """A market's prices on [start, end]. NotFound: they are not known for all of this time."""
        ...
