"""Spells of spot capacity that are drawn for a play."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.forecast.windows import drawn_capacity
from bidbrain.strategies.known_spells import UNSEEN, KnownSpells
from pricing_data.units import DAY, HOUR

START = 100 * DAY


def share_up(known: KnownSpells, after: float, draws: int = 400) -> float:
    """How often there is capacity some hours after the start."""
    chance = np.random.default_rng(1)
    at, end = START + round(after * HOUR), START + DAY
    capacities = (
        drawn_capacity(known, START, end, (chance.random(), chance.random()), chance)
        for _ in range(draws)
    )
    return float(np.mean([capacity.at(at) > 0 for capacity in capacities]))


def test_where_nothing_was_seen_spot_may_or_may_not_be_had() -> None:
    shares = [share_up(UNSEEN, after) for after in (0.0, 6.0)]
    assert 0.4 < min(shares) <= max(shares) < 0.8
    assert shares[0] == pytest.approx(shares[1], abs=0.1), "a start is no special moment"


def test_the_spell_of_the_last_look_goes_on_and_is_slowly_forgotten() -> None:
    up, down = KnownSpells(up=True, age=5.0), KnownSpells(up=False, age=5.0)
    assert share_up(up, 0.0) == 1.0
    assert share_up(down, 0.0) == 0.0
    assert share_up(up, 20.0) < 0.9
    assert share_up(down, 20.0) > 0.1


def test_a_market_that_was_always_there_stays_there() -> None:
    steady = KnownSpells(up=True, age=200.0, endings=(0.0, 0.0), expected=(0.0, 100.0))
    assert share_up(steady, 20.0) > 0.95


def test_draws_are_reproducible() -> None:
    one, two = (
        drawn_capacity(UNSEEN, START, START + DAY, (0.3, 0.6), np.random.default_rng(7)).openings
        for _ in range(2)
    )
    assert np.array_equal(one[0], two[0])
