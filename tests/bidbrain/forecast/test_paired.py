"""When plays of the past show that one decision object serves a job better than another."""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.forecast.bills import MarketBill
from bidbrain.forecast.paired import Trials, is_better
from bidbrain.forecast.windows import Played
from pricing_data.market import Market

MARKET = Market("local", "sim-east", "sim-east-a", "c4.xlarge")
NOISE = np.random.default_rng(5).normal(0.0, 0.2, (2, 16))


def trials(usd: float, hours: float, *, span: float = 200.0, plays: int = 16, finished: bool = True) -> Trials:
    """Plays that share their luck, as those of two decision objects over the same past do."""
    return Trials(
        {
            start: Played(start, (MarketBill(MARKET, 1, usd + NOISE[0, start]),), hours + NOISE[1, start], finished)
            for start in range(plays)
        },
        span,
    )


@pytest.mark.parametrize(
    ("usd", "hours", "better"),
    [
        (8.0, 5.0, True),
        (10.0, 4.0, True),
        (8.0, 6.0, False),
        (12.0, 4.0, False),
        (10.0, 5.0, False),
        (9.99, 5.0, False),
    ],
)
def test_better_is_cheaper_or_faster_and_no_worse(usd: float, hours: float, better: bool) -> None:
    assert is_better(trials(usd, hours), trials(10.0, 5.0)) is better


def test_a_difference_that_chance_explains_does_not_count() -> None:
    shuffled = Trials({15 - start: play for start, play in trials(9.9, 5.0).played.items()}, 200.0)
    assert not is_better(shuffled, trials(10.0, 5.0))


def test_plays_that_overlap_tell_too_little() -> None:
    assert not is_better(trials(8.0, 5.0, span=15.0), trials(10.0, 5.0, span=15.0))


def test_only_plays_from_the_same_moments_are_compared() -> None:
    assert is_better(trials(8.0, 5.0, plays=8), trials(10.0, 5.0))
    assert not is_better(trials(8.0, 5.0, plays=3), trials(10.0, 5.0))


def test_a_job_that_does_not_finish_is_not_better() -> None:
    assert not is_better(trials(5.0, 5.0, finished=False), trials(10.0, 5.0))
