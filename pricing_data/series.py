"""`PriceSeries`: the price of one market as a step function over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pricing_data.errors import OutsideHistory
from pricing_data.market import Market
from pricing_data.units import SECOND, format_time

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PriceSeries:
    """A right-continuous step function: from `times[i]` on, the market costs `prices[i]`.

    Times are microseconds UTC, strictly increasing; prices are nano-dollars per hour, above 0. The span is closed,
    from the first event to the last: prices outside it were not observed, and asking for them raises
    `OutsideHistory`.
    """

    market: Market
    times: Ints
    prices: Ints

    def __post_init__(self) -> None:
        if self.times.size == 0 or self.times.shape != self.prices.shape:
            raise ValueError(f"{self.market}: a series needs at least one event, and equally many prices and times")
        if self.times.dtype != np.int64 or self.prices.dtype != np.int64:
            raise TypeError(
                f"{self.market}: times and prices must be int64, not {self.times.dtype} and {self.prices.dtype}"
            )
        if np.any(np.diff(self.times) <= 0) or np.any(self.prices <= 0):
            raise ValueError(f"{self.market}: times must increase strictly, and prices must be above 0")
        # Strategies and replays share series; a write would change the market for all of them.
        self.times.setflags(write=False)
        self.prices.setflags(write=False)

    def __len__(self) -> int:
        return int(self.times.size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PriceSeries):
            return NotImplemented
        return (
            self.market == other.market
            and np.array_equal(self.times, other.times)
            and np.array_equal(self.prices, other.prices)
        )

    __hash__ = None  # type: ignore[assignment]  # equal by content, and content is large

    @property
    def first(self) -> int:
        """Time of the first event."""
        return int(self.times[0])

    @property
    def last(self) -> int:
        """Time of the last event, where the span ends."""
        return int(self.times[-1])

    @property
    def changes(self) -> int:
        """The number of price changes; an event that repeats the price is an observation, not a change."""
        return int(np.count_nonzero(np.diff(self.prices)))

    def price_at(self, time: int) -> int:
        """The price in force at a time within the span."""
        self._require(time)
        return int(self.prices[np.searchsorted(self.times, time, side="right") - 1])

    def window(self, start: int, end: int) -> PriceSeries:
        """The same function on [start, end], with an event at each end."""
        self._require(start)
        self._require(end)
        if end < start:
            raise ValueError(f"{self.market}: window ends at {format_time(end)}, before its start {format_time(start)}")
        inside = slice(np.searchsorted(self.times, start, "right"), np.searchsorted(self.times, end, "left"))
        edges = [start] if start == end else [start, end]
        times = np.concatenate((edges[:1], self.times[inside], edges[1:]))
        prices = [self.price_at(edge) for edge in edges]
        return PriceSeries(
            self.market,
            times.astype(np.int64),
            np.concatenate((prices[:1], self.prices[inside], prices[1:])).astype(np.int64),
        )

    def held_until(self, end: int) -> PriceSeries:
        """The same function with the last price still in force until `end`; unchanged if the span is longer."""
        if end <= self.last:
            return self
        return PriceSeries(self.market, np.append(self.times, end), np.append(self.prices, self.prices[-1]))

    def time_weighted_mean(self) -> float:
        """Mean price over the span in nano-dollars; for a single event, its price."""
        if len(self) == 1:
            return float(self.prices[0])
        return float(np.average(self.prices[:-1], weights=np.diff(self.times)))

    def seconds_above(self, price: int) -> float:
        """How long the price was strictly above `price`."""
        return float(np.diff(self.times)[self.prices[:-1] > price].sum()) / SECOND

    def _require(self, time: int) -> None:
        if not self.first <= time <= self.last:
            raise OutsideHistory(
                f"{self.market} is known from {format_time(self.first)} to {format_time(self.last)},"
                f" not at {format_time(time)}"
            )
