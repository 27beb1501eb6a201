"""How often to copy a checkpoint."""

from __future__ import annotations

from math import inf, sqrt
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from spotctl.agent.checkpoints.local import AFFORDABLE, best_interval
from tests.spotctl.agent.checkpoints.test_stored_copies import Program


def test_the_interval_follows_the_reported_cost_or_the_job_file(tmp_path: Path) -> None:
    program = Program(tmp_path, 1)
    assert program.every == pytest.approx(sqrt(2 * 1.0 * 800.0))
    program.seconds = 4.0
    program.save("one")
    program.sync.last()
    assert program.every == pytest.approx(80.0)
    assert Program(tmp_path, 2).every == pytest.approx(80.0), (
        "what it cost is known on the next machine"
    )
    assert Program(tmp_path, 3, every=7.0).every == 7.0


@given(st.floats(0.01, 100), st.floats(1, 1e6))
def test_no_other_interval_loses_less_work(cost: float, life: float) -> None:
    """The share lost to writing and to repeated work is cost / interval + interval / (2 x life)."""

    def lost(interval: float) -> float:
        return cost / interval + interval / (2 * life)

    best = best_interval(cost, life, inf)
    if best > cost:
        assert lost(best) <= min(lost(best * 0.9), lost(best * 1.1))
    affordable = cost / AFFORDABLE
    assert best_interval(cost, life, affordable * 2) <= affordable * 2
    assert best_interval(cost, inf, 3600.0) == max(3600.0, affordable)
