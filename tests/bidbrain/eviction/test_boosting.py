from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.eviction.boosting import TreeSettings, fit, logistic

WHOLE = TreeSettings(
    trees=1, depth=1, rate=1.0, ridge=1e-9, leaf_curvature=0.0, rows=1.0, features=1.0
)


def test_one_stump_is_the_newton_step_of_the_best_split() -> None:
    """Hand-solved: 1 of 4 to the left, 3 of 4 to the right, from log-odds 0: -sum(gradient) /
    sum(curvature).
    """
    data = np.array([[0.0, 5.0]] * 4 + [[1.0, 5.0]] * 4)
    outcomes = np.array([0.0, 0, 0, 1, 1, 1, 1, 0])
    forest = fit(data, outcomes, np.ones(8), WHOLE, np.random.default_rng(0))
    step = (4 * 0.5 - 1) / (4 * 0.25)
    np.testing.assert_allclose(
        forest.probabilities(data), logistic(np.array([-step] * 4 + [step] * 4))
    )


def test_the_split_is_the_best_of_all() -> None:
    """Against every feature and every cut, one by one."""
    rng = np.random.default_rng(5)
    data = rng.integers(0, 12, (300, 4)).astype(float)
    outcomes = (rng.random(300) < logistic(0.5 * data[:, 2] - 3)).astype(float)
    weights = rng.uniform(0.5, 2, 300)
    shape = replace(WHOLE, ridge=3.0)
    mean = np.average(outcomes, weights=weights)
    gradient, curvature = (mean - outcomes) * weights, mean * (1 - mean) * weights

    def leaf(rows: np.typing.NDArray[np.bool_]) -> tuple[float, float]:
        slope, bend = gradient[rows].sum(), curvature[rows].sum() + shape.ridge
        return slope**2 / bend, -slope / bend

    cuts = [
        (leaf(data[:, j] <= c)[0] + leaf(data[:, j] > c)[0], j, c)
        for j in range(4)
        for c in range(11)
    ]
    _, feature, cut = max(cuts)
    left = data[:, feature] <= cut
    expected = np.where(left, leaf(left)[1], leaf(~left)[1]) + np.log(mean / (1 - mean))
    found = fit(data, outcomes, weights, shape, np.random.default_rng(0)).probabilities(data)
    np.testing.assert_allclose(found, logistic(expected))


def test_trees_learn_an_interaction_of_two_features() -> None:
    rng = np.random.default_rng(2)
    data = rng.uniform(-1, 1, (4000, 3))
    truth = np.where(data[:, 0] * data[:, 1] > 0, 0.8, 0.2)
    outcomes = (rng.random(4000) < truth).astype(float)
    forest = fit(
        data, outcomes, np.ones(4000), TreeSettings(trees=80, ridge=5.0, leaf_curvature=2.0), rng
    )
    asked = np.array([[0.5, 0.5, 0], [-0.5, -0.5, 0], [0.5, -0.5, 0], [-0.5, 0.5, 0]])
    np.testing.assert_allclose(forest.probabilities(asked), [0.8, 0.8, 0.2, 0.2], atol=0.1)


def test_the_same_generator_gives_the_same_forest() -> None:
    rng = np.random.default_rng(3)
    data, outcomes = rng.random((500, 4)), (rng.random(500) < 0.3).astype(float)
    once, twice = (
        fit(data, outcomes, np.ones(500), TreeSettings(), np.random.default_rng(9))
        for _ in range(2)
    )
    np.testing.assert_array_equal(once.probabilities(data), twice.probabilities(data))


def test_uninformative_features_give_the_mean() -> None:
    """Constant features, and fewer rows than a leaf needs."""
    outcomes = np.array([0.0, 1.0, 1.0, 1.0])
    forest = fit(np.ones((4, 2)), outcomes, np.ones(4), TreeSettings(), np.random.default_rng(0))
    assert forest.probabilities(np.array([[1.0, 1.0], [7.0, 0.0]])) == pytest.approx(
        [0.75, 0.75], abs=0.01
    )


def test_a_leaf_needs_enough_curvature() -> None:
    """Two isolated rows cannot have a leaf of their own, eight can."""
    for rows, alone in ((2, False), (8, True)):
        data = np.array([[1.0]] * rows + [[0.0]] * 100)
        outcomes = np.array([1.0] * rows + [0.0, 1.0] * 50)
        forest = fit(
            data,
            outcomes,
            np.ones(len(data)),
            replace(WHOLE, leaf_curvature=1.0),
            np.random.default_rng(0),
        )
        high, low = forest.probabilities(np.array([[1.0], [0.0]]))
        assert bool(high > low) is alone
