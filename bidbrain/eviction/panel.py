"""`Panel`: markets side by side, each with its bid, as rows that a model of price crossing learns from and answers.

A row is a start: a market and a moment. It holds what was known then and nothing later: the present of the market
(`PricePath.features`) and how starts fared lately, its own and everybody's, over several spans. A start counts as known
one window after it, when its outcome is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bidbrain.eviction.bids import Bid
from bidbrain.eviction.path import Floats, PricePath
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE

_SPANS = (3 * HOUR, 12 * HOUR, 2 * DAY, 14 * DAY)
_STARTS_PER_WINDOW = 6
_FINEST, _COARSEST = 2 * MINUTE, 30 * MINUTE
# An own share over n windows counts n against this many windows of everybody's share.
_SHRINKAGE_WINDOWS = (2.0, 2.0, 4.0, 8.0)
# Keeps log-odds finite: a share of 0 among thousands of starts is not a probability of 0.
_SOFTENING = 1e-4


@dataclass(frozen=True, slots=True)
class Rows:
    """Starts of one or many markets: what was known of each, a row of `data`, and whether its bid was crossed."""

    market: NDArray[np.intp]
    times: Ints
    data: Floats
    crossed: NDArray[np.bool_]

    def __len__(self) -> int:
        return int(self.times.size)


@dataclass(frozen=True, slots=True)
class _Starts:
    """One market's starts at every multiple of the step: running counts of those that held the bid, and crossed."""

    first: int
    held: NDArray[np.bool_]
    crossed: NDArray[np.bool_]

    def counts(self, origin: int, size: int) -> tuple[Ints, Ints]:
        """Running counts over the panel's own multiples: before the n-th, so many held the bid and were crossed."""
        before = self.first - origin
        held, crossed = np.zeros(size + 1, dtype=np.int64), np.zeros(size + 1, dtype=np.int64)
        held[before + 1 : before + 1 + self.held.size] = self.held
        crossed[before + 1 : before + 1 + self.crossed.size] = self.crossed
        return np.cumsum(held), np.cumsum(crossed)


class Panel:
    """Markets with their bids, over one window."""

    def __init__(self, markets: Sequence[tuple[PriceSeries, Bid]], window: int) -> None:
        self.window = window
        self.step = min(max(window // _STARTS_PER_WINDOW, _FINEST), _COARSEST)
        self.bids = [bid for _, bid in markets]
        self.paths = [PricePath(series) for series, _ in markets]
        starts = [self._starts(path, bid) for path, bid in zip(self.paths, self.bids, strict=True)]
        self._origin = min(one.first for one in starts)
        size = max(one.first + one.held.size for one in starts) - self._origin
        counts = [one.counts(self._origin, size) for one in starts]
        self._held = np.stack([held for held, _ in counts])
        self._crossed = np.stack([crossed for _, crossed in counts])
        self._all_held, self._all_crossed = self._held.sum(axis=0), self._crossed.sum(axis=0)

    @property
    def starts_per_window(self) -> float:
        """How many starts one window spans: no more than one of them is independent of the others."""
        return max(self.window / self.step, 1.0)

    def starts_between(self, begin: int, end: int) -> tuple[NDArray[np.intp], Ints]:
        """All starts in [begin, end] that held their bid and whose outcome is known: market and time."""
        low, high = self._before(begin - 1), self._before(end)
        market, offset = np.nonzero(np.diff(self._held[:, low : high + 1], axis=1))
        return market, (self._origin + low + offset) * self.step

    def crossed(self, market: NDArray[np.intp], times: Ints) -> NDArray[np.bool_]:
        """Whether the bids of starts from `starts_between` were crossed."""
        place = times // self.step - self._origin
        happened: NDArray[np.bool_] = self._crossed[market, place + 1] > self._crossed[market, place]
        return happened

    def shares(self, until: int) -> tuple[Floats, float]:
        """The share of starts crossed, of those known by a time: each market's, and everybody's.

        A market without starts gets everybody's share.
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
        """How many starts known by a time were crossed, in all markets."""
        return int(self._all_crossed[self._before(until - self.window)])

    def windows(self, market: int, until: int) -> float:
        """How many windows of one market's known starts fit side by side."""
        return float(self._held[market, self._before(until - self.window)] / self.starts_per_window)

    def rows(self, market: NDArray[np.intp], times: Ints) -> Rows:
        """What was known at starts, sorted by market. Outcomes are those of the series at hand."""
        order = np.argsort(market, kind="stable")
        market, times = market[order], times[order]
        parts, crossed = [], []
        for code in np.unique(market):
            at = times[market == code]
            limits = self._limits(int(code), at)
            parts.append(self.paths[code].features(at, limits))
            crossed.append(self.paths[code].highest_after(at, self.window) > limits)
        data = np.column_stack([np.concatenate(parts), self._past(market, times)])
        return Rows(market, times, data, np.concatenate(crossed))

    def _starts(self, path: PricePath, bid: Bid) -> _Starts:
        first = -(-path.series.first // self.step)
        times = np.arange(first, (path.series.last - self.window) // self.step + 1, dtype=np.int64) * self.step
        held_price = path.series.prices[path.index_at(times)]
        limits = bid.limits(held_price)
        held = held_price <= limits
        return _Starts(first, held, held & (path.highest_after(times, self.window) > limits))

    def _limits(self, market: int, times: Ints) -> Ints:
        path = self.paths[market]
        return self.bids[market].limits(path.series.prices[path.index_at(times)])

    def _before(self, time: int) -> int:
        """How many multiples of the step lie at or before a moment."""
        return int(np.clip(time // self.step + 1 - self._origin, 0, self._held.shape[1] - 1))

    def _known(self, times: Ints) -> Ints:
        """How many of the panel's starts have an outcome that is known at each moment."""
        known: Ints = np.clip((times - self.window) // self.step + 1 - self._origin, 0, self._held.shape[1] - 1)
        return known

    def _past(self, market: NDArray[np.intp], times: Ints) -> Floats:
        """Log-odds of recent shares: everybody's and, shrunk towards it, the market's own, span by span."""
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
