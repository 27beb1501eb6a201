"""`CrossingPanel`: markets, each with its bid, as the rows that a model of price crossings is fitted to and predicts.

A row is a start, a market and a moment, with only what was known then: the present state of the market
(`PricePath.features`) and how recent starts ended, in this market and in all markets, over several spans. The outcome
of a start is known one window later; a start whose window was not observed as a whole has none, and does not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Bools, Floats
from bidbrain.eviction.bids import Bid
from bidbrain.eviction.path import FEATURES, PricePath
from pricing_data.series import Ints, PriceSeries, is_whole
from pricing_data.units import DAY, HOUR, MINUTE

_SPANS = (3 * HOUR, 12 * HOUR, 2 * DAY, 14 * DAY)
_STARTS_PER_WINDOW = 6
_FINEST, _COARSEST = 2 * MINUTE, 30 * MINUTE
# A market's own share over n windows has weight n against this many windows of the pooled share.
_SHRINKAGE_WINDOWS = (2.0, 2.0, 4.0, 8.0)
# Keeps log-odds finite: a share of 0 among thousands of starts is not a probability of 0.
_SOFTENING = 1e-4


@dataclass(frozen=True, slots=True)
class PanelRows:
    """Starts in one or more markets: the features known at each (a row of `data`), and whether the bid was crossed."""

    market: NDArray[np.intp]
    times: Ints
    data: Floats
    crossed: Bools

    def __len__(self) -> int:
        return int(self.times.size)


@dataclass(frozen=True, slots=True)
class _Starts:
    """Starts in one market at every multiple of the step: running counts of starts that held the bid, and of
    crossings."""

    first: int
    held: Bools
    crossed: Bools

    def counts(self, origin: int, size: int) -> tuple[Ints, Ints]:
        """Running counts over the panel's multiples: how many starts before the n-th held the bid, and how many were
        crossed."""
        before = self.first - origin
        held, crossed = np.zeros(size + 1, dtype=np.int64), np.zeros(size + 1, dtype=np.int64)
        held[before + 1 : before + 1 + self.held.size] = self.held
        crossed[before + 1 : before + 1 + self.crossed.size] = self.crossed
        return np.cumsum(held), np.cumsum(crossed)


class CrossingPanel:
    """Markets with their bids, over one window length."""

    def __init__(self, markets: Sequence[tuple[PriceSeries, Bid]], window: int) -> None:
        self.window = window
        self.step = min(max(window // _STARTS_PER_WINDOW, _FINEST), _COARSEST)
        self.bids = [bid for _, bid in markets]
        self.paths = [PricePath(series) for series, _ in markets]
        starts = [self._starts(path, bid) for path, bid in zip(self.paths, self.bids, strict=True)]
        self._origin = min(market_starts.first for market_starts in starts)
        size = max(market_starts.first + market_starts.held.size for market_starts in starts) - self._origin
        counts = [market_starts.counts(self._origin, size) for market_starts in starts]
        self._held = np.stack([held for held, _ in counts])
        self._crossed = np.stack([crossed for _, crossed in counts])
        self._all_held, self._all_crossed = self._held.sum(axis=0), self._crossed.sum(axis=0)

    @property
    def starts_per_window(self) -> float:
        """Number of starts within one window; their windows overlap, so together they carry one independent outcome."""
        return max(self.window / self.step, 1.0)

    def starts_between(self, begin: int, end: int) -> tuple[NDArray[np.intp], Ints]:
        """Market and time of all starts in [begin, end] that held their bid and have a known outcome."""
        low, high = self._before(begin - 1), self._before(end)
        market, offset = np.nonzero(np.diff(self._held[:, low : high + 1], axis=1))
        return market, (self._origin + low + offset) * self.step

    def crossed(self, market: NDArray[np.intp], times: Ints) -> Bools:
        """Whether the bids of starts from `starts_between` were crossed."""
        place = times // self.step - self._origin
        happened: Bools = self._crossed[market, place + 1] > self._crossed[market, place]
        return happened

    def shares(self, until: int) -> tuple[Floats, float]:
        """Share of crossed starts among those known by a time: per market, and pooled over all markets.

        A market without starts gets the pooled share.
        """
        known = self._before(until - self.window)
        held, crossed = self._held[:, known], self._crossed[:, known]
        pooled = float(crossed.sum() / max(held.sum(), 1))
        return np.where(held > 0, crossed / np.maximum(held, 1), pooled), pooled

    def span_known(self, until: int) -> tuple[int, int]:
        """The first start of the panel, and the last whose outcome is known by a time."""
        known = self._before(until - self.window)
        return self._origin * self.step, (self._origin + max(known - 1, 0)) * self.step

    def crossings(self, until: int) -> int:
        """Number of crossed starts in all markets, of those known by a time."""
        return int(self._all_crossed[self._before(until - self.window)])

    def windows(self, market: int, until: int) -> float:
        """Number of non-overlapping windows that a market's known starts span."""
        return float(self._held[market, self._before(until - self.window)] / self.starts_per_window)

    def rows(self, market: NDArray[np.intp], times: Ints) -> PanelRows:
        """Features of starts, sorted by market; outcomes are those of the stored series."""
        order = np.argsort(market, kind="stable")
        market, times = market[order], times[order]
        parts, crossed = [np.empty((0, len(FEATURES)))], [np.empty(0, dtype=bool)]
        for code in np.unique(market):
            at = times[market == code]
            limits = self._limits(int(code), at)
            parts.append(self.paths[code].features(at, limits))
            crossed.append(self.paths[code].highest_after(at, self.window) > limits)
        data = np.column_stack([np.concatenate(parts), self._past(market, times)])
        return PanelRows(market, times, data, np.concatenate(crossed))

    def _starts(self, path: PricePath, bid: Bid) -> _Starts:
        first = -(-path.series.first // self.step)
        times = np.arange(first, (path.series.last - self.window) // self.step + 1, dtype=np.int64) * self.step
        held_price = path.series.prices[path.index_at(times)]
        limits = bid.limits(held_price)
        held = held_price <= limits
        if path.series.watched is not None:
            held &= is_whole(times, self.window, path.series.watched)
        return _Starts(first, held, held & (path.highest_after(times, self.window) > limits))

    def _limits(self, market: int, times: Ints) -> Ints:
        path = self.paths[market]
        return self.bids[market].limits(path.series.prices[path.index_at(times)])

    def _before(self, time: int) -> int:
        """Number of multiples of the step at or before a moment."""
        return int(np.clip(time // self.step + 1 - self._origin, 0, self._held.shape[1] - 1))

    def _known(self, times: Ints) -> Ints:
        """Number of the panel's starts whose outcome is known at each moment."""
        known: Ints = np.clip((times - self.window) // self.step + 1 - self._origin, 0, self._held.shape[1] - 1)
        return known

    def _past(self, market: NDArray[np.intp], times: Ints) -> Floats:
        """Log-odds of recent shares per span: the pooled share, and the market's own shrunk towards it."""
        until = self._known(times)
        columns = []
        for span, windows in zip(_SPANS, _SHRINKAGE_WINDOWS, strict=True):
            since = np.maximum(until - span // self.step, 0)
            everybody = self._all_held[until] - self._all_held[since]
            pooled = (self._all_crossed[until] - self._all_crossed[since]) / np.maximum(everybody, 1)
            held = self._held[market, until] - self._held[market, since]
            crossed = self._crossed[market, until] - self._crossed[market, since]
            weight = windows * self.starts_per_window
            columns += [_log_odds(pooled), _log_odds((crossed + weight * pooled) / (held + weight))]
        return np.stack(columns, axis=1)


def _log_odds(share: Floats) -> Floats:
    odds: Floats = np.log((share + _SOFTENING) / (1 - share + _SOFTENING))
    return odds
