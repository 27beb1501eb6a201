"""Spells of spot and of its absence, as the past shows them."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bench.deadline_prior import counted, fit_rates, likelihood
from bidbrain.arrays import Bools
from bidbrain.strategies.spells import AGES, CLASSES, HALF_LIFE, PUBLIC_PRIOR, Prior, outlook
from pricing_data.units import DAY, HOUR, MINUTE

availability = st.lists(st.tuples(st.booleans(), st.integers(1, 40)), min_size=1, max_size=12).map(
    lambda spells: np.repeat([up for up, _ in spells], [length for _, length in spells])
)


@given(availability, st.integers(1, 400), st.sampled_from([MINUTE, 10 * MINUTE, HOUR]))
def test_an_outlook_does_not_depend_on_the_future(up: Bools, seen: int, gap: int) -> None:
    whole, part = outlook(up, gap, PUBLIC_PRIOR), outlook(up[:seen], gap, PUBLIC_PRIOR)
    np.testing.assert_array_equal(whole.state[:seen], part.state)
    np.testing.assert_array_equal(whole.steps[:seen], part.steps)


@given(availability, st.sampled_from([MINUTE, 7 * MINUTE, HOUR]))
def test_ages_count_from_the_first_tick_of_a_spell(up: Bools, gap: int) -> None:
    state = outlook(up, gap, PUBLIC_PRIOR).state
    age = 0
    for tick, available in enumerate(up):
        age = 0 if tick == 0 or available != up[tick - 1] else age + gap
        assert state[tick] == CLASSES * available + int(np.flatnonzero(age >= AGES)[-1])


def test_a_factor_is_the_posterior_mean_with_memory() -> None:
    """Six hours of ten-minute spells, twice as many endings as in the prior: by hand at one
    tick."""
    believed = Prior((3.0,) * CLASSES, (3.0,) * CLASSES)
    up = np.array([False, True] * 200)
    gap = 10 * MINUTE
    tick = 301
    ages = (tick - np.arange(tick)) * gap
    weights = 0.5 ** (ages / HALF_LIFE)
    down = np.arange(tick) % 2 == 0
    endings, expected = weights[down].sum(), weights[down].sum() * 0.5
    side = (5 + endings) / (5 + expected)
    young = (10 * side + endings) / (10 + expected)
    steps = outlook(up, gap, believed).steps[tick]
    assert steps[0] == round(np.log(young) / np.log(1.5))
    assert steps[1] == round(np.log(side) / np.log(1.5))


def test_memory_reaches_over_years_without_overflow() -> None:
    up = np.tile([False] * 9 + [True], 40)
    steps = outlook(up, 30 * DAY, PUBLIC_PRIOR).steps
    assert np.isfinite(steps).all()
    late = outlook(up[-20:], 30 * DAY, PUBLIC_PRIOR).steps[-1]
    np.testing.assert_array_equal(steps[-1], late)


def test_a_restless_market_has_higher_factors_than_a_calm_one() -> None:
    restless, calm = np.tile([False, True], 200), np.repeat([False, True, False, True], 100)
    fast, slow = (outlook(up, 10 * MINUTE, PUBLIC_PRIOR).steps[-1] for up in (restless, calm))
    assert (fast >= slow).all()
    assert fast[0] > 0 > slow[0]


def test_a_prior_is_pooled_endings_per_hour() -> None:
    up = np.tile([True] * 2 + [False], 1000)
    endings, hours = counted([(up, 10 * MINUTE)])
    down_rates, up_rates = (fit_rates(endings[:, side], hours[:, side], inf) for side in (0, 1))
    assert down_rates[0] == pytest.approx(6, rel=0.01)
    assert up_rates[1] == pytest.approx(6, rel=0.01)
    assert up_rates[0] < 0.02
    # Ages never seen have the mean of their side.
    assert up_rates[-1] == pytest.approx(3, rel=0.01)


def test_rates_of_zones_that_differ_are_not_those_of_the_slowest_zone() -> None:
    """Spells of constant rates: pooled, old ones are those of the zone whose spells last, and rates
    fall with age.
    """
    chance, rates = np.random.default_rng(3), (0.2, 0.5, 1.0, 2.0, 5.0)
    histories = []
    for rate in rates:
        spells = np.maximum(chance.exponential(60 / rate, 4000), 1).astype(np.int64)
        up = np.repeat(np.arange(spells.size) % 2 == 1, spells)
        histories.append((up, MINUTE))
    endings, hours = counted(histories)
    (pooled, apart) = (fit_rates(endings[:, 1], hours[:, 1], strength) for strength in (inf, 2.0))
    seen = endings[:, 1].sum(axis=0) > 50
    assert pooled[seen].max() > 3 * pooled[seen].min()
    assert apart[seen].max() < 1.3 * apart[seen].min()
    assert (
        likelihood(endings[:, 1], hours[:, 1], 2.0)
        > likelihood(endings[:, 1], hours[:, 1], inf) + 100
    )
