"""Small inputs for the deadline replay: histories, jobs, and an independent implementation of the
billing rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from bidbrain.lab.backtest.deadline import (
    ON_DEMAND,
    SPOT,
    WAIT,
    AvailabilityHistory,
    DeadlineJobs,
    lay_out,
)
from bidbrain.strategies.deadline import DeadlineTerms

TICK = 10


def history(pattern: str, tick: int = TICK) -> AvailabilityHistory:
    """`1` where spot is available, `0` where it is not; other characters only improve
    readability."""
    return AvailabilityHistory(
        "drawn", tick, np.array([sign == "1" for sign in pattern if sign in "01"])
    )


def one_job(pattern: str, work: int, delay: int, ratio: float = 3.0) -> DeadlineJobs:
    """A job whose deadline is the end of the pattern."""
    drawn = history(pattern)
    terms = DeadlineTerms(work, delay, ratio)
    return lay_out([drawn], terms, [drawn.up.size * TICK / work], 1)


def bill(
    choices: Sequence[int], up: Sequence[bool], tick: int, terms: DeadlineTerms
) -> tuple[float, bool]:
    """Cost of a schedule in spot ticks, and whether it did the work: an independent implementation,
    tick by tick.
    """
    held, owed, done, cost = WAIT, 0, 0, 0.0
    for choice, available in zip(choices, up, strict=True):
        if done >= terms.work:
            break
        if choice == SPOT and not available:
            return float("inf"), False
        if choice == WAIT:
            held = WAIT
            continue
        if choice != held:
            held, owed = choice, terms.delay
        paid = min(owed, tick)
        owed -= paid
        done += tick - paid
        cost += terms.price_ratio if choice == ON_DEMAND else 1.0
    return cost, done >= terms.work


patterns = st.lists(st.tuples(st.booleans(), st.integers(1, 4)), min_size=1, max_size=9).map(
    lambda spells: np.repeat([up for up, _ in spells], [length for _, length in spells])
)
ratios = st.sampled_from([0.5, 1.0, 1.25, 2.0, 3.0, 4.7])
