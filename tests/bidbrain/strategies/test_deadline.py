"""The deadline strategy: learning, planning, deciding."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.arrays import Bools, Floats
from bidbrain.lab.backtest.deadline import ON_DEMAND, SPOT, WAIT
from bidbrain.strategies.deadline import (
    HOPE_MARGIN,
    NET_DELAYS,
    DeadlineTerms,
    PlanGrid,
    spell_chain,
    thresholds,
)
from bidbrain.strategies.spells import (
    AGES,
    CLASSES,
    PUBLIC_PRIOR,
    SpellOutlook,
    outlook,
)
from pricing_data.units import DAY, HOUR, MINUTE
from tests.bidbrain.lab.backtest.batch_deadline import BatchDeadline, BatchState


@pytest.mark.parametrize("step", [MINUTE, 10 * MINUTE, 35 * MINUTE, 3 * HOUR])
def test_a_chain_has_the_survival_of_its_rates(step: int) -> None:
    rates = PUBLIC_PRIOR.rates()
    moves = spell_chain(rates, step)
    np.testing.assert_allclose(moves.sum(axis=1), 1)
    assert moves.min() >= 0
    if step <= 10 * MINUTE:
        up_young = moves[CLASSES, CLASSES:].sum()
        assert up_young == pytest.approx(np.exp(-rates[1, 0] * step / HOUR))


def test_spells_of_constant_rates_have_the_expected_share_of_time() -> None:
    moves = spell_chain(np.array([[1.0] * CLASSES, [0.25] * CLASSES]), MINUTE)
    settled = np.linalg.matrix_power(moves, 1 << 16)[0]
    assert settled[CLASSES:].sum() == pytest.approx(0.8, abs=0.002)


def expected_costs(
    moves: Floats, up: Bools, grid: PlanGrid
) -> dict[tuple[int, int, int, int], tuple[float, float]]:
    """By recursion over (held, state, work, slack): on demand now, and the best of waiting and
    spot.
    """
    states, delay, ratio = range(up.size), int(grid.delay), grid.price_ratio

    @cache
    def cost(held: int, state: int, work: int, slack: int) -> float:
        if work <= 0:
            return 0.0
        if held == SPOT and not up[state]:
            held = WAIT
        if slack < 0:
            return ratio * (work + (0 if held == ON_DEMAND else delay))
        return min(options(held, state, work, slack))

    def after(held: int, state: int, work: int, slack: int) -> float:
        return sum(float(moves[state, to]) * cost(held, to, work, slack) for to in states)

    def options(held: int, state: int, work: int, slack: int) -> tuple[float, float]:
        # Entering takes one step and loses the delay: only 1 - delay of the step's work is done.
        enter = 0 if held == ON_DEMAND else delay
        on_demand = ratio + after(ON_DEMAND, state, work - 1 + enter, slack - enter)
        bold = float("inf")
        if slack > NET_DELAYS * grid.delay:
            bold = after(WAIT, state, work, slack - 1)
            if up[state] and held != SPOT:
                bold = min(bold, 1 + after(SPOT, state, work - 1 + delay, slack - delay))
        if held == SPOT:
            bold = min(bold, 1 + after(SPOT, state, work - 1, slack))
        return on_demand, bold

    return {
        (held, state, work, slack): options(held, state, work, slack)
        for held in (WAIT, ON_DEMAND)
        for state in states
        for work in range(1, grid.work + 1)
        for slack in range(grid.slack + 1)
    }


@settings(max_examples=25)
@given(
    st.floats(0.02, 0.98),
    st.floats(0.02, 0.98),
    st.integers(0, 2),
    st.sampled_from([0.7, 1.5, 3.0]),
    st.integers(1, 6),
    st.sampled_from([0.0, 0.125, 0.6]),
)
def test_a_plan_is_the_least_expected_cost_policy_except_for_its_margin(
    rise: float, fall: float, delay: int, ratio: float, slack: int, margin: float
) -> None:
    moves, up = np.array([[1 - rise, rise], [fall, 1 - fall]]), np.array([False, True])
    grid = PlanGrid(work=6, slack=slack, delay=float(delay), price_ratio=ratio, margin=margin)
    found = thresholds(moves, up, grid)
    for (held, state, work, at_slack), (on_demand, bold) in expected_costs(moves, up, grid).items():
        if abs(on_demand - bold - margin) < 1e-4:
            continue  # ties may be broken either way
        worth = found[int(held == ON_DEMAND), state, work]
        assert (at_slack < worth) == (on_demand < bold + margin), (held, state, work, at_slack)


def test_an_order_from_on_demand_is_for_spot_and_not_for_a_wait() -> None:
    """Young spells end before they pay for their delay, old ones last: with much slack a wait would
    be cheapest.
    """
    moves = np.array([[0.7, 0.3, 0.0], [0.9, 0.0, 0.1], [0.02, 0.0, 0.98]])
    grid = PlanGrid(work=10, slack=30, delay=1.0, price_ratio=2.0)
    idle, on_demand = thresholds(moves, np.array([False, True, True]), grid)[:, :, -1]
    assert (idle < 6).all()
    assert on_demand.tolist() == [14, grid.slack + 1, 3]


def standing(
    terms: DeadlineTerms, slack: int, machine: int, *, up: bool, work_left: int | None = None
) -> BatchState:
    work = terms.work if work_left is None else work_left
    tick = np.array([MINUTE])
    return BatchState(
        terms=terms,
        tick=tick,
        elapsed=np.array([0]),
        remaining=np.array([work + slack]),
        work_left=np.array([work]),
        delay_left=np.array([0]),
        machine=np.array([machine]),
        spot_up=np.array([up]),
        at=np.array([0]),
    )


TERMS = DeadlineTerms(48 * HOUR, 12 * MINUTE, 3.0)


@pytest.fixture(scope="module")
def strategy() -> BatchDeadline:
    return BatchDeadline(TERMS)


def choice(strategy: BatchDeadline, job: BatchState, seen: SpellOutlook) -> int:
    """The choice for one job at the last tick of an outlook."""
    now = SpellOutlook(seen.state[-1:], seen.steps[-1:], seen.gap)
    return int(strategy.choose(job, now.state, strategy.plans_for(now))[0])


def test_a_job_waits_while_its_slack_is_above_the_least(strategy: BatchDeadline) -> None:
    just_lost = outlook(np.array([True] * 30 + [False]), 10 * MINUTE, PUBLIC_PRIOR)
    assert choice(strategy, standing(TERMS, 20 * HOUR, WAIT, up=False), just_lost) == WAIT
    assert choice(strategy, standing(TERMS, HOUR, WAIT, up=False), just_lost) == ON_DEMAND
    assert HOUR < strategy.least_slack(TERMS.work, just_lost.at(DAY), on_demand=False) <= 20 * HOUR


def test_a_running_spot_machine_stays_whatever_the_slack(strategy: BatchDeadline) -> None:
    up = outlook(np.array([True] * 31), 10 * MINUTE, PUBLIC_PRIOR)
    assert choice(strategy, standing(TERMS, 24 * MINUTE, SPOT, up=True), up) == SPOT


def test_the_strategy_waits_for_capacity_that_just_went_but_not_for_long_outages(
    strategy: BatchDeadline,
) -> None:
    """Endings become rare with age, so the same nine hours of slack are worth a wait at first, but
    not later.
    """
    unbiased = np.zeros((1, 4), dtype=np.int64)
    choices = [
        choice(
            strategy,
            standing(TERMS, 9 * HOUR, WAIT, up=False),
            SpellOutlook(np.array([age]), unbiased, HOUR),
        )
        for age in range(CLASSES)
    ]
    assert choices[:2] == [WAIT, WAIT]
    assert choices[int(np.searchsorted(AGES, HOUR)) :] == [ON_DEMAND] * (
        CLASSES - int(np.searchsorted(AGES, HOUR))
    )


def test_spot_is_entered_again_when_it_has_lasted(strategy: BatchDeadline) -> None:
    """From an on-demand machine: a young up spell may end before the delays are paid back."""
    unbiased = np.zeros((1, 4), dtype=np.int64)
    choices = [
        choice(
            strategy,
            standing(TERMS, 2 * HOUR, ON_DEMAND, up=True),
            SpellOutlook(np.array([CLASSES + age]), unbiased, HOUR),
        )
        for age in range(CLASSES)
    ]
    assert (choices[0], choices[-1]) == (ON_DEMAND, SPOT)


def test_spot_at_the_on_demand_price_is_not_worth_waiting_for() -> None:
    terms = DeadlineTerms(48 * HOUR, 12 * MINUTE, 1.0)
    lost = outlook(np.array([True] * 30 + [False]), 10 * MINUTE, PUBLIC_PRIOR)
    assert (
        choice(BatchDeadline(terms), standing(terms, 20 * HOUR, WAIT, up=False), lost) == ON_DEMAND
    )


def test_a_margin_asks_for_more_slack_everywhere() -> None:
    moves, up = spell_chain(PUBLIC_PRIOR.rates(), 10 * MINUTE), np.arange(2 * CLASSES) >= CLASSES
    eager, wary = (
        thresholds(moves, up, PlanGrid(60, 30, 1.2, 3.0, margin)) for margin in (0.0, HOPE_MARGIN)
    )
    assert (wary >= eager).all()
    assert (wary > eager).any()


def test_the_margin_moves_the_price_of_a_wait(strategy: BatchDeadline) -> None:
    just_lost = outlook(np.array([True] * 30 + [False]), 10 * MINUTE, PUBLIC_PRIOR)
    eager, wary = (
        made.least_slack(40 * HOUR, just_lost.at(DAY), on_demand=False)
        for made in (BatchDeadline(TERMS, margin=0.0), strategy)
    )
    assert eager < wary


@pytest.mark.parametrize("hours", [0.1, 0.5, 480])
def test_jobs_of_any_length_are_planned(hours: float) -> None:
    terms = DeadlineTerms(round(hours * HOUR), round(hours * HOUR / 100), 3.0)
    strategy = BatchDeadline(terms)
    up = outlook(np.array([True] * 3), 10 * MINUTE, PUBLIC_PRIOR)
    assert choice(strategy, standing(terms, terms.work, WAIT, up=True), up) == SPOT


@pytest.mark.parametrize(("work", "slack"), [(1, 0.5), (1000, 24.5)])
def test_a_job_that_is_far_shorter_than_its_delay_keeps_all_planned_slack(
    work: int, slack: float
) -> None:
    strategy = BatchDeadline(DeadlineTerms(work, 6 * MINUTE, 3.0))
    up = outlook(np.array([True] * 3), 10 * MINUTE, PUBLIC_PRIOR)
    least = [strategy.least_slack(work, up.at(DAY), on_demand=held) for held in (False, True)]
    assert least == [slack * strategy.step] * 2


def test_a_batch_decides_as_each_would_alone(strategy: BatchDeadline) -> None:
    rng = np.random.default_rng(3)
    up = rng.random(40) < 0.6
    seen = outlook(up, 10 * MINUTE, PUBLIC_PRIOR)
    slack = rng.integers(0, 20 * HOUR, 40)
    work = rng.integers(1, TERMS.work, 40)
    machine = np.where(up, rng.integers(0, 3, 40), rng.choice([WAIT, ON_DEMAND], 40))
    same = np.zeros(40, dtype=np.int64)
    together = BatchState(TERMS, same + MINUTE, same, work + slack, work, same, machine, up, same)
    chosen = strategy.choose(together, seen.state, strategy.plans_for(seen))
    for i in range(40):
        alone = standing(
            TERMS, int(slack[i]), int(machine[i]), up=bool(up[i]), work_left=int(work[i])
        )
        one = SpellOutlook(seen.state[i : i + 1], seen.steps[i : i + 1], seen.gap)
        assert strategy.choose(alone, one.state, strategy.plans_for(one))[0] == chosen[i]
