"""`PriceSeries`: the price of one market as a step function over time, and when the market was
watched.

Observed time is a tuple of sorted, disjoint spans. Where no source watched a market, its price is
unknown, and no statistic counts that time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pricing_data.errors import OutsideHistory
from pricing_data.known_clouds import USUAL_LONGEST_PAUSE, markets_of
from pricing_data.market import Market
from pricing_data.units import HOUR, SECOND, Span, format_time

Ints = NDArray[np.int64]
TimeSpans = tuple[Span, ...]

# Where a cloud repeats its prices daily, a longer silence of a market is a hole, unless it is usual
# for it.
_MIN_SILENCE = 36 * HOUR
_USUAL_FACTOR = 1.5
_ENOUGH_SILENCES = 20


@dataclass(frozen=True, slots=True, eq=False)
class PriceSeries:
    """A right-continuous step function: from `times[i]` on, the market costs `prices[i]`.

    Times are microseconds UTC, strictly increasing; prices are nano-dollars per hour, above 0. The
    span is closed, from the first event to the last: prices outside the span were not observed, and
    asking for one raises `OutsideHistory`.

    `watched` are the spans in which the market was observed; None means all the time. Between them
    the last price known is only assumed, and no mean or share counts that time. `confirmed` says
    that the last event is no change of the market but the end of its observation.
    """

    market: Market
    times: Ints
    prices: Ints
    watched: TimeSpans | None = None
    confirmed: bool = False

    def __post_init__(self) -> None:
        if self.times.size == 0 or self.times.shape != self.prices.shape:
            raise ValueError(
                f"{self.market}: a series needs at least one event, and equally many prices and "
                "times"
            )
        if self.times.dtype != np.int64 or self.prices.dtype != np.int64:
            raise TypeError(
                f"{self.market}: times and prices must be int64, not {self.times.dtype} and "
                f"{self.prices.dtype}"
            )
        later = self.times[1:]
        backward = later <= self.times[:-1]
        if np.any(backward) or self.prices.min() <= 0:
            raise ValueError(
                f"{self.market}: times must increase strictly, and prices must be above 0"
            )

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
        if self.watched is None:
            return np.diff(self.times)
        return held(self.times, self.watched)

    @property
    def seen(self) -> Ints:
        """The observed prices. That at the start of a window which begins in a hole is only
        assumed.
        """
        assumed = self.watched is not None and all(span.start > self.first for span in self.watched)
        if assumed and len(self) > 1:
            return self.prices[1:]
        return self.prices

    @property
    def changes(self) -> int:
        """The number of price changes; an event that repeats the price is an observation, not a
        change.
        """
        changed = self.seen[1:] != self.seen[:-1]
        return int(np.count_nonzero(changed))

    def price_at(self, time: int) -> int:
        """The price in force at a time within the span."""
        self._require(time)
        later = np.searchsorted(self.times, time, side="right")
        price = self.prices[later - 1]
        return int(price)

    def window(self, start: int, end: int) -> "PriceSeries":
        """The series on [start, end], with an event at each end."""
        self._require(start)
        self._require(end)
        if end < start:
            raise ValueError(
                f"{self.market}: window ends at {format_time(end)}, before its start "
                f"{format_time(start)}"
            )

        first = np.searchsorted(self.times, start, "right")
        last = np.searchsorted(self.times, end, "left")
        inside = slice(first, last)
        edges = [start] if start == end else [start, end]
        times = np.concatenate((edges[:1], self.times[inside], edges[1:]))
        prices = [self.price_at(edge) for edge in edges]

        all_prices = np.concatenate((prices[:1], self.prices[inside], prices[1:]))
        watched = None
        if self.watched is not None:
            watched = clipped(self.watched, start, end)
        return PriceSeries(
            self.market, times.astype(np.int64), all_prices.astype(np.int64), watched
        )

    def held_from(self, time: int) -> "PriceSeries":
        """The series from an earlier time on, at which its first price is already in force."""
        times = np.insert(self.times, 0, time)
        prices = np.insert(self.prices, 0, self.prices[0])
        return replace(self, times=times, prices=prices)

    def held_until(self, end: int) -> "PriceSeries":
        """The series with its last price in force until `end`; unchanged if it lasts longer
        already.
        """
        if end <= self.last:
            return self
        watched = None
        if self.watched is not None:
            watched = union((*self.watched, Span(self.last, end)))
        times = np.append(self.times, end)
        prices = np.append(self.prices, self.prices[-1])
        return replace(self, times=times, prices=prices, watched=watched, confirmed=True)

    def seconds_above(self, price: int) -> float:
        """How long the price was observed strictly above `price`."""
        above = self.prices[:-1] > price
        held_above = self.held[above].sum()
        return float(held_above) / SECOND

    def _require(self, time: int) -> None:
        if not self.first <= time <= self.last:
            raise OutsideHistory(
                f"{self.market} is known from {format_time(self.first)} to "
                f"{format_time(self.last)}, not at {format_time(time)}"
            )


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """When a market was watched. In `complete` spans the provider vouches for every change; in
    `recorded` spans there are the rows of a file, whose silences may be holes."""

    complete: TimeSpans = ()
    recorded: TimeSpans = ()

    def joined(self, other: "WatchRecord") -> "WatchRecord":
        complete = union((*self.complete, *other.complete))
        recorded = union((*self.recorded, *other.recorded))
        return WatchRecord(complete, recorded)


_Key = TypeVar("_Key")
_Observed = TypeVar("_Observed", Span, WatchRecord)


def joined(parts: Iterable[Mapping[_Key, _Observed]]) -> dict[_Key, _Observed]:
    """The observations of all these steps, by history or by market."""
    total: dict[_Key, _Observed] = {}
    for part in parts:
        for key, observed in part.items():
            total[key] = total[key].joined(observed) if key in total else observed
    return total


def union(spans: Iterable[Span], pause: int = 0) -> TimeSpans:
    """The spans, joined where they overlap or are at most `pause` apart."""
    whole: list[Span] = []
    for span in sorted(spans):
        if whole and span.start - whole[-1].end <= pause:
            last = whole[-1]
            end = max(whole[-1].end, span.end)
            whole[-1] = Span(last.start, end)
        else:
            whole.append(span)
    return tuple(whole)


def clipped(spans: Iterable[Span], start: int, end: int) -> TimeSpans:
    """The parts of the spans within [start, end]."""
    return tuple(
        Span(max(span.start, start), min(span.end, end))
        for span in spans
        if span.start <= end and span.end >= start
    )


def held(times: Ints, spans: TimeSpans) -> Ints:
    """The observed time between each two successive times."""
    return np.diff(observed_until(times, spans))


def observed_until(times: Ints, spans: TimeSpans) -> Ints:
    # An empty span before all times, so that each of them has a span that began earlier.
    integers = np.iinfo(np.int64)
    never = Span(*[integers.min // 2] * 2)
    starts, ends = np.array([never, *spans], dtype=np.int64).T
    lengths = ends - starts
    at = np.searchsorted(starts, times, side="right") - 1
    summed = np.concatenate(([0], np.cumsum(lengths)))
    before = summed[at]
    since = times - starts[at]
    inside = np.clip(since, 0, lengths[at])
    observed: Ints = before + inside
    return observed


def is_whole(begins: Ints, window: int, spans: TimeSpans) -> NDArray[np.bool_]:
    """Whether windows are observed as a whole: what happens in a hole is unknown."""
    if not spans:
        return np.zeros(begins.size, dtype=bool)
    starts, ends = np.array(spans, dtype=np.int64).T
    at = np.searchsorted(starts, begins, side="right") - 1
    last = ends[np.maximum(at, 0)]
    is_within = begins + window < last
    whole: NDArray[np.bool_] = (at >= 0) & is_within
    return whole


def of_events(market: Market, times: Ints, known: WatchRecord | None) -> TimeSpans:
    """When a market was watched from its first event on.

    A market without any record, from a store that kept none, counts as recorded from its first
    event to its last.
    """
    first = int(times[0])
    last = int(times[-1])
    recorded = known.recorded if known is not None else (Span(first, last),)
    if markets_of(market.cloud).repeats_prices:
        recorded = _without_silences(recorded, times)
    complete = known.complete if known is not None else ()
    spans = union((*complete, *recorded))
    ends = (span.end for span in spans)
    return clipped(spans, first, max([last, *ends]))


def longest_silence(times: Ints) -> float:
    """The longest silence that is usual for a market: well over a day, and longer than its other
    silences.
    """
    silences = np.diff(times)
    usual = 0.0
    if silences.size:
        usual = np.quantile(silences, 0.95 if silences.size >= _ENOUGH_SILENCES else 0.5)
    return float(min(max(_MIN_SILENCE, _USUAL_FACTOR * usual), USUAL_LONGEST_PAUSE))


def _without_silences(spans: TimeSpans, times: Ints) -> TimeSpans:
    silences = np.diff(times)
    # Most markets have no long silence, and need no look at what is usual for them.
    if not silences.size or silences.max() <= _MIN_SILENCE:
        return spans

    holes = np.flatnonzero(silences > longest_silence(times))
    if not holes.size:
        return spans

    inner = (edge for at in holes for edge in (int(times[at]), int(times[at + 1])))
    edges = [int(times[0]), *inner, int(times[-1])]

    edge_pairs = zip(edges[::2], edges[1::2], strict=True)
    heard = [Span(start, end) for start, end in edge_pairs]
    parts = (part for span in heard for part in clipped(spans, span.start, span.end))
    return tuple(parts)


def holes(spans: TimeSpans) -> TimeSpans:
    """The time between the spans."""
    between = (Span(before.end, after.start) for before, after in pairwise(spans))
    return tuple(between)


class Recording:
    """When a file's markets were recorded, collected batch by batch: while any market of a region
    has rows, the region was watched, from each market's own first row to its last."""

    def __init__(self) -> None:
        self._regions: dict[tuple[str, str], TimeSpans] = {}
        self._markets: dict[Market, Span] = {}

    def add(self, markets: tuple[Market, ...], codes: Ints, times: Ints) -> None:
        """Takes note of rows: `codes[i]` indexes `markets`."""
        if not times.size:
            return

        first = np.full(len(markets), np.iinfo(np.int64).max)
        last = np.full(len(markets), -1)
        np.minimum.at(first, codes, times)
        np.maximum.at(last, codes, times)
        regions: dict[tuple[str, str], list[int]] = {}

        for code, market in enumerate(markets):
            if last[code] >= 0:
                span = Span(int(first[code]), int(last[code]))
                known = self._markets.get(market, span)
                first_seen = min(span.start, known.start)
                last_seen = max(span.end, known.end)
                self._markets[market] = Span(first_seen, last_seen)
                regions.setdefault((market.cloud, market.region), []).append(code)

        for region, members in regions.items():
            own_times = times[np.isin(codes, members)] if len(regions) > 1 else times
            rows = np.sort(own_times)
            # A file says when prices changed, not when it was watched.
            pause = markets_of(region[0]).longest_pause
            breaks = np.flatnonzero(np.diff(rows) > pause)
            inner = (edge for at in breaks.tolist() for edge in (at, at + 1))
            edges = [0, *inner, rows.size - 1]
            edge_pairs = zip(edges[::2], edges[1::2], strict=True)
            spans = (Span(int(rows[a]), int(rows[b])) for a, b in edge_pairs)
            earlier = self._regions.get(region, ())
            self._regions[region] = union((*earlier, *spans), pause)

    def watched(self) -> dict[Market, WatchRecord]:
        """The result."""
        return {
            market: WatchRecord(recorded=clipped(self._regions[market.cloud, market.region], *span))
            for market, span in self._markets.items()
        }
