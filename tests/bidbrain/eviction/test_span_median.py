"""The median of many spans equals that of the points in them."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.eviction.span_median import median_of_spans


@pytest.mark.parametrize("seed", range(20))
def test_the_median_divides_the_spans_into_halves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, widest = int(rng.integers(1, 400)), int(rng.choice([1, 30, 5_000, 3_600_000_000]))
    low = rng.integers(0, 4 * widest, size)
    high = low + rng.integers(1, widest + 1, size)
    median = median_of_spans(low, high)
    below = np.clip(median - low, 0, high - low).sum()
    assert below == pytest.approx((high - low).sum() / 2, rel=1e-9)
    if median > low.min() + 1:  # the lowest such point: nothing is left out in a gap before it
        assert np.clip(median - 0.5 - low, 0, high - low).sum() < below
