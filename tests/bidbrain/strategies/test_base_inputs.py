"""What strategies are told of markets."""

from __future__ import annotations

import math

import pytest

from bidbrain.strategies.base import Checkpointing, mean_time_to_failure
from pricing_data.units import SECOND
from tests.pricing_data.histories import series


def test_mean_time_to_failure_is_time_below_on_demand_per_crossing() -> None:
    known = series((0, 5), (100, 20), (200, 5), (300, 20), (400, 5), (500, 5))
    assert mean_time_to_failure(known, 10) == 150 * SECOND
    assert mean_time_to_failure(known, 30) == 500 * SECOND
    assert Checkpointing(0.83, 120 * SECOND).interval(150 * SECOND) == pytest.approx(
        math.sqrt(2 * 120 * 150) * SECOND
    )
