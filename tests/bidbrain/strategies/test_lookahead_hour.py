"""The next hour: by hand, and against starts followed second by second."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.billing import billing_rule
from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.survival import Exposure
from bidbrain.strategies.lookahead_hour import DISTANCES, NextHour, place_of
from bidbrain.strategies.odds import LOWEST_DELTA
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR
from tests.pricing_data.histories import series

REFUND, PER_SECOND, FIRST_FREE = map(billing_rule, ("hourly-refund", "per-second", "per-second-first-hour-free"))
STARTUP = 1 / 10
LOW, HIGH = 10**7, 2 * 10**7


def of(history: PriceSeries, hazard: Hazard | None = None, startup: float = STARTUP) -> NextHour:
    return NextHour.of(history, REFUND, startup, hazard)


def test_a_price_that_never_moves_keeps_every_machine() -> None:
    hour = of(series((0, LOW), (20 * 3600, LOW)))
    assert np.allclose(hour.survival, 1)
    assert np.allclose(hour.alive, 1)
    assert np.allclose(hour.useful, 1 - STARTUP)
    assert np.allclose(hour.paid_new, 1)


def test_a_price_that_rises_every_other_half_hour() -> None:
    """Half of the starts are low, and are evicted after at most half an hour, evenly spread: alive 1/4 h on average,
    and useful (0.4 h)^2 / 2 / 0.5 h = 0.16 h. The others are high already and stay."""
    hour = of(series(*((i * 1800, HIGH if i % 2 else LOW) for i in range(2001))))
    close, far = 0, place_of(HIGH - LOW)
    assert hour.survival[close] == pytest.approx(0.5, abs=0.002)
    assert hour.alive[close] == pytest.approx(0.5 * 0.25 + 0.5, abs=0.002)
    assert hour.useful[close] == pytest.approx(0.5 * 0.16 + 0.5 * 0.9, abs=0.002)
    assert hour.paid_new[close] == pytest.approx(0.5, abs=0.002)
    assert hour.survival[far] < 1
    assert hour.survival[far + 1] == 1


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.floats(0, 0.5))
def test_expectations_are_those_of_starts_followed_one_by_one(seed: int, startup: float) -> None:
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.integers(60, 1500, 60))
    prices = LOW + rng.choice([0, 300_000, 5_000_000], steps.size)
    history = series((0, LOW), *zip(steps.tolist(), prices.tolist(), strict=True))
    hour = of(history, startup=startup)
    for at in (0, place_of(1_000_000), place_of(6_000_000)):
        lives = np.array(followed(history, int(DISTANCES[at])))
        assert hour.survival[at] == pytest.approx((lives >= 1).mean(), abs=0.02)
        assert hour.alive[at] == pytest.approx(lives.mean(), abs=0.04)
        assert hour.useful[at] == pytest.approx(np.maximum(lives - startup, 0).mean(), abs=0.04)


def followed(history: PriceSeries, distance: int) -> list[float]:
    """Lifetime of each of many starts, in hours, at most one."""
    lives = []
    for start in np.linspace(history.first, history.last - HOUR, 1500).astype(np.int64):
        bid = int(history.prices[history.times <= start][-1]) + distance
        above = history.times[(history.times > start) & (history.prices > bid)]
        lives.append(min((int(above[0]) - int(start)) / HOUR, 1.0) if above.size else 1.0)
    return lives


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(30, 4000), st.integers(10**6, 10**9)), min_size=30, max_size=60))
def test_higher_bids_last_longer_and_start_up_is_not_useful(steps: list[tuple[int, int]]) -> None:
    times = np.cumsum([span for span, _ in steps]).tolist()
    known = list(zip(times, (price for _, price in steps), strict=True))
    hour = of(series((0, 10**8), *known, (times[-1] + 8000, 10**8)))
    for rising in (hour.survival, hour.alive, hour.useful):
        assert np.all(np.diff(rising) >= -1e-12)
    assert np.all(hour.survival <= hour.alive)
    assert np.all(hour.alive <= 1 + 1e-12)
    assert np.all(hour.useful <= hour.alive)
    assert np.all(hour.useful <= 1 - STARTUP + 1e-12)


def test_a_hazard_evicts_at_any_bid_and_the_billing_rule_sets_the_cost() -> None:
    still, rate = series((0, LOW), (20 * 3600, LOW)), 0.7
    known = Hazard((), Exposure(rate * 1e9, 1e9))
    alive = (1 - exp(-rate)) / rate
    hour = NextHour.of(still, FIRST_FREE, STARTUP, known)
    assert hour.survival[0] == pytest.approx(exp(-rate))
    assert hour.alive[0] == pytest.approx(alive, abs=1e-3)
    assert hour.useful[0] == pytest.approx((exp(-rate * STARTUP) - exp(-rate)) / rate, abs=1e-3)
    assert hour.paid_new[0] == pytest.approx(exp(-rate), abs=1e-3)
    assert hour.paid_old[0] == pytest.approx(alive, abs=2e-3)


def test_distances_are_found_from_below() -> None:
    assert place_of(-5) == place_of(0) == place_of(LOWEST_DELTA - 1) == 0
    assert place_of(LOWEST_DELTA) == 1
    assert place_of(10**12) == DISTANCES.size - 1
