"""Conditional crossing probability given the present: fitted over many markets, used only where it
proved better.

Boosted trees turn rows of the past into a predictor of rows; they were chosen in a walk-forward
comparison (docs/decisions/0003-eviction-estimates.md). The predictor is used only if, fitted to the
first three quarters of the history, it predicts the last quarter better than both plain shares do,
the market's own and the pooled one. That quarter also says by how much its log-odds are too high or
too low, for likely and unlikely crossings apart, so that predictions are met as often as stated.

A `CrossingPanel` has markets, each with its bid, as the rows that such a model is fitted to and
predicts. A row is a start, a market and a moment, with only what was known then: the present state
of the market (`PricePath.features`) and how recent starts ended, in this market and in all markets,
over several spans. The outcome of a start is known one window later; a start whose window was not
observed as a whole has none, and does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Bools, Floats
from bidbrain.eviction import boosting
from bidbrain.eviction.crossing import Bid, range_extremes
from pricing_data.series import Ints, PriceSeries, is_whole, observed_until
from pricing_data.units import DAY, HOUR, MINUTE

CrossingMethod = Literal["present", "own share", "pooled share"]


# More rows hardly improve the prediction, and an answer at the terminal may take a second.
_MAX_ROWS = 24_000
_MAX_TRIAL_ROWS = 8_000
_MAX_HELD_OUT = 16_000
# Starts whose rows are made at once.
_AT_ONCE = 4096
# The first starts of a history have too little past for their features.
_WARM_UP = 12 * HOUR
_HELD_OUT = 0.25
# With fewer crossings than fill this many windows, a model of when they come is not fitted.
_MIN_CROSSED_WINDOWS = 20
# The starts of a window share its outcome and count several times in sums over starts; these are
# for six starts. With less of them, rare crossings are learned by heart.
_TREES = boosting.TreeSettings(ridge=60.0, leaf_curvature=60.0)
# Log-odds at which predictions are corrected; in between, corrections are interpolated.
_KNOTS = np.arange(-6.0, 5.0)
_AS_STATED = 2.0
"""How many rare crossings, or other outcomes, are taken to have been as likely as stated besides
those held out."""
# The part that is applied: trees that knew three quarters of the history need more correction than
# those that know all.
_PART = 0.5
_LEAST = 1e-6
# Predictions within this distance in log-odds count as alike: 0.5 and 0.62, or 0.05 and 0.08.
_SAME_LOG_ODDS = 0.5


@dataclass(frozen=True, slots=True)
class CrossingModel:
    """The odds of starts and the reason for them: `shares` by market and distance of the panel, or
    if there is a `forest`, its predictions, with `corrections` of log-odds at `_KNOTS`.

    `inflation` is the number of starts that carry as much information as one independent start,
    `trial` the predictions of held-out starts.
    """

    method: CrossingMethod
    shares: Floats
    inflation: float
    reason: str
    forest: boosting.Forest | None = None
    corrections: Floats | None = None
    trial: Floats | None = None

    def predict(self, rows: PanelRows) -> Floats:
        """The odds of each row."""
        if self.forest is None or self.corrections is None:
            return self.shares[rows.market, rows.rung]
        odds = boosting.log_odds(self.forest.probabilities(rows.data))
        return boosting.logistic(odds + np.interp(odds, _KNOTS, self.corrections))

    def odds(self, panel: CrossingPanel, market: NDArray[np.intp], times: Ints) -> Floats:
        """The odds of starts at the panel's distances (columns), which never rise with these: the
        mean of the highest such odds that are nowhere above the predicted ones, and of the lowest
        that are nowhere below."""
        flat = [np.empty(0)]
        for first in range(0, times.size, _AT_ONCE):
            part = slice(first, first + _AT_ONCE)
            flat.append(self.predict(panel.rows(market[part], times[part])))

        predicted = np.concatenate(flat).reshape(-1, panel.distances.size)
        below = np.minimum.accumulate(predicted, axis=1)
        above = np.maximum.accumulate(predicted[:, ::-1], axis=1)[:, ::-1]
        falling: Floats = (below + above) / 2
        return falling

    def share_alike(self, probability: float, rung: int) -> float:
        """Share of starts with about the same prediction at a distance of the panel: only their
        outcomes say how good such a prediction is.
        """
        if self.method != "present" or self.trial is None:
            return 1.0
        value = np.array([probability])
        trial = self.trial[:, rung]
        apart = np.abs(boosting.log_odds(trial) - boosting.log_odds(value))
        alike = np.mean(apart < _SAME_LOG_ODDS)
        return max(float(alike), 1 / trial.size)


def fit(panel: CrossingPanel, until: int, rng: np.random.Generator) -> CrossingModel:
    """The model of everything known at a time: boosted trees if they win on held-out starts, else
    the better plain share."""
    own, pooled = panel.shares(until)
    plain = CrossingModel("own share", own, panel.starts_per_window, "")
    if panel.crossings(until) < _MIN_CROSSED_WINDOWS * panel.starts_per_window:
        return replace(plain, reason="too few crossings in these markets to fit a model")

    begin, end = panel.span_known(until)
    split = int(end - _HELD_OUT * (end - begin))
    trial = _forest(panel, begin, split, _MAX_TRIAL_ROWS, rng)
    if trial is None:
        return replace(plain, reason="the history is too short to fit a model")

    market, times = panel.starts_between(split, end)
    if not market.size:
        return replace(plain, reason="the last quarter of the history was not observed")

    # Some of the starts are enough; the others would have told about the same.
    most = _MAX_HELD_OUT // panel.distances.size
    chosen = np.sort(rng.choice(market.size, min(most, market.size), replace=False))
    rows = panel.rows(market[chosen], times[chosen])
    predicted = trial.probabilities(rows.data)
    then_own, then_pooled = panel.shares(split)
    scores: dict[CrossingMethod, float] = {
        "present": brier(predicted, rows),
        "own share": brier(then_own[rows.market, rows.rung], rows),
        "pooled share": brier(then_pooled[rows.rung], rows),
    }
    weighed = market.size / chosen.size
    inflation = _inflation(predicted, rows, weighed, panel.starts_per_window)
    best = min(scores, key=scores.__getitem__)
    reason = f"Brier score on the last quarter: {scores['present']:.4f} given the present"
    reason += (
        f", {scores['own share']:.4f} with each market's own share, {scores['pooled share']:.4f} "
        "with the pooled share"
    )
    plain = replace(plain, inflation=inflation, reason=reason)
    if best == "pooled share":
        return replace(plain, method=best, shares=np.broadcast_to(pooled, own.shape))

    forest = None
    if best == "present":
        forest = _forest(panel, begin, until, _MAX_ROWS, rng)
    if forest is None:
        return plain

    odds = boosting.log_odds(predicted)
    corrections = _corrections(odds, rows.crossed, weighed / inflation)
    corrected = boosting.logistic(odds + np.interp(odds, _KNOTS, corrections))
    return replace(
        plain,
        method=best,
        forest=forest,
        corrections=corrections,
        trial=corrected.reshape(-1, panel.distances.size),
    )


def _forest(
    panel: CrossingPanel, begin: int, until: int, most: int, rng: np.random.Generator
) -> boosting.Forest | None:
    """Fits trees to the starts between two times, outcomes included; None if all outcomes are the
    same.
    """
    warm = begin + min(_WARM_UP, (until - begin) // 4)
    market, times = panel.starts_between(warm, until - panel.window)
    crossed = panel.crossed(market, times)
    if crossed.all() or not crossed.any():
        return None

    places, weights = _sampled(crossed, most, rng)
    start, rung = np.divmod(places, panel.distances.size)
    rows = panel.rows(market[start], times[start], panel.distances[rung])
    outcomes = rows.crossed.astype(np.float64)
    return boosting.fit(rows.data, outcomes, weights, _TREES, rng)


def _sampled(crossed: Bools, most: int, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Starts and distances, by their place in a table of both, with weights that restore the whole:
    at each distance all crossings where they are rare, and a sample of the rest."""
    rungs = crossed.shape[1]
    of_rung = most // rungs
    places = []
    weights = []
    for rung in range(rungs):
        yes = np.flatnonzero(crossed[:, rung])
        no = np.flatnonzero(~crossed[:, rung])
        of_yes = min(yes.size, of_rung // 2)
        for starts, count in ((yes, of_yes), (no, min(no.size, of_rung - of_yes))):
            some = rng.choice(starts, count, replace=False)
            places.append(some * rungs + rung)
            weights.append(np.full(count, starts.size / max(count, 1)))

    place = np.concatenate(places)
    order = np.argsort(place)
    return place[order], np.concatenate(weights)[order]


def between(distances: Ints, odds: Floats, asked: Ints) -> Floats:
    """The odds of starts at the distances that are asked, by their logarithm, from those at known
    distances (columns); beyond these, the outermost."""
    if distances.size == 1:
        return odds[:, 0]
    known = np.log1p(distances / distances[1])
    wanted = np.clip(np.log1p(asked / distances[1]), known[0], known[-1])
    left = np.clip(np.searchsorted(known, wanted, side="right") - 1, 0, known.size - 2)
    part = (wanted - known[left]) / (known[left + 1] - known[left])
    rows = np.arange(len(odds))
    nearer = odds[rows, left]
    farther = odds[rows, left + 1]
    # Rounding must not bring odds below those of the next distance.
    at: Floats = np.maximum(nearer + part * (farther - nearer), farther)
    return at


def _corrections(odds: Floats, crossed: Bools, weight: float) -> Floats:
    """A part of how much the log-odds of held-out starts were too low near each of `_KNOTS`, if
    each start counts as `weight` independent ones; where few were near, hardly anything."""
    near = np.abs(odds - _KNOTS[:, None])
    farther = np.where(near <= 1.5, 0.5, 0.0)
    counted = weight * np.where(near <= 0.5, 1.0, farther)
    starts = np.maximum(counted.sum(axis=1), _LEAST)
    stated = counted @ boosting.logistic(odds) / starts
    assumed = _AS_STATED / np.maximum(stated * (1 - stated), _LEAST)
    seen = (counted @ crossed + assumed * stated) / (starts + assumed)
    odds_seen, odds_stated = (
        np.log((share + _LEAST) / (1 - share + _LEAST)) for share in (seen, stated)
    )
    corrections: Floats = _PART * (odds_seen - odds_stated)

    return corrections


def brier(predicted: Floats, rows: PanelRows) -> float:
    """The mean squared difference of predictions and outcomes."""
    if rows.times.size:
        return float(np.mean((predicted - rows.crossed) ** 2))
    return float("inf")


def _inflation(predicted: Floats, rows: PanelRows, sampled: float, least: float) -> float:
    """Variance of a market-day's errors relative to that of independent starts, of which one in
    `sampled` has a row."""
    days = rows.times // DAY
    days_in_all = int(days.max()) + 1
    day_of_market = (rows.market * days_in_all + days) * (int(rows.rung.max()) + 1) + rows.rung
    _, block = np.unique(day_of_market, return_inverse=True)
    missed = np.bincount(block, predicted - rows.crossed)
    expected = float(np.sum(predicted * (1 - predicted)))
    if expected > 0:
        total_missed = np.sum(missed**2)
        together = float(total_missed) / expected - 1
        return max(least, 1 + sampled * together)
    return least


_LOOKBACKS = (HOUR, 6 * HOUR, DAY, 7 * DAY)
# Floor of the volatility that distances are divided by; a hundredth of a percent per hour counts as
# still.
_STILL = 1e-4
_CLIP = 3.0

FEATURES = (
    *("rise needed", "rise needed / travel of 24 h"),
    *(
        "limit over high of 1 h",
        "limit over high of 6 h",
        "limit over high of 24 h",
        "limit over high of 7 d",
    ),
    *("moves in 1 h", "moves in 6 h", "moves in 24 h", "travel in 1 h", "travel in 24 h"),
    *("price over low of 1 h", "price over low of 24 h", "price over low of 7 d"),
    *(
        "place in range of 24 h",
        "place in range of 7 d",
        "price over mean of 24 h",
        "price over mean of 7 d",
    ),
    *(
        "time since last move",
        "direction of last move",
        "hour of day, sine",
        "hour of day, cosine",
        "price",
    ),
)
"""The columns of `PricePath.features`."""


class PricePath:
    """Range extremes, counts and sums over a series. Moments lie within its span; later events are
    never read.

    Means and rates are over observed time; what prices did in a hole is unknown.
    """

    def __init__(self, series: PriceSeries) -> None:
        self.series = series
        self._high = range_extremes(series.prices, series.prices.size, np.maximum)
        self._low = range_extremes(series.prices, series.prices.size, np.minimum)
        steps = np.diff(series.prices, prepend=series.prices[0])
        self._moves = np.cumsum(steps != 0)
        self._travel = np.cumsum(np.abs(steps) / 1e9)
        numbers = np.arange(steps.size)
        moves = np.where(steps != 0, numbers, 0)
        self._last_move = np.maximum.accumulate(moves)
        self._direction = np.sign(steps)[self._last_move]

    def index_at(self, times: Ints) -> Ints:
        """The last event at or before each moment."""
        return np.searchsorted(self.series.times, times, side="right") - 1

    def highest_after(self, times: Ints, window: int) -> Ints:
        """The highest price of events in (t, t + window]; 0, which evicts no bid, without any."""
        begin = self.index_at(times) + 1
        end = self.index_at(times + window) + 1
        highest = np.zeros(times.size, dtype=np.int64)
        some = end > begin
        highest[some] = _query(self._high, begin[some], end[some], np.maximum)
        return highest

    def features(self, times: Ints, limits: Ints) -> Floats:
        """Features of a moment and a bid, in the order of `FEATURES`; logarithms where ratios
        matter.
        """
        at = self.index_at(times)
        price = self.series.prices[at].astype(np.float64)
        begin = {}
        for span in _LOOKBACKS:
            since = np.maximum(times - span, self.series.first)
            begin[span] = self.index_at(since)
        log_high = {
            span: np.log(_query(self._high, i, at + 1, np.maximum)) for span, i in begin.items()
        }
        low = {span: _query(self._low, i, at + 1, np.minimum) for span, i in begin.items()}
        hours = {}
        for span in _LOOKBACKS:
            observed = self._observed(times, span)
            hours[span] = np.clip(observed, HOUR, span) / HOUR
        travel = dict[int, Floats]()
        for span, i in begin.items():
            moved = (self._travel[at] - self._travel[i]) * 1e9
            per_hour = moved / (price * hours[span])
            travel[span] = np.log(per_hour + _STILL)

        # How far the bid is above the price, next to how far prices move in a day.
        distance = limits / price - 1
        needed = np.log(np.maximum(distance, _STILL / 10))
        columns = [needed, needed - travel[DAY]]
        log_limit = np.log(limits)
        log_price = np.log(price)
        columns += [np.clip(log_limit - log_high[span], -_CLIP, _CLIP) for span in _LOOKBACKS]
        for span in _LOOKBACKS[:3]:
            moves = self._moves[at] - self._moves[begin[span]]
            columns.append(np.log1p(moves / hours[span]))

        columns += [travel[HOUR], travel[DAY]]

        # Where the price stands in what it was.
        longer = (DAY, 7 * DAY)
        columns += [np.log(price / low[span]) for span in (HOUR, *longer)]
        for span in longer:
            high = np.exp(log_high[span])
            width = np.maximum(high - low[span], 1.0)
            place = (price - low[span]) / width
            columns.append(np.where(high > low[span], place, 0.5))

        columns += [log_price - self._mean_log(times, at, span) for span in longer]

        since_move = times - self.series.times[self._last_move[at]]
        columns += [np.log1p(since_move / MINUTE), self._direction[at]]
        day = 2 * np.pi * (times % DAY) / DAY
        columns += [np.sin(day), np.cos(day), log_price]
        return np.stack(columns, axis=1)

    def _until(self, times: Ints) -> Ints:
        """The observed time before each moment, from anywhere."""
        watched = self.series.watched
        if watched is None:
            return times
        return observed_until(times, watched)

    def _observed(self, times: Ints, span: int) -> Ints:
        """The observed time in the span before each moment."""
        before = np.maximum(times - span, self.series.first)
        return self._until(times) - self._until(before)

    @cached_property
    def _log_integral(self) -> Floats:
        spent = self.series.held / HOUR
        paid = self.series.prices[:-1]
        weighed = np.log(paid) * spent
        summed = np.cumsum(weighed)
        return np.concatenate(([0.0], summed))

    def _mean_log(self, times: Ints, at: Ints, span: int) -> Floats:
        """The time-weighted mean logarithm of the price over the span before each moment."""
        since = np.maximum(times - span, self.series.first)
        first = self.index_at(since)
        observed = self._observed(times, span)
        spent = np.maximum(observed, 1) / HOUR
        total = self._log_integral_to(times, at) - self._log_integral_to(since, first)
        log_price = np.log(self.series.prices[at])
        mean: Floats = np.where(observed > 0, total / spent, log_price)
        return mean

    def _log_integral_to(self, times: Ints, at: Ints) -> Floats:
        log_price = np.log(self.series.prices[at])
        since = self._until(times) - self._until(self.series.times[at])
        hours = since / HOUR
        rest = log_price * hours
        integral: Floats = self._log_integral[at] + rest
        return integral


def _query(table: Ints, begin: Ints, end: Ints, of: np.ufunc) -> Ints:
    """The extreme of values[begin:end], at least one value each, from two overlapping powers of
    two.
    """
    level = np.frexp(end - begin)[1] - 1
    at_begin = table[level, begin]
    last = end - (1 << level)
    at_end = table[level, last]
    answer: Ints = of(at_begin, at_end)
    return answer


_SPANS = (3 * HOUR, 12 * HOUR, 2 * DAY, 14 * DAY)
_STARTS_PER_WINDOW = 6
_FINEST, _COARSEST = 2 * MINUTE, 30 * MINUTE
# A market's own share over n windows has weight n against this many windows of the pooled share.
_SHRINKAGE_WINDOWS = (2.0, 2.0, 4.0, 8.0)
# Shares of rises that are below the distances above 0: closer where rises are rare, since bids of
# the on-demand price are there.
_RISES_BELOW = (0.02, *np.linspace(0.1, 0.9, 9), 0.95, 0.975, 0.99, 0.996, 1.0)
# Keeps log-odds finite: a share of 0 among thousands of starts is not a probability of 0.
_SOFTENING = 1e-4


@dataclass(frozen=True, slots=True)
class PanelRows:
    """Starts in one or more markets, each with a bid: the features known then (a row of `data`),
    and whether the bid was crossed. `above` is how far the bid is above the price, and `rung` the
    number of the panel's distance that is nearest.
    """

    market: NDArray[np.intp]
    times: Ints
    above: Ints
    rung: NDArray[np.intp]
    data: Floats
    crossed: Bools


class CrossingPanel:
    """Markets with their bids, over one window length.

    With `known`, each start also has bids at `distances` above that bid, up to the greatest rise of
    a price that was known by that moment: one model of them all tells how the odds fall with the
    distance.
    """

    def __init__(
        self, markets: Sequence[tuple[PriceSeries, Bid]], window: int, known: int | None = None
    ) -> None:
        self.window = window
        self.step = min(max(window // _STARTS_PER_WINDOW, _FINEST), _COARSEST)
        self.bids = [bid for _, bid in markets]
        self.paths = [PricePath(series) for series, _ in markets]
        starts = []
        rises = [np.empty(0, dtype=np.int64)]

        # The number of the first start in each market, at a multiple of the step; which starts from
        # there on held the bid, and how far the price then rose above it.
        for path, bid in zip(self.paths, self.bids, strict=True):
            earliest = -(-path.series.first // self.step)
            latest = path.series.last - self.window
            numbers = np.arange(earliest, latest // self.step + 1, dtype=np.int64)
            times = numbers * self.step
            held_price = path.series.prices[path.index_at(times)]
            limits = bid.limits(held_price)
            held_bid = held_price <= limits
            if path.series.watched is not None:
                held_bid &= is_whole(times, self.window, path.series.watched)
            rise = path.highest_after(times, self.window) - limits
            starts.append((earliest, held_bid, rise))
            if known is not None:
                rises.append(rise[held_bid & (rise > 0) & (times + window <= known)])

        # From 0 to the greatest rise, which no price was above.
        known_rises = np.concatenate(rises)
        self.distances = np.zeros(1, dtype=np.int64)
        if known_rises.size:
            quantiles = np.ceil(np.quantile(known_rises, _RISES_BELOW))
            self.distances = np.unique(np.append(quantiles.astype(np.int64), 0))

        # Where the nearest of these is another one.
        self.middles = (self.distances[1:] + self.distances[:-1]) // 2
        self._origin = min(first for first, _, _ in starts)
        ends = max(first + held.size for first, held, _ in starts)
        size = ends - self._origin
        held_by_market = []
        crossed_by_market = []
        for first, held, rise in starts:
            over = held & (rise > self.distances[:, None])
            held_by_market.append(_running(held, first - self._origin, size))
            crossed_by_market.append(_running(over, first - self._origin, size))

        # By market, and crossings by distance before that.
        self._held = np.stack(held_by_market)
        self._crossed = np.stack(crossed_by_market, axis=1)
        self._all_held = self._held.sum(axis=0)
        self._all_crossed = self._crossed.sum(axis=1)

    @property
    def starts_per_window(self) -> float:
        """Number of starts within one window; their windows overlap, so together they carry one
        independent outcome.
        """
        return max(self.window / self.step, 1.0)

    def starts_between(self, begin: int, end: int) -> tuple[NDArray[np.intp], Ints]:
        """Market and time of all starts in [begin, end] that held their bid and have a known
        outcome.
        """
        low = self._before(begin - 1)
        high = self._before(end)
        counts = self._held[:, low : high + 1]
        market, offset = np.nonzero(np.diff(counts, axis=1))
        return market, (self._origin + low + offset) * self.step

    def crossed(self, market: NDArray[np.intp], times: Ints) -> Bools:
        """Whether the bids of starts from `starts_between` were crossed, at each distance (a
        column)."""
        place = times // self.step - self._origin
        after = self._crossed[:, market, place + 1]
        happened: Bools = after > self._crossed[:, market, place]
        return happened.T

    def shares(self, until: int) -> tuple[Floats, Floats]:
        """Share of crossed starts among those known by a time, at each distance: per market (a
        row), and pooled over all markets.

        A market without starts gets the pooled share.
        """
        known = self._before(until - self.window)
        held = self._held[:, known]
        crossed = self._crossed[:, :, known]
        pooled: Floats = crossed.sum(axis=1) / max(held.sum(), 1)
        shares = crossed / np.maximum(held, 1)
        return np.where(held > 0, shares, pooled[:, None]).T, pooled

    def span_known(self, until: int) -> tuple[int, int]:
        """The first start of the panel, and the last whose outcome is known by a time."""
        known = self._before(until - self.window)
        begin = self._origin * self.step
        starts = max(known - 1, 0)
        return begin, (self._origin + starts) * self.step

    def crossings(self, until: int, distance: int = 0) -> int:
        """Number of starts known by a time, in all markets, whose bid at the next lower of the
        panel's distances was crossed."""
        rung = np.searchsorted(self.distances, distance, side="right") - 1
        return int(self._all_crossed[rung, self._before(until - self.window)])

    def windows(self, market: int, until: int) -> float:
        """Number of non-overlapping windows that a market's known starts span."""
        before = until - self.window
        starts = self._held[market, self._before(before)]
        return float(starts / self.starts_per_window)

    def rows(
        self, market: NDArray[np.intp], times: Ints, distances: Ints | None = None
    ) -> PanelRows:
        """Features of starts, sorted by market; outcomes are those of the stored series. Each start
        has its distance, any one, or else all of the panel's, one after the other."""
        if distances is None:
            count = self.distances.size
            distances = np.tile(self.distances, times.size)
            market, times = np.repeat(market, count), np.repeat(times, count)

        order = np.argsort(market, kind="stable")
        market = market[order]
        times = times[order]
        distances = distances[order]
        parts = [np.empty((0, len(FEATURES)))]
        crossed = [np.empty(0, dtype=bool)]
        above = [np.empty(0, dtype=np.int64)]
        for code in np.unique(market):
            here = market == code
            at = times[here]
            path = self.paths[code]
            price = path.series.prices[path.index_at(at)]
            limits = self.bids[code].limits(price) + distances[here]
            above.append(limits - price)
            parts.append(path.features(at, limits))
            crossed.append(path.highest_after(at, self.window) > limits)

        rung = np.searchsorted(self.middles, distances, side="left")
        past = self._past(market, times, rung)
        data = np.column_stack([np.concatenate(parts), past])
        return PanelRows(market, times, np.concatenate(above), rung, data, np.concatenate(crossed))

    def _past(self, market: NDArray[np.intp], times: Ints, rung: NDArray[np.intp]) -> Floats:
        """Log-odds of recent shares per span, of the panel's starts whose outcome is known at each
        moment: the pooled share, and the market's own shrunk towards it."""
        ended = (times - self.window) // self.step + 1
        until = np.clip(ended - self._origin, 0, self._held.shape[1] - 1)
        past = []
        for span, windows in zip(_SPANS, _SHRINKAGE_WINDOWS, strict=True):
            since = np.maximum(until - span // self.step, 0)
            everybody = self._all_held[until] - self._all_held[since]
            crossed_by_all = self._all_crossed[rung, until] - self._all_crossed[rung, since]
            pooled = crossed_by_all / np.maximum(everybody, 1)
            own_held = self._held[market, until] - self._held[market, since]
            own_crossed = self._crossed[rung, market, until] - self._crossed[rung, market, since]
            weight = windows * self.starts_per_window
            share = (own_crossed + weight * pooled) / (own_held + weight)
            past += [pooled, share]

        shares = np.stack(past, axis=1)
        odds: Floats = np.log((shares + _SOFTENING) / (1 - shares + _SOFTENING))
        return odds

    def _before(self, time: int) -> int:
        """Number of multiples of the step at or before a moment."""
        place = time // self.step + 1 - self._origin
        most = self._held.shape[1] - 1
        return int(np.clip(place, 0, most))


def _running(chosen: Bools, before: int, size: int) -> Ints:
    """How many starts before the n-th multiple of the step are chosen; the first is at the multiple
    `before`.
    """
    counts = np.zeros((*chosen.shape[:-1], size + 1), dtype=np.int64)
    counts[..., before + 1 : before + 1 + chosen.shape[-1]] = chosen
    return np.cumsum(counts, axis=-1)
