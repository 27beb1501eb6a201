"""The deadline replay through the decision object of live runs."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings, strategies as st

from bidbrain.arrays import Bools
from bidbrain.lab.backtest.deadline import AvailabilityHistory, lay_out, replay
from bidbrain.lab.backtest.deadline_decided import decided
from bidbrain.strategies.deadline import DeadlineTerms, ImpossibleJob
from pricing_data.units import HOUR, MINUTE
from tests.bidbrain.lab.backtest.batch_deadline import Deadline
from tests.bidbrain.lab.backtest.deadlines import patterns, ratios

_TICK = 5 * MINUTE


@settings(max_examples=60)
@given(patterns, st.floats(1.0, 2.5), st.integers(1, 20), st.integers(0, 20), ratios)
def test_no_job_misses_its_deadline(up: Bools, slack: float, work: int, delay: int, ratio: float) -> None:
    terms = DeadlineTerms(work * 3 * MINUTE, delay * MINUTE, ratio)
    one = AvailabilityHistory("one", _TICK, np.tile(up, 8))
    try:
        jobs = lay_out([one], terms, [slack], 5)
    except ImpossibleJob:
        assume(False)
    assert not decided(jobs, [one]).missed.any()


def test_it_decides_as_the_batch_does() -> None:
    """With ticks of the length of its longest look: the same machine at the same tick, for almost every tick."""
    rng = np.random.default_rng(1)
    up = np.repeat(rng.random(80) < 0.5, rng.integers(1, 30, 80))
    one = AvailabilityHistory("one", 10 * MINUTE, up)
    terms = DeadlineTerms(12 * HOUR, 12 * MINUTE, 3.0)
    jobs = lay_out([one], terms, [1.1, 1.5, 2.0], 12)
    own = decided(jobs, [one], keep_course=True).course
    batch = replay(jobs, Deadline(terms, [one]), keep_course=True).course
    assert own is not None
    assert batch is not None
    assert (own == batch).mean() > 0.99
