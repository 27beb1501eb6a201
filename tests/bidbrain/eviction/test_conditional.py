from __future__ import annotations

import numpy as np
import pytest

from bidbrain.eviction.conditional import CrossingPanel, brier, fit
from bidbrain.eviction.crossing import BidAbove, FixedBid
from pricing_data.units import DAY, HOUR, MINUTE
from tests.bidbrain.eviction.worlds import START, flat, memoryless, moody


def moody_panel(days: int = 12) -> CrossingPanel:
    rng = np.random.default_rng(4)
    return CrossingPanel(
        [(moody(rng, f"t{i}.large", days), BidAbove(10_000)) for i in range(8)], HOUR
    )


def test_the_model_is_used_and_better_where_the_present_is_informative() -> None:
    panel, until = moody_panel(), START + 9 * DAY
    model = fit(panel, until, np.random.default_rng(0))
    assert model.method == "present"
    rows = panel.rows(*panel.starts_between(until, until + 3 * DAY))
    own, pooled = panel.shares(until)
    assert brier(model.predict(rows), rows) < 0.85 * brier(own[rows.market, 0], rows)
    assert brier(model.predict(rows), rows) < 0.85 * brier(
        np.full(rows.times.size, pooled[0]), rows
    )


def test_the_model_does_not_depend_on_the_future() -> None:
    """Fitted at a time, it is the same whether the series end there or continue."""
    until = START + 6 * DAY
    whole = moody_panel()
    cut = CrossingPanel(
        [
            (path.series.window(START, until), bid)
            for path, bid in zip(whole.paths, whole.bids, strict=True)
        ],
        HOUR,
    )
    asked = whole.rows(np.arange(8), np.full(8, until))
    first, second = (
        fit(panel, until, np.random.default_rng(1)).predict(asked) for panel in (whole, cut)
    )
    np.testing.assert_array_equal(first, second)


def test_no_model_is_fitted_to_markets_that_hardly_cross() -> None:
    panel = CrossingPanel([(flat(f"t{i}.large", 10), BidAbove(0)) for i in range(3)], HOUR)
    model = fit(panel, START + 9 * DAY, np.random.default_rng(0))
    assert (model.method, model.reason) == (
        "own share",
        "too few crossings in these markets to fit a model",
    )
    assert model.predict(panel.rows(np.array([1]), np.array([START + 9 * DAY]))) == pytest.approx(
        [0.0]
    )


def test_little_is_lost_where_the_present_is_uninformative() -> None:
    """Random spikes: any choice predicts about as well as the truth, which is the pooled share."""
    rng = np.random.default_rng(8)
    panel = CrossingPanel(
        [(memoryless(rng, f"t{i}.large", 12), BidAbove(10_000)) for i in range(8)], HOUR
    )
    until = START + 9 * DAY
    model = fit(panel, until, rng)
    rows = panel.rows(*panel.starts_between(until, until + 3 * DAY))
    _, pooled = panel.shares(until)
    assert brier(model.predict(rows), rows) < 1.03 * brier(
        np.full(rows.times.size, pooled[0]), rows
    )


def test_a_bid_always_or_never_crossed_gets_the_share() -> None:
    rng = np.random.default_rng(6)
    always = CrossingPanel([(moody(rng, "t.large", 8), FixedBid(2_000_000))], HOUR)
    assert fit(always, START + 7 * DAY, rng).method == "own share"


def test_the_trees_predict_probabilities() -> None:
    panel, until = moody_panel(8), START + 6 * DAY
    model = fit(panel, until, np.random.default_rng(0))
    rows = panel.rows(*panel.starts_between(until, until + DAY))
    predicted = model.predict(rows)
    assert predicted.shape == rows.times.shape
    assert np.all((predicted >= 0) & (predicted <= 1))
    assert brier(predicted, rows) < 0.25


def test_all_rare_crossings_are_used_and_weighted_as_rare() -> None:
    """More starts than a model uses, so that half of the used ones are crossings: predictions still
    average right.
    """
    rng = np.random.default_rng(14)
    panel = CrossingPanel(
        [(moody(rng, f"t{i}.large", 16), BidAbove(10_000)) for i in range(16)], 10 * MINUTE
    )
    until = START + 12 * DAY
    assert panel.starts_between(START, until)[1].size > 50_000
    predictor = fit(panel, until, rng).predict
    rows = panel.rows(*panel.starts_between(until, until + 3 * DAY))
    assert float(predictor(rows).mean()) == pytest.approx(float(rows.crossed.mean()), rel=0.15)
