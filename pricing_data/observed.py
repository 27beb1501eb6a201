"""Observed time: when a market was watched, as sorted, disjoint spans.

Where no source watched a market, its price is unknown, and no statistic counts that time.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pricing_data.known_clouds import USUAL_LONGEST_PAUSE, markets_of
from pricing_data.market import Market
from pricing_data.units import HOUR, Span

Ints = NDArray[np.int64]
TimeSpans = tuple[Span, ...]

# Where a cloud repeats its prices daily, a longer silence of a market is a hole, unless it is usual for it.
_LEAST_SILENCE = 36 * HOUR
_USUAL_FACTOR = 1.5
_ENOUGH_SILENCES = 20


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """When a market was watched. In `complete` spans the provider vouches for every change; in `recorded` spans there
    are the rows of a file, whose silences may be holes."""

    complete: TimeSpans = ()
    recorded: TimeSpans = ()

    def joined(self, other: "WatchRecord") -> "WatchRecord":
        return WatchRecord(union((*self.complete, *other.complete)), union((*self.recorded, *other.recorded)))


def joined(parts: Iterable[Mapping[Market, WatchRecord]]) -> dict[Market, WatchRecord]:
    total: dict[Market, WatchRecord] = {}
    for part in parts:
        for market, watched in part.items():
            total[market] = total[market].joined(watched) if market in total else watched
    return total


def union(spans: Iterable[Span], pause: int = 0) -> TimeSpans:
    """The spans, joined where they overlap or are at most `pause` apart."""
    whole: list[Span] = []
    for span in sorted(spans):
        if whole and span.start - whole[-1].end <= pause:
            whole[-1] = Span(whole[-1].start, max(whole[-1].end, span.end))
        else:
            whole.append(span)
    return tuple(whole)


def clipped(spans: Iterable[Span], start: int, end: int) -> TimeSpans:
    """The parts of the spans within [start, end]."""
    return tuple(
        Span(max(span.start, start), min(span.end, end)) for span in spans if span.start <= end and span.end >= start
    )


def held(times: Ints, spans: TimeSpans) -> Ints:
    """The observed time between each two successive times."""
    return np.diff(observed_until(times, spans))


def observed_until(times: Ints, spans: TimeSpans) -> Ints:
    # An empty span before all times, so that each of them has a span that began earlier.
    starts, ends = np.array([Span(*[np.iinfo(np.int64).min // 2] * 2), *spans], dtype=np.int64).T
    lengths = ends - starts
    at = np.searchsorted(starts, times, side="right") - 1
    before = np.concatenate(([0], np.cumsum(lengths)))[at]
    observed: Ints = before + np.clip(times - starts[at], 0, lengths[at])
    return observed


def is_whole(begins: Ints, window: int, spans: TimeSpans) -> NDArray[np.bool_]:
    """Whether windows are observed as a whole: what happens in a hole is unknown."""
    if not spans:
        return np.zeros(begins.size, dtype=bool)
    starts, ends = np.array(spans, dtype=np.int64).T
    at = np.searchsorted(starts, begins, side="right") - 1
    whole: NDArray[np.bool_] = (at >= 0) & (begins + window < ends[np.maximum(at, 0)])
    return whole


def of_events(market: Market, times: Ints, known: WatchRecord | None) -> TimeSpans:
    """When a market was watched from its first event on.

    A market without any record, from a store that kept none, counts as recorded from its first event to its last.
    """
    first, last = int(times[0]), int(times[-1])
    recorded = known.recorded if known is not None else (Span(first, last),)
    if markets_of(market.cloud).repeats_prices:
        recorded = _without_silences(recorded, times)
    spans = union((*(known.complete if known is not None else ()), *recorded))
    return clipped(spans, first, max([last, *(span.end for span in spans)]))


def longest_silence(times: Ints) -> float:
    """The longest silence that is usual for a market: well over a day, and longer than its other silences."""
    silences = np.diff(times)
    usual = np.quantile(silences, 0.95 if silences.size >= _ENOUGH_SILENCES else 0.5) if silences.size else 0.0
    return float(min(max(_LEAST_SILENCE, _USUAL_FACTOR * usual), USUAL_LONGEST_PAUSE))


def _without_silences(spans: TimeSpans, times: Ints) -> TimeSpans:
    silences = np.diff(times)
    # Most markets have no long silence, and need no look at what is usual for them.
    if not silences.size or silences.max() <= _LEAST_SILENCE:
        return spans
    holes = np.flatnonzero(silences > longest_silence(times))
    if not holes.size:
        return spans
    edges = [int(times[0]), *(edge for at in holes for edge in (int(times[at]), int(times[at + 1]))), int(times[-1])]
    heard = [Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True)]
    return tuple(part for span in heard for part in clipped(spans, span.start, span.end))


class Recording:
    """When a file's markets were recorded, collected batch by batch: while any market of a region has rows, the region
    was watched, from each market's own first row to its last."""

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
                self._markets[market] = Span(min(span.start, known.start), max(span.end, known.end))
                regions.setdefault((market.cloud, market.region), []).append(code)
        for region, members in regions.items():
            rows = times[np.isin(codes, members)] if len(regions) > 1 else times
            self._regions[region] = self._with(region, np.sort(rows))

    def _with(self, region: tuple[str, str], times: Ints) -> TimeSpans:
        # A file says when prices changed, not when it was watched.
        pause = markets_of(region[0]).longest_pause
        breaks = np.flatnonzero(np.diff(times) > pause)
        edges = [0, *(edge for at in breaks.tolist() for edge in (at, at + 1)), times.size - 1]
        spans = (Span(int(times[a]), int(times[b])) for a, b in zip(edges[::2], edges[1::2], strict=True))
        return union((*self._regions.get(region, ()), *spans), pause)

    def watched(self) -> dict[Market, WatchRecord]:
        """The result."""
        return {
            market: WatchRecord(recorded=clipped(self._regions[market.cloud, market.region], *span))
            for market, span in self._markets.items()
        }


def holes(spans: TimeSpans) -> TimeSpans:
    """The time between the spans."""
    return tuple(Span(before.end, after.start) for before, after in pairwise(spans))
