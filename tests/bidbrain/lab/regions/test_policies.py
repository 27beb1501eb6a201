"""No policy misses its deadline, or beats what was possible."""

from __future__ import annotations

import pytest

from bidbrain.lab.regions.policies import NAMES, played
from tests.bidbrain.lab.regions.worlds import flapping, window


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("published", [False, True])
def test_no_policy_misses_or_beats_the_optimum(seed: int, *, published: bool) -> None:
    one = window(
        flapping(seed, 3, 90),
        work=6,
        slack=(1.1, 1.3, 1.6, 2)[seed],
        seed=seed,
        published=published,
    )
    best = played(one, "optimal")[0]
    for name in NAMES:
        for result in played(one, name):
            bill = result.bill
            assert not result.missed
            if name != "up-one-zone":
                assert bill.total >= best.bill.total - 1e-9, name
