"""The estimators that are compared in decisions know the present, and nothing later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.conditional_lab import ESTIMATORS, past_of
from bench.forecast_ceiling import alike, losses, nearest
from bidbrain.forecast.calibrated import pinball
from bidbrain.strategies.lookahead_hour import DISTANCES
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE
from tests.bidbrain.backtest.test_run import scenario

ZONE = "us-east-1a"


@pytest.mark.parametrize("name", ["plain", "nearby", "boosted", "present"])
def test_probabilities_fall_with_the_bid_and_do_not_depend_on_later_prices(name: str) -> None:
    known = scenario()
    past = past_of(known, ZONE)
    now = known.test.start + 3 * HOUR
    market = next(iter(past.paths))
    found = ESTIMATORS[name](past)(market, np.array([now], dtype=np.int64))
    assert found.shape == (1, DISTANCES.size)
    assert np.all((found >= 0) & (found <= 1))
    assert np.all(np.diff(found[0]) <= 1e-9)
    later = tuple(
        PriceSeries(one.market, one.times, np.where(one.times > now, 999, one.prices)) for one in known.histories
    )
    other = past_of(replace(known, histories=later), ZONE)
    assert ESTIMATORS[name](other)(market, np.array([now], dtype=np.int64)) == pytest.approx(found)


def test_the_ceiling_shows_what_states_tell_where_they_do() -> None:
    chance = np.random.default_rng(3)
    states = chance.normal(size=(400, 2))
    usd = states[:, 0] + 0.1 * chance.normal(size=400)
    known, asked = slice(0, 300), slice(300, 400)
    loss = {
        name: float(pinball(predict(states[known], usd[known], states[asked]), usd[asked]).mean())
        for name, predict in (("alike", alike), ("nearest", nearest(0.05)))
    }
    assert loss["nearest"] < 0.5 * loss["alike"]
    found = losses(np.arange(400, dtype=np.int64) * 90 * MINUTE, states, usd)
    assert found["boosted trees"] < 0.8 * found["alike"]
    assert found["hindsight"] <= found["alike"]
