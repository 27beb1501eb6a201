"""Spreads of figures."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.forecast.values import Spread


def test_a_spread_has_quantiles_and_probabilities() -> None:
    even = Spread.of(np.array([4.0, 1.0, 3.0, 2.0]), np.ones(4))
    assert even.median == pytest.approx(2.5)
    assert even.quantile(0.0) == 1.0
    assert (even.at_most(0.5), even.at_most(2.0), even.at_most(9.0)) == (0.0, 0.5, 1.0)
