"""Calibration of eviction estimates: walk-forward predictions of later starts, compared with two
plain shares.

At each origin the model is fitted to the history before it; the starts of the following horizon are
then predicted and compared with their outcomes (Brier score: the mean squared difference). Starts
of one day are correlated across all markets, so intervals come from resampling whole days, for both
sides of a comparison alike (paired).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bidbrain.arrays import Bools, Floats
from bidbrain.errors import TooLittleHistory
from bidbrain.eviction.conditional import CrossingMethod, CrossingPanel, between, fit
from bidbrain.eviction.crossing import Bid, BidAbove
from bidbrain.lab.backtest.results import ConfidenceInterval, drawn_blocks, ratio_interval
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import DAY, format_time

_BINS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True)
class CalibrationPlan:
    """The spans of a calibration, in microseconds: those learned from and predicted at each origin,
    and its step.
    """

    window: int
    history: int
    horizon: int
    step: int

    def origins(self, markets: Sequence[tuple[PriceSeries, Bid]]) -> list[int]:
        """Origins with the whole history before them and the whole horizon, with its outcomes,
        after them.
        """
        first = min(series.first for series, _ in markets)
        last = max(series.last for series, _ in markets)
        first_origin = first + self.history
        last_origin = last - self.window - self.horizon + 1
        origins = list(range(first_origin, last_origin, self.step))

        if not origins:
            raise TooLittleHistory(
                f"calibrate: {format_time(first)} to {format_time(last)} cannot hold "
                f"{self.history / DAY:g} days of"
                f" history and {self.horizon / DAY:g} days to predict; use shorter spans, or "
                "import a longer history"
            )

        return origins


class Predicted(NamedTuple):
    """Predicted starts: their times, the predictions of the model and of both plain shares, and the
    outcomes.
    """

    times: Ints
    model: Floats
    own: Floats
    pooled: Floats
    crossed: Bools


class Bin(NamedTuple):
    """Starts whose prediction is in a band: their number, mean prediction, and share of
    crossings."""

    low: float
    """Lower end of the band."""
    high: float
    """Upper end of the band."""
    starts: int
    """Number of windows with a prediction in the band."""
    predicted: float
    """Mean prediction."""
    observed: float
    """Share of these windows in which the price rose above the bid."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Scores over all origins. `methods` counts the method that the model used, origin by
    origin."""

    origins: int
    starts: int
    crossed: float
    brier: float
    brier_own: float
    brier_pooled: float
    against_own: ConfidenceInterval
    """Relative improvement of the Brier score over that of a market's own share."""
    against_pooled: ConfidenceInterval
    """Relative improvement over the share of all markets."""
    methods: dict[CrossingMethod, int]
    reliability: tuple[Bin, ...]

    @property
    def beats_both(self) -> bool:
        """Whether the model beats both baselines: both intervals are above 0."""
        return self.against_own.low > 0 and self.against_pooled.low > 0


def calibrate(
    markets: Sequence[tuple[PriceSeries, Bid]],
    plan: CalibrationPlan,
    rng: np.random.Generator,
) -> Calibration:
    """Scores predictions over all origins of a plan."""
    methods: dict[CrossingMethod, int] = {"present": 0, "own share": 0, "pooled share": 0}
    parts = []
    for origin in plan.origins(markets):
        # Rows after the origin know their own past, but no outcome.
        begin = origin - plan.history
        end = origin + plan.horizon + plan.window
        spanning = []
        for series, bid in markets:
            known_from = series.first + plan.window
            if known_from < origin < series.last - plan.window:
                since = max(series.first, begin)
                until = min(series.last, end)
                spanning.append((series.window(since, until), bid))
        if not spanning:
            continue

        panel = CrossingPanel(spanning, plan.window)
        horizon = origin + plan.horizon
        market, times = panel.starts_between(origin, horizon - 1)
        if not times.size:
            continue

        # The model of a plan is of all bids, and says what it does of this one.
        above = [(series, BidAbove(0)) for series, _ in spanning]
        ladder = CrossingPanel(above, plan.window, origin)
        model = fit(ladder, origin, rng)
        methods[model.method] += 1

        rows = panel.rows(market, times)
        own, pooled = panel.shares(origin)
        own_shares = own[rows.market, rows.rung]
        stated = own_shares
        if model.method != "own share":
            odds = model.odds(ladder, market, times)
            stated = between(ladder.distances, odds, rows.above)

        parts.append(Predicted(times, stated, own_shares, pooled[rows.rung], rows.crossed))

    if not parts:
        raise TooLittleHistory(
            "calibrate: no origin has a market with history before it and starts after it"
        )

    all_parts = zip(*parts, strict=True)
    joined = Predicted(*(np.concatenate(columns) for columns in all_parts))
    return score(joined, methods, len(parts), rng)


def score(
    starts: Predicted, methods: dict[CrossingMethod, int], origins: int, rng: np.random.Generator
) -> Calibration:
    """Scores of predictions, with intervals over resampled days."""
    model, own, pooled = (
        (side - starts.crossed) ** 2 for side in (starts.model, starts.own, starts.pooled)
    )
    _, day = np.unique(starts.times // DAY, return_inverse=True)
    drawn = drawn_blocks(int(day.max()) + 1, rng)

    crossed = starts.crossed.mean()
    against_own = _skill(model, own, day, drawn)
    against_pooled = _skill(model, pooled, day, drawn)

    # How often a prediction came true, by its size.
    place = np.searchsorted(_BINS, starts.model, side="right")
    which = np.clip(place - 1, 0, len(_BINS) - 2)
    bins = []
    for i in np.unique(which):
        inside = which == i
        predicted = float(starts.model[inside].mean())
        observed = float(starts.crossed[inside].mean())
        bins.append(Bin(_BINS[i], _BINS[i + 1], int(inside.sum()), predicted, observed))

    return Calibration(
        origins=origins,
        starts=int(starts.times.size),
        crossed=float(crossed),
        brier=float(model.mean()),
        brier_own=float(own.mean()),
        brier_pooled=float(pooled.mean()),
        against_own=against_own,
        against_pooled=against_pooled,
        methods=methods,
        reliability=tuple(bins),
    )


def _skill(model: Floats, baseline: Floats, day: Ints, drawn: Ints) -> ConfidenceInterval:
    """1 - Brier / Brier of the baseline, and its percentile interval over resampled days."""
    if not baseline.any():
        # The baseline was never wrong, so there is nothing to improve.
        return ConfidenceInterval(0.0, 0.0, 0.0)
    low, high = ratio_interval(model, baseline, day, drawn)
    ratio = model.sum() / baseline.sum()
    return ConfidenceInterval(float(1 - ratio), 1 - high, 1 - low)
