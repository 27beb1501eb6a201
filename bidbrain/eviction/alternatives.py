"""Learners that lost to `conditional.boosted`, kept so that the comparison can be repeated.

`spotctl beta calibrate --learner NAME` scores them; docs/decisions/0003-eviction-estimates.md has the results.
"""

from dataclasses import replace

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction.boosting import TreeSettings, logistic
from bidbrain.eviction.conditional import Learner, Predictor, boosted, tree_learner
from bidbrain.eviction.panel import PanelRows

_TREES = TreeSettings()
_HINGES = 4
_RIDGE = 20.0
_NEWTON_STEPS = 12
_LARGEST_ODDS = 12.0


def recent_share(_rows: PanelRows, _weights: Floats, _rng: np.random.Generator) -> Predictor:
    """The market's share of the last two weeks, shrunk towards the pooled share; nothing is fitted."""
    return lambda asked: logistic(asked.data[:, -1])


def logistic_regression(rows: PanelRows, weights: Floats, _rng: np.random.Generator) -> Predictor:
    """Ridge-penalized logistic regression over piecewise linear functions of each feature."""
    knots = np.quantile(rows.data, np.linspace(0, 1, _HINGES + 2)[1:-1], axis=0)
    low, high = np.quantile(rows.data, (0.005, 0.995), axis=0)

    def raw(data: Floats) -> Floats:
        inside = np.clip(data, low, high)
        return np.column_stack([inside, *(np.maximum(inside - knot, 0) for knot in knots)])

    basis = raw(rows.data)
    mean, scale = basis.mean(axis=0), np.maximum(basis.std(axis=0), 1e-9)

    def design(data: Floats) -> Floats:
        return np.column_stack([np.ones(len(data)), (raw(data) - mean) / scale])

    coefficients = _newton(design(rows.data), rows.crossed.astype(np.float64), weights)
    return lambda asked: logistic(np.clip(design(asked.data) @ coefficients, -_LARGEST_ODDS, _LARGEST_ODDS))


def _newton(design: Floats, outcomes: Floats, weights: Floats) -> Floats:
    """Coefficients of the maximum penalized likelihood; steps are halved until they improve it."""
    penalty = np.full(design.shape[1], _RIDGE)
    penalty[0] = 0.0
    mean = np.average(outcomes, weights=weights)
    coefficients = np.zeros(design.shape[1])
    coefficients[0] = np.log(mean / (1 - mean))

    def loss(candidate: Floats) -> float:
        odds = design @ candidate
        return float(weights @ (np.logaddexp(0, odds) - outcomes * odds) + penalty @ candidate**2 / 2)

    for _ in range(_NEWTON_STEPS):
        probability = logistic(np.clip(design @ coefficients, -_LARGEST_ODDS, _LARGEST_ODDS))
        bend = np.maximum(probability * (1 - probability), 1e-6) * weights
        slope = design.T @ ((outcomes - probability) * weights) - penalty * coefficients
        move = np.linalg.solve((design * bend[:, None]).T @ design + np.diag(penalty + 1e-9), slope)
        before = loss(coefficients)
        while loss(coefficients + move) > before and np.abs(move).max() > 1e-6:
            move /= 2
        coefficients = coefficients + move
    return coefficients


LEARNERS: dict[str, Learner] = {
    "boosted": boosted,
    "boosted-on-everything": tree_learner(replace(_TREES, rows=1.0, features=1.0)),
    "boosted-stumps": tree_learner(replace(_TREES, depth=1, trees=2 * _TREES.trees)),
    "boosted-longer": tree_learner(replace(_TREES, trees=3 * _TREES.trees)),
    "boosted-freer": tree_learner(replace(_TREES, ridge=5.0, leaf_curvature=5.0)),
    "logistic": logistic_regression,
    "recent-share": recent_share,
}
