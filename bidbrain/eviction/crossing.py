"""Price crossing: how often, and how soon, the market would have exceeded a bid. Exact, from the
change events.

A start at time t holds the bid price(t) + d, or an absolute bid, and is evicted at the first later
time at which the price is strictly above it. beta(d, w) is the share of start times, uniform over
[first event, last event - w], that are evicted within (t, t + w] (Harlap 4.3.1: the historical
probability of being evicted within the hour). Starts whose window was not observed as a whole do
not count. Prices compare as integers of nano-dollars; between events nothing changes, so every
share is a sum of lengths and nothing is sampled.

This is fast because starts between two events hold the same price and are crossed by the same
event: one search a piece gives the share and the times of a bid. For shares alone, a history of n
events has at most 2n pieces in which the events inside the window do not change either: each has
one highest price, and sorted by how far that is above the start they answer every delta with one
binary search.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.errors import BidBrainError, TooLittleHistory
from pricing_data.series import Ints, PriceSeries, is_whole
from pricing_data.units import HOUR, LATEST, format_usd


@dataclass(frozen=True, slots=True)
class Crossing:
    """Outcome of a bid over a history: the share of starts that were evicted, and the median time
    to eviction.

    `median_time` is over the evicted starts, in microseconds; None if there are none. `starts` is
    the total length of start times, in microseconds, and `windows` the number of windows that fit
    into it without overlapping: overlapping windows see the same events, so no more of them are
    independent.
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
                f"{series.market}: {(series.last - series.first) / HOUR:.1f} hours of history do "
                "not exceed the window"
                f" of {window / HOUR:.1f} hours; import a longer history or use a shorter window"
            )

        self.series = series
        self.window = window
        edges = _edges(series, window, series.times)
        self._begin, self._end = _observed(edges, series, window)
        if not self._begin.size:
            raise TooLittleHistory(
                f"{series.market}: no window of {window / HOUR:.1f} hours was observed without a "
                "hole; import or fetch a longer history, or use a shorter window"
            )

        at = np.searchsorted(series.times, self._begin, side="right") - 1
        self._next = at + 1
        self._held = series.prices[at]
        last = np.searchsorted(series.times, self._end + window, side="right")
        reach = last - at
        self._maxima = range_extremes(series.prices, int(reach.max()), np.maximum)

    def betas(self, deltas: Ints) -> Floats:
        """beta for each bid delta (nano-dollars); sorts once, then one binary search per delta."""
        rises, time_up_to = self._by_rise
        whole_time = time_up_to[-1]
        above = np.searchsorted(rises, deltas, side="right")
        evicted = whole_time - time_up_to[above]
        betas: Floats = evicted / time_up_to[-1]
        return betas

    def at_delta(self, delta: int) -> Crossing:
        """Outcome of a bid of `delta` above the price at the start."""
        return self.at_deltas(np.array([delta]))[0]

    def at_deltas(self, deltas: Ints) -> list[Crossing]:
        """Outcomes of several bids, each above the price at the start.

        A start that holds a bid holds every higher one, and is crossed no earlier by it: each
        search starts where that of the next lower bid ended.
        """
        outcomes: dict[int, Crossing] = {}
        starts = int((self._end - self._begin).sum())
        begin = self._begin
        end = self._end
        held = self._held
        position = self._next
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
                f"{self.series.market}: the price was never as low as a bid of {bid / 1e9:g} US "
                "dollars"
            )

        begin = self._begin[held]
        end = self._end[held]
        bids = np.full(begin.size, bid, dtype=np.int64)
        crossed, _ = self._crossed(self._next[held], bids)
        evicted = crossed - self.window < end
        starts = int((end - begin).sum())
        return self._crossing(begin[evicted], end[evicted], crossed[evicted], starts)

    def mean_times(self, bid: int, edges: Ints) -> list[float | None]:
        """Mean time to eviction at an absolute bid by the price at the start, `edges[i] <= price <
        edges[i + 1]`.

        The last class includes its upper edge. A start without eviction counts with the whole
        window; None where the price never was.
        """
        bids = np.full(self._held.size, bid, dtype=np.int64)
        crossed, _ = self._crossed(self._next, bids)
        warned = crossed - self.window
        spared = np.clip(warned, self._begin, self._end) - self._begin
        length = self._end - self._begin

        # Starts are spread evenly over their piece, so their mean is that of its middle.
        until_crossed = np.where(spared < length, crossed, 0)
        twice_middle = self._begin + spared + self._end
        until = until_crossed - twice_middle / 2
        certain = spared * float(self.window)
        uncertain = (length - spared) * until
        lived = (certain + uncertain) / length
        place = np.searchsorted(edges[:-1], self._held, side="right")
        classes = place - 1
        classes[self._held > edges[-1]] = -1
        means = list[float | None]()

        for i in range(edges.size - 1):
            chosen = classes == i
            means.append(
                float(np.average(lived[chosen], weights=length[chosen])) if chosen.any() else None
            )

        return means

    @cached_property
    def _by_rise(self) -> tuple[Ints, Ints]:
        """The pieces' rises in ascending order, and how much start time has at most each."""
        times = self.series.times
        prices = self.series.prices
        warned = times - self.window
        edges = _edges(self.series, self.window, times, warned)
        begin, end = _observed(edges, self.series, self.window)
        first = np.searchsorted(times, begin, side="right")
        until = begin + self.window
        count = np.searchsorted(times, until, side="right") - first
        at_least_one = np.maximum(count, 1)
        level = np.frexp(at_least_one)[1] - 1
        begin_place = np.minimum(first, prices.size - 1)
        left = self._maxima[level, begin_place]
        last_place = first + count - (1 << level)
        right = self._maxima[level, np.maximum(last_place, 0)]

        # Without an event in its window a start is crossed by no bid.
        highest = np.maximum(left, right)
        before = prices[first - 1]
        rises = np.where(count > 0, highest, 0) - before
        order = np.argsort(rises, kind="stable")
        spans = (end - begin)[order]
        summed = np.concatenate(([0], np.cumsum(spans)))
        return rises[order], summed

    def _crossed(self, position: Ints, bids: Ints) -> tuple[Ints, Ints]:
        """When each bid is first exceeded, by an event at or after a position, and the position of
        that event.

        An event that is out of reach of every window, or missing, is at `LATEST` or beyond the
        window.
        """
        highest_level = len(self._maxima) - 1
        for level in range(highest_level, -1, -1):
            step = self._maxima[level].take(position, mode="clip") <= bids
            position = position + (step.astype(np.int64) << level)
        times = self.series.times.take(position, mode="clip")
        return np.where(position < self.series.times.size, times, LATEST), position

    def _crossing(self, begin: Ints, end: Ints, crossed: Ints, starts: int) -> Crossing:
        """The outcome, given the pieces of starts that were crossed in part, and when."""
        soonest = crossed - end
        latest = np.minimum(crossed - begin, self.window)
        evicted = (latest - soonest).sum()
        median_time = median_of_spans(soonest, latest) if begin.size else None
        return Crossing(
            share=int(evicted) / starts,
            median_time=median_time,
            starts=starts,
            windows=starts / self.window,
        )


def _edges(series: PriceSeries, window: int, *events: Ints) -> Ints:
    """Boundaries of pieces: these events, and where the observation of whole windows begins or
    ends.
    """
    first = series.first
    last = series.last - window
    intervals = np.array(series.watched or (), dtype=np.int64)
    watched = intervals.reshape(-1, 2)
    # Sorted directly, because numpy's unique uses hashing, which takes longer than everything else
    # here.
    warned = watched[:, 1] - window
    moments = np.concatenate(([first, last], *events, watched[:, 0], warned))
    edges = np.sort(moments)
    is_new = np.append(True, np.diff(edges) > 0)
    edges = edges[is_new]
    inside: Ints = edges[(edges >= first) & (edges <= last)]
    return inside


def _observed(edges: Ints, series: PriceSeries, window: int) -> tuple[Ints, Ints]:
    """Begin and end of the pieces whose windows are observed as a whole."""
    begin = edges[:-1]
    end = edges[1:]
    if series.watched is None:
        return begin, end
    whole = is_whole(begin, window, series.watched)
    return begin[whole], end[whole]


def range_extremes(values: Ints, longest: int, of: np.ufunc) -> Ints:
    """`table[k, i]`: the extreme of the 2**k values from i on (fewer at the end), for all 2**k up
    to `longest`.
    """
    table = [values]
    while 2 << (len(table) - 1) <= longest:
        half = 1 << (len(table) - 1)
        previous = table[-1]
        tail = previous[-1:].repeat(half)
        shifted = np.concatenate((previous[half:], tail))
        table.append(of(previous, shifted[: values.size]))

    return np.stack(table)


class BadBid(BidBrainError):
    """A bid that is negative or zero where it must not be."""


@dataclass(frozen=True, slots=True)
class BidAbove:
    """A bid of `delta` nano-dollars above the price at the start; every start holds it."""

    delta: int

    def __post_init__(self) -> None:
        if self.delta < 0:
            raise BadBid(
                f"bid delta of {self.delta / 1e9:g} US dollars is negative; a bid below the price "
                "gets no machine"
            )

    def limits(self, held: Ints) -> Ints:
        """Absolute bids of starts at these prices."""
        return held + self.delta

    def __str__(self) -> str:
        return f"${format_usd(self.delta)} above the price"


@dataclass(frozen=True, slots=True)
class FixedBid:
    """A bid of `price` nano-dollars per hour; only starts at or below that price hold it."""

    price: int

    def __post_init__(self) -> None:
        if self.price <= 0:
            raise BadBid(f"bid of {self.price / 1e9:g} US dollars an hour is not above 0")

    def limits(self, held: Ints) -> Ints:
        """Absolute bids of starts at these prices."""
        return np.full_like(held, self.price)

    def __str__(self) -> str:
        return f"${format_usd(self.price)}"


Bid = BidAbove | FixedBid


_CLASSES_BITS = 11


def median_of_spans(low: Ints, high: Ints) -> float:
    """The median of a mixture of uniform distributions over (low, high], each weighted by its
    length.

    Classes of equal width tell where the median is; only the spans that begin or end in its class
    are sorted. All sums are exact: `bincount` adds whole numbers, and stays below 2**53.
    """
    bits = int(high.max()).bit_length()
    shift = max(bits - _CLASSES_BITS, 0)
    begins = low >> shift
    ends = high >> shift
    classes = int(ends.max()) + 1
    begun, ended = (
        np.concatenate(([0], np.cumsum(np.bincount(numbers, minlength=classes))))
        for numbers in (begins, ends)
    )
    edges = np.arange(classes + 1, dtype=np.int64) << shift
    since_low = _below(low, begins, edges, begun)
    since_high = _below(high, ends, edges, ended)
    mass = since_low - since_high
    half = mass[-1] / 2
    here = int(np.searchsorted(mass, half, side="left")) - 1
    inside_low = low[begins == here]
    inside_high = high[ends == here]
    edges_here = edges[here + 1 : here + 2]
    at = np.concatenate((inside_low, inside_high, edges_here))
    slope = np.repeat((1, -1, 0), (inside_low.size, inside_high.size, 1))
    order = np.argsort(at, kind="stable")
    at = at[order]
    density = np.cumsum(slope[order]) + begun[here] - ended[here]
    step = begun[here] - ended[here]
    before_last = density[:-1]
    before = np.concatenate(([step], before_last))
    spans = np.diff(at, prepend=edges[here])
    growth = np.cumsum(before * spans)
    reached = mass[here] + growth
    i = int(np.searchsorted(reached, half, side="left"))

    excess = reached[i] - half
    return float(at[i] - excess / before[i])


def _below(points: Ints, classes: Ints, edges: Ints, counts: Ints) -> Ints:
    """For each edge, by how much it is above the points that are below it, in total."""
    width = int(edges[1])
    inside = points & (width - 1)
    rest = np.bincount(classes, inside, minlength=edges.size - 1).astype(np.int64)
    whole = np.diff(counts) * edges[:-1]
    summed = rest + whole
    total = np.cumsum(summed)
    below: Ints = edges * counts - np.concatenate(([0], total))
    return below
