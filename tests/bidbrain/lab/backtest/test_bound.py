"""The exact optimum against an enumeration of all schedules."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from bidbrain.arrays import Bools
from bidbrain.lab.backtest.bound import cheapest
from bidbrain.lab.backtest.deadline import (
    ON_DEMAND,
    SPOT,
    WAIT,
    cost_ratios,
    decided,
    lay_out,
    optimal,
    published,
)
from bidbrain.strategies.deadline import DeadlineTerms, ImpossibleJob
from tests.bidbrain.lab.backtest.batch_deadline import Deadline, batch_replay
from tests.bidbrain.lab.backtest.deadlines import TICK, bill, history, patterns, ratios


def least_cost(up: Bools, tick: int, terms: DeadlineTerms) -> float:
    """Tries every schedule, tick by tick; after an eviction the machine has to be entered again."""
    best = float("inf")

    def go_on(at: int, held: int, owed: int, done: int, cost: float) -> None:
        nonlocal best
        if done >= terms.work:
            best = min(best, cost)
            return
        if at == up.size or cost >= best:
            return
        if held == SPOT and not up[at]:
            held = WAIT
        for choice, price in ((SPOT, 1.0), (WAIT, 0.0), (ON_DEMAND, terms.price_ratio)):
            if choice == SPOT and not up[at]:
                continue
            if choice == WAIT:
                go_on(at + 1, WAIT, 0, done, cost)
                continue
            due = owed if choice == held else terms.delay
            paid = min(due, tick)
            go_on(at + 1, choice, due - paid, done + tick - paid, cost + price)

    go_on(0, WAIT, 0, 0, 0.0)
    return best


@settings(max_examples=250)
@given(
    st.lists(st.booleans(), min_size=1, max_size=9).map(np.array),
    st.integers(1, 60),
    st.integers(0, 25),
    ratios,
)
def test_the_optimum_is_the_cheapest_of_all_schedules(
    up: Bools, work: int, delay: int, ratio: float
) -> None:
    terms = DeadlineTerms(work, delay, ratio)
    expected = least_cost(up, TICK, terms)
    if expected == float("inf"):
        with pytest.raises(ImpossibleJob):
            cheapest(up, TICK, terms)
        return
    spot, on_demand = cheapest(up, TICK, terms)
    assert spot + ratio * on_demand == pytest.approx(expected)


@settings(max_examples=60)
@given(patterns, st.floats(0.3, 0.9), st.integers(0, 25), ratios)
def test_no_strategy_beats_the_optimum_or_misses(
    up: Bools, load: float, delay: int, ratio: float
) -> None:
    work = max(1, int(up.size * TICK * load))
    assume(up.size * TICK >= work + delay)
    terms, drawn = DeadlineTerms(work, delay, ratio), history("".join("01"[int(one)] for one in up))
    jobs = lay_out([drawn], terms, [up.size * TICK / work], 1)
    assume(len(jobs) == 1)
    assume(jobs.ticks[0] == up.size)
    best = cost_ratios(jobs, optimal(jobs))
    outcomes = {
        "greedy": published(jobs, "greedy"),
        "uniform-progress": published(jobs, "uniform-progress"),
        "decided": decided(jobs),
        "deadline, as a batch": batch_replay(jobs, Deadline(terms, [drawn]), keep_course=True),
    }
    for scheme, outcome in outcomes.items():
        assert not outcome.missed.any(), scheme
        assert cost_ratios(jobs, outcome)[0] >= best[0] - 1e-9, scheme
        assert outcome.course is not None
        cost, done = bill(outcome.course[0].tolist(), up.tolist(), TICK, terms)
        assert done
        assert cost == pytest.approx(
            float(outcome.spot_ticks[0] + ratio * outcome.on_demand_ticks[0])
        )


def test_solved_by_hand() -> None:
    # Work 60 and delay 10 in ticks of 10. The long spell of 5 ticks gives 40, the short one of 3
    # gives 20: 8 ticks.
    up = np.array([1, 1, 1, 1, 1, 0, 1, 1, 1, 0], dtype=bool)
    assert cheapest(up, 10, DeadlineTerms(60, 10, 3.0)) == (8, 0)
    # With 70 there are 9 ticks to hold, of which two, the entry and the work, on demand: in the
    # last one alone an entry does no work. The gap between the spells is only one tick long, so on
    # demand has to take the last up tick, too.
    assert cheapest(up, 10, DeadlineTerms(70, 10, 3.0))[1] > 0
    assert cheapest(up, 10, DeadlineTerms(70, 10, 3.0)) == _by_trying(
        up, DeadlineTerms(70, 10, 3.0)
    )
    # On-demand that costs no more than spot is never left.
    assert cheapest(up, 10, DeadlineTerms(60, 10, 1.0)) == (0, 7)


def _by_trying(up: Bools, terms: DeadlineTerms) -> tuple[int, int]:
    cost = least_cost(up, 10, terms)
    spot, on_demand = cheapest(up, 10, terms)
    assert spot + terms.price_ratio * on_demand == cost
    return spot, on_demand


def test_long_windows_use_wider_integers_with_equal_results() -> None:
    """The same shape with ten times finer ticks; its tables need more than 16 bits."""
    coarse = np.repeat(np.array([1, 0, 1, 0, 1, 0], dtype=bool), [300, 200, 500, 400, 300, 100])
    fine = np.repeat(coarse, 10)
    terms = DeadlineTerms(1_200 * 100, 100, 3.0)
    small, large = cheapest(coarse, 100, terms), cheapest(fine, 10, terms)
    assert fine.size > 1 << 14
    assert large == (10 * small[0], 10 * small[1])
