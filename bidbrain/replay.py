"""The market replayed: what a price was at a moment, and when a machine that holds a bid is taken away.

The backtest and the local provider ask the same replay, so that what the one foretells the other does. The replay
knows the whole history; who decides is shown only what was known at the moment (`price`, never `evicted_at`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping

import numpy as np

from bidbrain.errors import BidBrainError
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import format_time


class UnknownMarketInReplay(BidBrainError):
    """A market is asked about whose history is not replayed."""


class Tape:
    """One market's history, arranged for two frequent questions: the price now, and when it next exceeds a bid."""

    def __init__(self, series: PriceSeries) -> None:
        self.market = series.market
        self.times: list[int] = series.times.tolist()
        self.prices: list[int] = series.prices.tolist()
        self._highest = _block_maxima(series)

    @property
    def first(self) -> int:
        """Where the history begins."""
        return self.times[0]

    @property
    def last(self) -> int:
        """Where the history ends."""
        return self.times[-1]

    def index(self, time: int) -> int:
        """The event that is in force at a time."""
        at = bisect_right(self.times, time) - 1
        if at < 0 or time > self.times[-1]:
            raise BidBrainError(
                f"{self.market} is replayed from {format_time(self.first)} to {format_time(self.last)},"
                f" not at {format_time(time)}; choose a span inside"
            )
        return at

    def price(self, time: int) -> int:
        """The price in force at a time."""
        return self.prices[self.index(time)]

    def first_above(self, bid: int, after: int) -> int | None:
        """The first moment after a time at which the price is strictly above a bid; None if that never comes."""
        at = bisect_right(self.times, after)
        size = len(self.times)
        level, top = 0, len(self._highest)
        # Climb while whole blocks stay at or below the bid, then descend into the first that does not.
        while at < size:
            if self._highest[level][at >> level] > bid:
                if level == 0:
                    return self.times[at]
                level -= 1
                continue
            at = ((at >> level) + 1) << level
            while level + 1 < top and at & ((2 << level) - 1) == 0:
                level += 1
        return None


class MarketReplay:
    """Several markets replayed over a common clock."""

    def __init__(self, histories: Iterable[PriceSeries]) -> None:
        self.tapes: Mapping[Market, Tape] = {series.market: Tape(series) for series in histories}

    def price(self, market: Market, now: int) -> int:
        """What a machine of a market costs per hour at a moment."""
        return self._tape(market).price(now)

    def evicted_at(self, market: Market, bid: int, start: int) -> int | None:
        """When a machine that was granted at `start` under a bid is taken back because the price rises above it."""
        return self._tape(market).first_above(bid, start)

    def _tape(self, market: Market) -> Tape:
        try:
            return self.tapes[market]
        except KeyError:
            raise UnknownMarketInReplay(f"{market} is not replayed; name its price history in the scenario") from None


def _block_maxima(series: PriceSeries) -> list[list[int]]:
    """Level k holds the highest price of each block of 2**k events, from the first on."""
    levels = [series.prices]
    while levels[-1].size > 1:
        below = levels[-1]
        pairs = np.append(below, below[-1:]) if below.size % 2 else below
        levels.append(pairs.reshape(-1, 2).max(axis=1))
    return [level.tolist() for level in levels]
