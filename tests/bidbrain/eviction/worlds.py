"""Generated markets whose truth is known."""

from __future__ import annotations

import numpy as np

from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, parse_time

START = parse_time("2026-01-01")
STEP = 10 * MINUTE


def moody(rng: np.random.Generator, name: str, days: int) -> PriceSeries:
    """A price that alternates between calm and volatile about every half day: 4 of 5 volatile hours
    have spikes.
    """
    ticks = days * DAY // STEP
    restless = np.cumsum(rng.random(ticks) < 1 / 70) % 2 == 1
    spike = restless & (rng.random(ticks) < 0.25)
    prices = 1_000_000 + 50_000 * spike + 100 * restless * rng.integers(0, 9, ticks)
    return _series(name, prices)


def memoryless(rng: np.random.Generator, name: str, days: int) -> PriceSeries:
    """A price whose spikes come at random, so that nothing predicts them."""
    prices = 1_000_000 + 50_000 * (rng.random(days * DAY // STEP) < 0.03)
    return _series(name, prices)


def flat(name: str, days: int) -> PriceSeries:
    """A price that never changes, observed once an hour."""
    times = START + np.arange(days * 24, dtype=np.int64) * HOUR
    return PriceSeries(
        Market("aws", "us-east-1", "us-east-1a", name), times, np.full(times.size, 1_000_000)
    )


def _series(name: str, prices: np.typing.NDArray[np.int64]) -> PriceSeries:
    times = START + np.arange(prices.size, dtype=np.int64) * STEP
    return PriceSeries(
        Market("aws", "us-east-1", "us-east-1a", name), times, prices.astype(np.int64)
    )
