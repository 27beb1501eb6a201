"""The cheapest course that was possible."""

from __future__ import annotations

from itertools import product

import pytest

from bidbrain.lab.regions.optimum import BestSchedule
from bidbrain.lab.regions.policies import played
from bidbrain.lab.regions.replay import play
from bidbrain.strategies.regions import Running
from tests.bidbrain.lab.regions.worlds import flapping, window


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("published", [False, True])
def test_the_optimum_is_exact(seed: int, *, published: bool) -> None:
    """Against a search of all schedules of a small window."""
    one = window(
        flapping(seed, 2, 5, up_for=3, down_for=2),
        work=0.5,
        slack=1.0,
        seed=seed,
        published=published,
    )
    options = [None, *(Running(zone, spot=spot) for zone in (0, 1) for spot in (True, False))]
    outcomes = [
        play(one, BestSchedule(plan), "scripted")
        for plan in product(options, repeat=one.record.steps)
    ]
    least = min(outcome.bill.total for outcome in outcomes if not outcome.missed)
    assert played(one, "optimal")[0].bill.total == pytest.approx(least)


def test_a_last_step_that_is_free_makes_the_optimum_no_dearer() -> None:
    """Moves that are free in the last step only are paid for in the others."""
    costs = [
        played(
            window(flapping(8, 3, 90), work=6, slack=1.1, seed=8, published=published, gb=100),
            "optimal",
        )
        for published in (False, True)
    ]
    billed, free = (results[0].bill.total for results in costs)
    assert free <= billed
