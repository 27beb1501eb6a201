"""`PricePath`: a market's history indexed for features of many moments, each computed from its past alone."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pricing_data.series import Ints, PriceSeries, observed_until
from pricing_data.units import DAY, HOUR, MINUTE

Floats = NDArray[np.float64]

_LOOKBACKS = (HOUR, 6 * HOUR, DAY, 7 * DAY)
# Floor of the volatility that distances are divided by; a hundredth of a percent per hour counts as still.
_STILL = 1e-4
_CLIP = 3.0

FEATURES = (
    *("rise needed", "rise needed / travel of 24 h"),
    *("limit over high of 1 h", "limit over high of 6 h", "limit over high of 24 h", "limit over high of 7 d"),
    *("moves in 1 h", "moves in 6 h", "moves in 24 h", "travel in 1 h", "travel in 24 h"),
    *("price over low of 1 h", "price over low of 24 h", "price over low of 7 d"),
    *("place in range of 24 h", "place in range of 7 d", "price over mean of 24 h", "price over mean of 7 d"),
    *("time since last move", "direction of last move", "hour of day, sine", "hour of day, cosine", "price"),
)
"""The columns of `PricePath.features`."""


class PricePath:
    """Range extremes, counts and sums over a series. Moments lie within its span; later events are never read.

    Means and rates are over observed time; what prices did in a hole is unknown.
    """

    def __init__(self, series: PriceSeries) -> None:
        self.series = series
        self._high = range_extremes(series.prices, series.prices.size, np.maximum)
        self._low = range_extremes(series.prices, series.prices.size, np.minimum)
        steps = np.diff(series.prices, prepend=series.prices[0])
        self._moves = np.cumsum(steps != 0)
        self._travel = np.cumsum(np.abs(steps) / 1e9)
        self._last_move = np.maximum.accumulate(np.where(steps != 0, np.arange(steps.size), 0))
        self._direction = np.sign(steps)[self._last_move]

    def index_at(self, times: Ints) -> Ints:
        """The last event at or before each moment."""
        return np.searchsorted(self.series.times, times, side="right") - 1

    def highest_after(self, times: Ints, window: int) -> Ints:
        """The highest price of events in (t, t + window]; 0, which evicts no bid, without any."""
        begin, end = self.index_at(times) + 1, self.index_at(times + window) + 1
        highest = np.zeros(times.size, dtype=np.int64)
        some = end > begin
        highest[some] = _query(self._high, begin[some], end[some], np.maximum)
        return highest

    def features(self, times: Ints, limits: Ints) -> Floats:
        """Features of a moment and a bid, in the order of `FEATURES`; logarithms where ratios matter."""
        at = self.index_at(times)
        price = self.series.prices[at].astype(np.float64)
        begin = {span: self._begin(times, span) for span in _LOOKBACKS}
        log_high = {span: np.log(_query(self._high, i, at + 1, np.maximum)) for span, i in begin.items()}
        low = {span: _query(self._low, i, at + 1, np.minimum) for span, i in begin.items()}
        hours = {span: np.clip(self._observed(times, span), HOUR, span) / HOUR for span in _LOOKBACKS}
        travel = {
            span: np.log((self._travel[at] - self._travel[i]) * 1e9 / (price * hours[span]) + _STILL)
            for span, i in begin.items()
        }
        needed = np.log(np.maximum(limits / price - 1, _STILL / 10))
        day = 2 * np.pi * (times % DAY) / DAY
        columns = [
            needed,
            needed - travel[DAY],
            *(np.clip(np.log(limits) - log_high[span], -_CLIP, _CLIP) for span in _LOOKBACKS),
            *(np.log1p((self._moves[at] - self._moves[begin[s]]) / hours[s]) for s in _LOOKBACKS[:3]),
            *(travel[HOUR], travel[DAY]),
            *(np.log(price / low[span]) for span in (HOUR, DAY, 7 * DAY)),
            *(_place(price, low[span], np.exp(log_high[span])) for span in (DAY, 7 * DAY)),
            *(np.log(price) - self._mean_log(times, at, span) for span in (DAY, 7 * DAY)),
            np.log1p((times - self.series.times[self._last_move[at]]) / MINUTE),
            *(self._direction[at], np.sin(day), np.cos(day), np.log(price)),
        ]
        return np.stack(columns, axis=1)

    def _begin(self, times: Ints, span: int) -> Ints:
        return self.index_at(np.maximum(times - span, self.series.first))

    def _until(self, times: Ints) -> Ints:
        """The observed time before each moment, from anywhere."""
        watched = self.series.watched
        return times if watched is None else observed_until(times, watched)

    def _observed(self, times: Ints, span: int) -> Ints:
        """The observed time in the span before each moment."""
        return self._until(times) - self._until(np.maximum(times - span, self.series.first))

    @cached_property
    def _log_integral(self) -> Floats:
        spent = self.series.held / HOUR
        return np.concatenate(([0.0], np.cumsum(np.log(self.series.prices[:-1]) * spent)))

    def _mean_log(self, times: Ints, at: Ints, span: int) -> Floats:
        """The time-weighted mean logarithm of the price over the span before each moment."""
        since = np.maximum(times - span, self.series.first)
        first = self.index_at(since)
        observed = self._observed(times, span)
        spent = np.maximum(observed, 1) / HOUR
        total = self._log_integral_to(times, at) - self._log_integral_to(since, first)
        mean: Floats = np.where(observed > 0, total / spent, np.log(self.series.prices[at]))
        return mean

    def _log_integral_to(self, times: Ints, at: Ints) -> Floats:
        rest = np.log(self.series.prices[at]) * ((self._until(times) - self._until(self.series.times[at])) / HOUR)
        integral: Floats = self._log_integral[at] + rest
        return integral


def _place(price: Floats, low: Ints, high: Floats) -> Floats:
    """Position of a price between a low (0) and a high (1); 0.5 in an empty range."""
    place: Floats = np.where(high > low, (price - low) / np.maximum(high - low, 1.0), 0.5)
    return place


def range_extremes(values: Ints, longest: int, of: np.ufunc) -> Ints:
    """`table[k, i]`: the extreme of the 2**k values from i on (fewer at the end), for all 2**k up to `longest`."""
    table = [values]
    while 2 << (len(table) - 1) <= longest:
        half, previous = 1 << (len(table) - 1), table[-1]
        table.append(of(previous, np.concatenate((previous[half:], previous[-1:].repeat(half)))[: values.size]))
    return np.stack(table)


def _query(table: Ints, begin: Ints, end: Ints, of: np.ufunc) -> Ints:
    """The extreme of values[begin:end], at least one value each, from two overlapping powers of two."""
    level = np.frexp(end - begin)[1] - 1
    answer: Ints = of(table[level, begin], table[level, end - (1 << level)])
    return answer
