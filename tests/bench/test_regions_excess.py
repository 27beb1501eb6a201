"""The attribution of the excess of `regions` over the optimum."""

from __future__ import annotations

import pytest

from bench.regions_excess import costs_to_go, play_steps
from bidbrain.lab.regions import policies
from tests.bidbrain.lab.regions.worlds import flapping, window


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("published", [False, True])
def test_what_steps_lose_adds_up_to_the_excess(seed: int, *, published: bool) -> None:
    one = window(
        flapping(seed, 3, 60),
        work=5,
        slack=(1.1, 1.4, 1.8)[seed],
        seed=seed,
        published=published,
        gb=100,
    )
    best, ours = (policies.played(one, name)[0].bill.total for name in ("optimal", "regions"))
    steps = play_steps(one)
    to_go = costs_to_go(one, steps)
    losses = [
        step.usd + after - before
        for step, before, after in zip(steps, to_go, [*to_go[1:], 0.0], strict=True)
    ]
    assert to_go[0] == pytest.approx(best)
    assert sum(losses) == pytest.approx(ours - best)
