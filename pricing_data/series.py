"""`PriceSeries`: the price of one market as a step function over time."""

from dataclasses import dataclass, replace

import numpy as np

from pricing_data.errors import OutsideHistory
from pricing_data.market import Market
from pricing_data.observed import Ints, TimeSpans, clipped, held, union
from pricing_data.units import SECOND, Span, format_time

__all__ = ["Ints", "PriceSeries"]


@dataclass(frozen=True, slots=True, eq=False)
class PriceSeries:
    """A right-continuous step function: from `times[i]` on, the market costs `prices[i]`.

    Times are microseconds UTC, strictly increasing; prices are nano-dollars per hour, above 0. The span is closed,
    from the first event to the last: prices outside the span were not observed, and asking for one
    raises `OutsideHistory`.

    `watched` are the spans in which the market was observed; None means all the time. Between them the last price
    known is only assumed, and no mean or share counts that time. `confirmed` says that the last event is no change of
    the market but the end of its observation.
    """

    market: Market
    times: Ints
    prices: Ints
    watched: TimeSpans | None = None
    confirmed: bool = False

    def __post_init__(self) -> None:
        if self.times.size == 0 or self.times.shape != self.prices.shape:
            raise ValueError(f"{self.market}: a series needs at least one event, and equally many prices and times")
        if self.times.dtype != np.int64 or self.prices.dtype != np.int64:
            raise TypeError(
                f"{self.market}: times and prices must be int64, not {self.times.dtype} and {self.prices.dtype}"
            )
        if np.any(self.times[1:] <= self.times[:-1]) or self.prices.min() <= 0:
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
            and self.watched == other.watched
        )

    __hash__ = None  # type: ignore[assignment]  # equal by content, and content is large

    @property
    def first(self) -> int:
        return int(self.times[0])

    @property
    def last(self) -> int:
        """Time of the last event, where the span ends."""
        return int(self.times[-1])

    @property
    def held(self) -> Ints:
        """The observed time from each event to the next, in microseconds."""
        return np.diff(self.times) if self.watched is None else held(self.times, self.watched)

    @property
    def seen(self) -> Ints:
        """The observed prices. That at the start of a window which begins in a hole is only assumed."""
        assumed = self.watched is not None and all(span.start > self.first for span in self.watched)
        return self.prices[1:] if assumed and len(self) > 1 else self.prices

    @property
    def changes(self) -> int:
        """The number of price changes; an event that repeats the price is an observation, not a change."""
        return int(np.count_nonzero(self.seen[1:] != self.seen[:-1]))

    def price_at(self, time: int) -> int:
        """The price in force at a time within the span."""
        self._require(time)
        return int(self.prices[np.searchsorted(self.times, time, side="right") - 1])

    def window(self, start: int, end: int) -> "PriceSeries":
        """The series on [start, end], with an event at each end."""
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
            None if self.watched is None else clipped(self.watched, start, end),
        )

    def held_until(self, end: int) -> "PriceSeries":
        """The series with its last price in force until `end`; unchanged if it lasts longer already."""
        if end <= self.last:
            return self
        watched = None if self.watched is None else union((*self.watched, Span(self.last, end)))
        times, prices = np.append(self.times, end), np.append(self.prices, self.prices[-1])
        return replace(self, times=times, prices=prices, watched=watched, confirmed=True)

    def time_weighted_mean(self) -> float:
        """Mean price over the observed time in nano-dollars; if there is none, the last price."""
        weights = self.held
        return float(np.average(self.prices[:-1], weights=weights)) if weights.any() else float(self.prices[-1])

    def seconds_above(self, price: int) -> float:
        """How long the price was observed strictly above `price`."""
        return float(self.held[self.prices[:-1] > price].sum()) / SECOND

    def _require(self, time: int) -> None:
        if not self.first <= time <= self.last:
            raise OutsideHistory(
                f"{self.market} is known from {format_time(self.first)} to {format_time(self.last)},"
                f" not at {format_time(time)}"
            )
