"""Price crossing: how often, and how soon, the market would have exceeded a bid. Exact, from the change events.

A start at time t holds the bid price(t) + d, or an absolute bid, and is evicted at the first later time at which the
price is strictly above it. beta(d, w) is the share of start times, uniform over [first event, last event - w], that are
evicted within (t, t + w] (Harlap 4.3.1: the historical probability of being evicted within the hour). Starts whose
window was not observed as a whole do not count. Prices compare as integers of nano-dollars; between events nothing
changes, so every share is a sum of lengths and nothing is sampled.

It is fast because within one *piece* of start times neither the price at the start nor the events inside the window
change, so that all its starts see the same highest price. A history of n events has at most 2n pieces. Sorted by how
far that highest price is above the start, they answer every delta with one binary search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bidbrain.errors import TooLittleHistory
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Crossing:
    """Outcome of a bid over a history: the share of starts that were evicted, and the median time to eviction.

    `median_time` is over the evicted starts, in microseconds; None if there are none. `starts` is the total length of
    start times, in microseconds, and `windows` the number of windows that fit into it without overlapping: overlapping
    windows see the same events, so no more of them are independent.
    """

    share: float
    median_time: float | None
    starts: int
    windows: float


class CrossingHistory:
    """All starts of one market's history, over one window length."""

    def __init__(self, series: PriceSeries, window: int) -> None:
        if series.last - series.first <= window:
            raise TooLittleHistory(
                f"{series.market}: {(series.last - series.first) / HOUR:.1f} hours of history do not exceed the window"
                f" of {window / HOUR:.1f} hours; import a longer history or use a shorter window"
            )
        self.series, self.window = series, window
        edges = _edges(series, window)
        watched = _whole_windows(edges[:-1], series, window)
        self._begin, self._length = edges[:-1][watched], np.diff(edges)[watched]
        if not self._begin.size:
            raise TooLittleHistory(
                f"{series.market}: no window of {window / HOUR:.1f} hours was observed without a hole; import or fetch"
                " a longer history, or use a shorter window"
            )
        self._at = np.searchsorted(series.times, self._begin, side="right") - 1
        self._end = np.searchsorted(series.times, self._begin + window, side="right")
        self._maxima = range_maxima(series.prices, int((self._end - self._at).max()))
        self._held = series.prices[self._at]
        self._top = self._highest()

    def betas(self, deltas: Ints) -> Floats:
        """beta for each bid delta (nano-dollars); sorts once, then one binary search per delta."""
        rises, time_up_to = self._by_rise
        evicted = time_up_to[-1] - time_up_to[np.searchsorted(rises, deltas, side="right")]
        betas: Floats = evicted / time_up_to[-1]
        return betas

    def at_delta(self, delta: int) -> Crossing:
        """Outcome of a bid of `delta` above the price at the start."""
        return self._crossing(self._held + delta, np.ones(self._held.size, dtype=bool))

    def at_bid(self, bid: int) -> Crossing:
        """Outcome of an absolute bid, over the starts with a price at or below it."""
        held = self._held <= bid
        if not held.any():
            raise TooLittleHistory(
                f"{self.series.market}: the price was never as low as a bid of {bid / 1e9:g} US dollars"
            )
        return self._crossing(np.full(self._held.size, bid, dtype=np.int64), held)

    def mean_times(self, bid: int, edges: Ints) -> list[float | None]:
        """Mean time to eviction at an absolute bid by the price at the start, `edges[i] <= price < edges[i + 1]`.

        The last class includes its upper edge. A start without eviction counts with the whole window; None where the
        price never was.
        """
        lived = np.full(self._held.size, float(self.window))
        evicted = self._top > bid
        crossed = self.series.times[self._first_above(self._at[evicted] + 1, np.full(int(evicted.sum()), bid))]
        # Starts are spread evenly over their piece, so their mean is that of its middle.
        lived[evicted] = crossed - self._begin[evicted] - self._length[evicted] / 2
        classes = np.searchsorted(edges[:-1], self._held, side="right") - 1
        classes[self._held > edges[-1]] = -1
        return [_mean(lived, self._length, classes == i) for i in range(edges.size - 1)]

    @cached_property
    def _by_rise(self) -> tuple[Ints, Ints]:
        """The pieces' rises in ascending order, and how much start time has at most each."""
        rises = self._top - self._held
        order = np.argsort(rises, kind="stable")
        return rises[order], np.concatenate(([0], np.cumsum(self._length[order])))

    def _highest(self) -> Ints:
        """For each piece the highest price within its window; 0, which evicts no bid, where there is none."""
        first, count = self._at + 1, self._end - self._at - 1
        level = np.frexp(np.maximum(count, 1))[1] - 1
        left = self._maxima[level, np.minimum(first, self.series.prices.size - 1)]
        right = self._maxima[level, np.maximum(self._end - (1 << level), 0)]
        return np.where(count > 0, np.maximum(left, right), 0)

    def _crossing(self, bids: Ints, counted: NDArray[np.bool_]) -> Crossing:
        evicted = counted & (self._top > bids)
        starts = int(self._length[counted].sum())
        return Crossing(
            share=float(self._length[evicted].sum() / starts),
            median_time=self._median_time(bids, evicted),
            starts=starts,
            windows=starts / self.window,
        )

    def _median_time(self, bids: Ints, evicted: NDArray[np.bool_]) -> float | None:
        if not evicted.any():
            return None
        crossed = self.series.times[self._first_above(self._at[evicted] + 1, bids[evicted])]
        longest = crossed - self._begin[evicted]
        return _median_of_spans(longest - self._length[evicted], longest)

    def _first_above(self, start: Ints, bids: Ints) -> Ints:
        """For each start index the first event at or after it with a price above its bid, known to be in its window."""
        position = start.copy()
        for level in range(len(self._maxima) - 1, -1, -1):
            reach = np.minimum(position, self.series.prices.size - 1)
            step = self._maxima[level, reach] <= bids
            position += step * (1 << level)
        return position


def _mean(values: Floats, weights: Ints, chosen: NDArray[np.bool_]) -> float | None:
    return float(np.average(values[chosen], weights=weights[chosen])) if chosen.any() else None


def _edges(series: PriceSeries, window: int) -> Ints:
    """Boundaries of pieces: an event at the start of the window, or one that enters it at its end."""
    first, last = series.first, series.last - window
    watched = np.array(series.watched or (), dtype=np.int64).reshape(-1, 2)
    # Sorted directly, because numpy's unique uses hashing, which takes longer than everything else here.
    parts = ([first, last], series.times, series.times - window, watched[:, 0], watched[:, 1] - window)
    edges = np.sort(np.concatenate(parts))
    edges = edges[np.append(True, np.diff(edges) > 0)]
    inside: Ints = edges[(edges >= first) & (edges <= last)]
    return inside


def _whole_windows(begins: Ints, series: PriceSeries, window: int) -> NDArray[np.bool_]:
    """The pieces whose windows are observed as a whole: what happens in a hole is unknown."""
    if series.watched is None:
        return np.ones(begins.size, dtype=bool)
    starts, ends = np.array(series.watched, dtype=np.int64).reshape(-1, 2).T
    at = np.searchsorted(starts, begins, side="right") - 1
    whole: NDArray[np.bool_] = (at >= 0) & (begins + window < ends[np.maximum(at, 0)])
    return whole


def range_maxima(prices: Ints, longest: int) -> Ints:
    """`table[k, i]`: the highest of the 2**k prices from i on (fewer at the end), for all 2**k up to `longest`."""
    table = [prices]
    while 2 << (len(table) - 1) <= longest:
        half, previous = 1 << (len(table) - 1), table[-1]
        table.append(np.maximum(previous, np.concatenate((previous[half:], previous[-1:].repeat(half)))[: prices.size]))
    return np.stack(table)


def _median_of_spans(low: Ints, high: Ints) -> float:
    """The median of a mixture of uniform distributions over (low, high], each weighted by its length."""
    at = np.concatenate((low, high))
    slope = np.concatenate((np.ones(low.size, dtype=np.int64), -np.ones(high.size, dtype=np.int64)))
    order = np.argsort(at, kind="stable")
    at, density = at[order], np.cumsum(slope[order])
    mass = np.concatenate(([0], np.cumsum(density[:-1] * np.diff(at))))
    half = mass[-1] / 2
    i = int(np.searchsorted(mass, half, side="left"))
    return float(at[i] - (mass[i] - half) / density[i - 1])
