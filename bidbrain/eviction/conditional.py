"""Conditional crossing probability given the present: fitted over many markets, used only where it proved better.

Boosted trees turn rows of the past into a predictor of rows; they were chosen in a walk-forward comparison
(docs/decisions/0003-eviction-estimates.md). The predictor is used only if, fitted to the first three quarters of the
history, it predicts the last quarter better than both plain shares do, the market's own and the pooled one.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bidbrain.arrays import Bools, Floats
from bidbrain.eviction import boosting
from bidbrain.eviction.panel import CrossingPanel, PanelRows
from pricing_data.series import Ints
from pricing_data.units import DAY, HOUR

Predictor = Callable[[PanelRows], Floats]
CrossingMethod = Literal["present", "own share", "pooled share"]


# More rows hardly improve the prediction, and an answer at the terminal may take a second.
_MAX_ROWS = 12_000
# The first starts of a history have too little past for their features.
_WARM_UP = 12 * HOUR
_HELD_OUT = 0.25
# With fewer crossings than fill this many windows, a model of when they come is not fitted.
_MIN_CROSSED_WINDOWS = 20
# Predictions within this distance in log-odds count as alike: 0.5 and 0.62, or 0.05 and 0.08.
_SAME_LOG_ODDS = 0.5


@dataclass(frozen=True, slots=True)
class CrossingModel:
    """A predictor and the reason for using it.

    `inflation` is the number of starts that carry as much information as one independent start, `trial` the predictions
    of held-out starts.
    """

    method: CrossingMethod
    predict: Predictor
    inflation: float
    reason: str
    trial: Floats | None = None

    def share_alike(self, probability: float) -> float:
        """Share of starts with about the same prediction: only their outcomes say how good such a prediction is."""
        if self.method != "present" or self.trial is None:
            return 1.0
        apart = np.abs(boosting.log_odds(self.trial) - boosting.log_odds(np.array([probability])))
        return max(float(np.mean(apart < _SAME_LOG_ODDS)), 1 / self.trial.size)


def fit(panel: CrossingPanel, until: int, rng: np.random.Generator) -> CrossingModel:
    """The model of everything known at a time: boosted trees if they win on held-out starts, else the better plain
    share."""
    own, pooled = panel.shares(until)
    plain = CrossingModel("own share", lambda rows: own[rows.market], panel.starts_per_window, "")
    if panel.crossings(until) < _MIN_CROSSED_WINDOWS * panel.starts_per_window:
        return replace(plain, reason="too few crossings in these markets to fit a model")
    begin, end = panel.span_known(until)
    split = int(end - _HELD_OUT * (end - begin))
    trial = _predictor(panel, begin, split, rng)
    if trial is None:
        return replace(plain, reason="the history is too short to fit a model")
    market, times = panel.starts_between(split, end)
    if not market.size:
        return replace(plain, reason="the last quarter of the history was not observed")
    rows = panel.rows(market, times)
    then_own, then_pooled = panel.shares(split)
    predicted = trial(rows)
    scores: dict[CrossingMethod, float] = {
        "present": brier(predicted, rows),
        "own share": brier(then_own[rows.market], rows),
        "pooled share": brier(np.full(len(rows), then_pooled), rows),
    }
    inflation = _inflation(predicted, rows, panel.starts_per_window)
    best = min(scores, key=lambda method: scores[method])
    reason = f"Brier score on the last quarter: {scores['present']:.4f} given the present"
    reason += (
        f", {scores['own share']:.4f} with each market's own share, {scores['pooled share']:.4f} with the pooled share"
    )
    if best == "pooled share":
        return CrossingModel(best, lambda rows: np.full(len(rows), pooled), inflation, reason)
    final = _predictor(panel, begin, until, rng) if best == "present" else None
    return CrossingModel(best if final else "own share", final or plain.predict, inflation, reason, predicted)


def _predictor(panel: CrossingPanel, begin: int, until: int, rng: np.random.Generator) -> Predictor | None:
    """Fits trees to the starts between two times, outcomes included; None if all outcomes are the same."""
    warm = begin + min(_WARM_UP, (until - begin) // 4)
    market, times = panel.starts_between(warm, until - panel.window)
    crossed = panel.crossed(market, times)
    if crossed.all() or not crossed.any():
        return None
    chosen, weights = _sample(crossed, rng)
    rows = panel.rows(market[chosen], times[chosen])
    forest = boosting.fit(rows.data, rows.crossed.astype(np.float64), weights, boosting.TreeSettings(), rng)
    return lambda asked: forest.probabilities(asked.data)


def brier(predicted: Floats, rows: PanelRows) -> float:
    """The mean squared difference of predictions and outcomes."""
    return float(np.mean((predicted - rows.crossed) ** 2)) if len(rows) else float("inf")


def _sample(crossed: Bools, rng: np.random.Generator) -> tuple[Ints, Floats]:
    """Rows to fit: all crossings where they are rare, and a sample of the rest; weights restore the proportion."""
    yes, no = np.flatnonzero(crossed), np.flatnonzero(~crossed)
    some_yes = rng.permutation(yes)[: _MAX_ROWS // 2]
    some_no = rng.permutation(no)[: _MAX_ROWS - some_yes.size]
    weights = np.where(crossed, yes.size / some_yes.size, no.size / some_no.size)
    chosen = np.sort(np.concatenate((some_yes, some_no)))
    return chosen, weights[chosen]


def _inflation(predicted: Floats, rows: PanelRows, least: float) -> float:
    """Variance of a market-day's errors relative to that of independent starts."""
    days = rows.times // DAY
    _, block = np.unique(rows.market * (int(days.max()) + 1) + days, return_inverse=True)
    missed = np.bincount(block, predicted - rows.crossed)
    expected = float(np.sum(predicted * (1 - predicted)))
    return max(least, float(np.sum(missed**2)) / expected) if expected > 0 else least
