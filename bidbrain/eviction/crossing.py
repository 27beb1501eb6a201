"""Price crossing: how often, and how soon, the market would have exceeded a bid. Exact, from the change events.

A start at time t holds the bid price(t) + d, or an absolute bid, and is evicted at the first later time at which the
price is strictly above it. beta(d, w) is the share of start times, uniform over [first event, last event - w], that are
evicted within (t, t + w] (Harlap 4.3.1: the historical probability of being evicted within the hour). Starts whose
window was not observed as a whole do not count. Prices compare as integers of nano-dollars; between events nothing
changes, so every share is a sum of lengths and nothing is sampled.

This is fast because starts between two events hold the same price and are crossed by the same event: one search a piece
gives the share and the times of a bid. For shares alone, a history of n events has at most 2n pieces in which the
events inside the window do not change either: each has one highest price, and sorted by how far that is above the start
they answer every delta with one binary search.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Bools
from bidbrain.errors import TooLittleHistory
from bidbrain.eviction.path import range_extremes
from bidbrain.eviction.span_median import median_of_spans
from pricing_data.series import Ints, PriceSeries, is_whole
from pricing_data.units import HOUR, LATEST

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
        self._begin, self._end = _observed(_edges(series, window, series.times), series, window)
        if not self._begin.size:
            raise TooLittleHistory(
                f"{series.market}: no window of {window / HOUR:.1f} hours was observed without a hole; import or fetch"
                " a longer history, or use a shorter window"
            )
        at = np.searchsorted(series.times, self._begin, side="right") - 1
        self._next, self._held = at + 1, series.prices[at]
        reach = np.searchsorted(series.times, self._end + window, side="right") - at
        self._maxima = range_maxima(series.prices, int(reach.max()))

    def betas(self, deltas: Ints) -> Floats:
        """beta for each bid delta (nano-dollars); sorts once, then one binary search per delta."""
        rises, time_up_to = self._by_rise
        evicted = time_up_to[-1] - time_up_to[np.searchsorted(rises, deltas, side="right")]
        betas: Floats = evicted / time_up_to[-1]
        return betas

    def at_delta(self, delta: int) -> Crossing:
        """Outcome of a bid of `delta` above the price at the start."""
        return self.at_deltas(np.array([delta]))[0]

    def at_deltas(self, deltas: Ints) -> list[Crossing]:
        """Outcomes of several bids, each above the price at the start.

        A start that holds a bid holds every higher one, and is crossed no earlier by it: each search starts where that
        of the next lower bid ended.
        """
        outcomes: dict[int, Crossing] = {}
        starts = int((self._end - self._begin).sum())
        begin, end, held, position = self._begin, self._end, self._held, self._next
        for delta in sorted(set(deltas.tolist())):
            crossed, position = self._crossed(position, held + delta)
            evicted = np.flatnonzero(crossed - self.window < end)
            if evicted.size < end.size:
                begin, end, held, position, crossed = (
                    values[evicted] for values in (begin, end, held, position, crossed)
                )
            outcomes[delta] = self._crossing(begin, end, crossed, starts)
        return [outcomes[delta] for delta in deltas.tolist()]

    def at_bid(self, bid: int) -> Crossing:
        """Outcome of an absolute bid, over the starts with a price at or below it."""
        held = self._held <= bid
        if not held.any():
            raise TooLittleHistory(
                f"{self.series.market}: the price was never as low as a bid of {bid / 1e9:g} US dollars"
            )
        begin, end = self._begin[held], self._end[held]
        crossed, _ = self._crossed(self._next[held], np.full(begin.size, bid, dtype=np.int64))
        evicted = crossed - self.window < end
        return self._crossing(begin[evicted], end[evicted], crossed[evicted], int((end - begin).sum()))

    def mean_times(self, bid: int, edges: Ints) -> list[float | None]:
        """Mean time to eviction at an absolute bid by the price at the start, `edges[i] <= price < edges[i + 1]`.

        The last class includes its upper edge. A start without eviction counts with the whole window; None where the
        price never was.
        """
        crossed, _ = self._crossed(self._next, np.full(self._held.size, bid, dtype=np.int64))
        spared = np.clip(crossed - self.window, self._begin, self._end) - self._begin
        length = self._end - self._begin
        # Starts are spread evenly over their piece, so their mean is that of its middle.
        until = np.where(spared < length, crossed, 0) - (self._begin + spared + self._end) / 2
        lived = (spared * float(self.window) + (length - spared) * until) / length
        classes = np.searchsorted(edges[:-1], self._held, side="right") - 1
        classes[self._held > edges[-1]] = -1
        return [_mean(lived, length, classes == i) for i in range(edges.size - 1)]

    @cached_property
    def _by_rise(self) -> tuple[Ints, Ints]:
        """The pieces' rises in ascending order, and how much start time has at most each."""
        times, prices = self.series.times, self.series.prices
        begin, end = _observed(_edges(self.series, self.window, times, times - self.window), self.series, self.window)
        first = np.searchsorted(times, begin, side="right")
        count = np.searchsorted(times, begin + self.window, side="right") - first
        level = np.frexp(np.maximum(count, 1))[1] - 1
        left = self._maxima[level, np.minimum(first, prices.size - 1)]
        right = self._maxima[level, np.maximum(first + count - (1 << level), 0)]
        # Without an event in its window a start is crossed by no bid.
        rises = np.where(count > 0, np.maximum(left, right), 0) - prices[first - 1]
        order = np.argsort(rises, kind="stable")
        return rises[order], np.concatenate(([0], np.cumsum((end - begin)[order])))

    def _crossed(self, position: Ints, bids: Ints) -> tuple[Ints, Ints]:
        """When each bid is first exceeded, by an event at or after a position, and the position of that event.

        An event that is out of reach of every window, or missing, is at `LATEST` or beyond the window.
        """
        for level in range(len(self._maxima) - 1, -1, -1):
            step = self._maxima[level].take(position, mode="clip") <= bids
            position = position + (step.astype(np.int64) << level)
        times = self.series.times.take(position, mode="clip")
        return np.where(position < self.series.times.size, times, LATEST), position

    def _crossing(self, begin: Ints, end: Ints, crossed: Ints, starts: int) -> Crossing:
        """The outcome, given the pieces of starts that were crossed in part, and when."""
        soonest, latest = crossed - end, np.minimum(crossed - begin, self.window)
        return Crossing(
            share=int((latest - soonest).sum()) / starts,
            median_time=median_of_spans(soonest, latest) if begin.size else None,
            starts=starts,
            windows=starts / self.window,
        )


def _mean(values: Floats, weights: Ints, chosen: Bools) -> float | None:
    return float(np.average(values[chosen], weights=weights[chosen])) if chosen.any() else None


def _edges(series: PriceSeries, window: int, *events: Ints) -> Ints:
    """Boundaries of pieces: these events, and where the observation of whole windows begins or ends."""
    first, last = series.first, series.last - window
    watched = np.array(series.watched or (), dtype=np.int64).reshape(-1, 2)
    # Sorted directly, because numpy's unique uses hashing, which takes longer than everything else here.
    edges = np.sort(np.concatenate(([first, last], *events, watched[:, 0], watched[:, 1] - window)))
    edges = edges[np.append(True, np.diff(edges) > 0)]
    inside: Ints = edges[(edges >= first) & (edges <= last)]
    return inside


def _observed(edges: Ints, series: PriceSeries, window: int) -> tuple[Ints, Ints]:
    """Begin and end of the pieces whose windows are observed as a whole."""
    begin, end = edges[:-1], edges[1:]
    if series.watched is None:
        return begin, end
    whole = is_whole(begin, window, series.watched)
    return begin[whole], end[whole]


def range_maxima(prices: Ints, longest: int) -> Ints:
    """`table[k, i]`: the highest of the 2**k prices from i on (fewer at the end), for all 2**k up to `longest`."""
    return range_extremes(prices, longest, np.maximum)
