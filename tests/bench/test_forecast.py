"""A seeded sample of what `make forecast` checks: forecasts on the shipped market, against what then happened."""

from __future__ import annotations

import numpy as np
import pytest

from bench.forecast import checked, score
from bench.forecast_worlds import shipped


@pytest.mark.slow
def test_most_outcomes_lie_in_the_stated_interval() -> None:
    found = checked(shipped("proteus"), hours=4.0, count=12)
    paid = np.array([one.outcome.usd for one in found])
    spreads = [one.forecast.usd for one in found]
    assert len(found) == 12
    assert 0.65 <= score(found, spreads, paid, paid).covered <= 0.95
    expected = np.array([one.median for one in spreads])
    assert float(np.median(paid / expected)) == pytest.approx(1.0, abs=0.05)
    assert np.std(paid) > 0.05 * np.mean(paid), "the outcomes differ, so that an interval says something"
