"""The ceiling of forecasts: how much a state tells of a cost."""

from __future__ import annotations

import numpy as np

from bench.forecast_ceiling import alike, losses, nearest
from bidbrain.forecast.forecast import pinball
from pricing_data.units import MINUTE


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
    mean_loss = losses(np.arange(400, dtype=np.int64) * 90 * MINUTE, states, usd)
    assert mean_loss["boosted trees"] < 0.8 * mean_loss["alike"]
    assert mean_loss["hindsight"] <= mean_loss["alike"]
