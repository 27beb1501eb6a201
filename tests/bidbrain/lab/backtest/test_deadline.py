"""The deadline replay: hand-solved cases, and properties of all strategies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from bidbrain.arrays import Bools
from bidbrain.lab.backtest.deadline import (
    NOT_RUNNING,
    ON_DEMAND,
    SPOT,
    WAIT,
    AvailabilityHistory,
    DeadlineJobs,
    DeadlineOutcome,
    DeadlineSummary,
    cost_ratios,
    decided,
    lay_out,
    published,
    replay,
    summarize,
)
from bidbrain.strategies.base import Decision, Rent, Return, Situation
from bidbrain.strategies.deadline import DeadlineTerms, ImpossibleJob
from pricing_data.availability import AvailabilityTrace
from pricing_data.units import HOUR, MINUTE
from tests.bidbrain.lab.backtest.batch_deadline import (
    BatchStrategy,
    Deadline,
    batch_greedy,
    batch_replay,
    batch_uniform_progress,
    within_two_delays,
)
from tests.bidbrain.lab.backtest.deadlines import TICK, bill, history, one_job, patterns, ratios

_SIGNS = {WAIT: ".", SPOT: "s", ON_DEMAND: "D", NOT_RUNNING: " "}


def drawn(jobs: DeadlineJobs, scheme: str) -> str:
    course = published(jobs, scheme).course
    assert course is not None
    return "".join(_SIGNS[int(choice)] for choice in course[0]).rstrip()


def test_greedy_waits_until_the_net_and_pays_the_delay_on_every_entry() -> None:
    # Spot from the third tick on does 10 - 5, 10, 10; then it is evicted with 15 of 40 left.
    jobs = one_job("0011 1000 0000 0000", work=40, delay=5)
    # The net: remaining <= ceil((15 + 10) / 10) ticks = 3, so on demand for the entry and 15: two
    # ticks.
    assert drawn(jobs, "greedy") == "..sss........DD"
    outcome = published(jobs, "greedy")
    assert (outcome.spot_ticks[0], outcome.on_demand_ticks[0]) == (3, 2)
    # On demand only would have been ceil(45 / 10) = 5 ticks at 3.
    assert cost_ratios(jobs, outcome)[0] == pytest.approx((3 + 2 * 3) / 15)


def test_a_delay_may_span_ticks_and_restarts_after_an_eviction() -> None:
    # Delay 25: an entry takes two and a half ticks. The first spell of two does nothing, the second
    # 5 + 10.
    jobs = one_job("110 1111 0000000", work=15, delay=25)
    assert drawn(jobs, "greedy") == "ss.ssss"


def test_the_safety_net_applies_to_idle_jobs_but_not_to_jobs_on_spot() -> None:
    jobs = one_job("1111 1111", work=60, delay=10)
    assert drawn(jobs, "greedy") == "DDDDDDD"
    roomy = one_job("1111 1111 1", work=60, delay=10)
    assert drawn(roomy, "greedy") == "sssssss"
    literal = batch_replay(roomy, batch_greedy, within_two_delays)
    assert literal.on_demand_ticks[0] > 0
    assert not literal.missed[0]


def test_an_eviction_within_the_safety_net_is_replaced_at_once() -> None:
    # Evicted with 5 ticks left and 30 of 60 done: 30 and two delays of 10 are 5 ticks.
    assert drawn(one_job("1111 0000 0", work=60, delay=10), "greedy") == "ssssDDDD"


class _Scripted:
    """Makes the given choices in order, a tick each; unavailable spot becomes on-demand."""

    name = "scripted"

    def __init__(self, jobs: DeadlineJobs, choices: list[int]) -> None:
        self._offer, self._tick, self._choices, self._held = (
            jobs.offer,
            int(jobs.tick[0]),
            choices,
            WAIT,
        )

    def decide(self, situation: Situation) -> Decision:
        choice = self._choices[situation.now // self._tick]
        if choice == SPOT and not situation.offers:
            choice = ON_DEMAND
        held = WAIT if not situation.holdings else self._held
        self._held = choice
        wake_at = situation.now + self._tick
        if choice == held:
            return Decision((), wake_at)
        back = tuple(Return(holding.allocation) for holding in situation.holdings)
        bid = max(self._offer.on_demand, situation.price(self._offer)) if choice == SPOT else None
        return Decision((*back, *([] if choice == WAIT else [Rent(self._offer, 1, bid)])), wake_at)


@given(patterns, st.integers(1, 200), st.integers(0, 35), ratios, st.data())
def test_any_schedule_is_billed_by_the_rules(
    up: Bools, work: int, delay: int, ratio: float, data: st.DataObject
) -> None:
    assume(up.size * TICK >= work + delay)
    terms = DeadlineTerms(work, delay, ratio)
    jobs = lay_out([AvailabilityHistory("one", TICK, up)], terms, [up.size * TICK / work], 1)
    choices = data.draw(st.lists(st.integers(0, 2), min_size=up.size, max_size=up.size))
    outcome = replay(jobs, lambda jobs, _: _Scripted(jobs, choices))
    assert outcome.course is not None
    course = [choice for choice in outcome.course[0].tolist() if choice != NOT_RUNNING]
    cost, done = bill(course, up[: len(course)].tolist(), TICK, terms)
    assert cost == pytest.approx(float(outcome.spot_ticks[0] + ratio * outcome.on_demand_ticks[0]))
    assert done is not bool(outcome.missed[0])


def test_uniform_progress_follows_the_line() -> None:
    # Work 50 in 100: the line rises by half a tick per tick. Two spot ticks put the job ahead of it
    # until tick 4, where it is on the line; behind at tick 5 it goes on demand, and stays there
    # though ahead again, because spot is gone.
    jobs = one_job("11000 00000", work=50, delay=0)
    assert drawn(jobs, "uniform-progress") == "ss...DDD"
    # When spot returns, it is used as soon as progress is ahead: at tick 6, 30 of 50 are done.
    back = one_job("11000 11111", work=50, delay=0)
    assert drawn(back, "uniform-progress") == "ss...sss"
    assert drawn(one_job("11000 01111", work=50, delay=0), "uniform-progress") == "ss...Dss"


def test_uniform_progress_returns_to_spot_only_two_delays_ahead() -> None:
    jobs = one_job("0 0 1111 1111 0 11111", work=80, delay=5)
    course = drawn(jobs, "uniform-progress")
    assert course[1] == "D"
    back = course.index("s")
    work_done = 10 * (back - 1) - 5
    assert work_done / 80 >= (10 * back + 10) / (10 * jobs.ticks[0])
    assert (work_done - 10) / 80 < (10 * (back - 1) + 10) / (10 * jobs.ticks[0])


@settings(max_examples=100)
@given(patterns, st.integers(1, 200), st.integers(0, 60), ratios, st.data())
def test_decisions_do_not_depend_on_the_future(
    up: Bools, work: int, delay: int, ratio: float, data: st.DataObject
) -> None:
    ticks = max(1, up.size * 2 // 3)
    assume(ticks * TICK >= work + delay)
    terms = DeadlineTerms(work, delay, ratio)
    seen = data.draw(st.integers(0, up.size - 1))
    altered = np.concatenate((up[: seen + 1], data.draw(st.booleans()) ^ up[seen + 1 :]))
    plays: list[Callable[[DeadlineJobs], DeadlineOutcome]] = [
        lambda jobs: published(jobs, "greedy"),
        lambda jobs: published(jobs, "uniform-progress"),
        decided,
        lambda jobs: batch_replay(jobs, Deadline(terms, jobs.histories), keep_course=True),
    ]
    for play in plays:
        courses = []
        for availability in (up, altered):
            one = AvailabilityHistory("one", TICK, availability)
            jobs = lay_out([one], terms, [ticks * TICK / work], 3)
            courses.append((jobs, play(jobs).course))
        (jobs, first), (_, second) = courses
        assert first is not None
        assert second is not None
        for job in range(len(jobs)):
            known = max(0, seen + 1 - int(jobs.start[job]))
            np.testing.assert_array_equal(first[job, :known], second[job, :known])


@settings(max_examples=100)
@given(
    patterns,
    st.sampled_from([1.0, 1.05, 1.2, 1.6, 2.5]),
    st.integers(1, 300),
    st.integers(0, 60),
    ratios,
)
def test_no_job_misses_its_deadline(
    up: Bools, slack: float, work: int, delay: int, ratio: float
) -> None:
    terms = DeadlineTerms(work, delay, ratio)
    one = AvailabilityHistory("one", TICK, np.tile(up, 8))
    try:
        jobs = lay_out([one], terms, [slack], 7)
    except ImpossibleJob:
        assert round(slack * work) // TICK * TICK < work + delay
        return
    for name in ("greedy", "uniform-progress"):
        assert not published(jobs, name).missed.any(), name
    assert not decided(jobs).missed.any()
    schemes: list[BatchStrategy] = [
        batch_greedy,
        batch_uniform_progress,
        partial(batch_uniform_progress, look_ahead=0),
        Deadline(terms, [one]),
    ]
    for scheme in schemes:
        assert not batch_replay(jobs, scheme).missed.any(), scheme
        assert not batch_replay(jobs, scheme, within_two_delays).missed.any(), scheme


@settings(max_examples=150)
@given(patterns, st.floats(1.0, 2.5), st.integers(1, 300), st.integers(0, 60), ratios)
def test_published_strategies_choose_as_in_a_replay_of_every_tick(
    up: Bools, slack: float, work: int, delay: int, ratio: float
) -> None:
    terms = DeadlineTerms(work, delay, ratio)
    one = AvailabilityHistory("one", TICK, np.tile(up, 8))
    try:
        jobs = lay_out([one], terms, [slack], 7)
    except ImpossibleJob:
        assume(False)
    schemes: dict[str, BatchStrategy] = {
        "greedy": batch_greedy,
        "uniform-progress": batch_uniform_progress,
    }
    for name, scheme in schemes.items():
        own, batch = published(jobs, name), batch_replay(jobs, scheme, keep_course=True)
        np.testing.assert_array_equal(own.course, batch.course)
        np.testing.assert_array_equal(own.spot_ticks, batch.spot_ticks)
        np.testing.assert_array_equal(own.on_demand_ticks, batch.on_demand_ticks)


def test_starts_are_evenly_spread_and_leave_room_for_the_job() -> None:
    terms = DeadlineTerms(20, 1, 3.0)
    jobs = lay_out([history("1" * 14), history("1" * 3), history("0" * 4)], terms, [1.5, 2.0], 3)
    assert jobs.slack.tolist() == [1.5] * 3 + [2.0] * 3 + [1.5] + [1.5] * 2 + [2.0]
    assert jobs.start.tolist() == [0, 5, 11, 0, 5, 10, 0, 0, 1, 0]
    assert jobs.history.tolist() == [0] * 6 + [1] + [2] * 3
    assert jobs.window(9).tolist() == [False] * 4
    assert len(jobs.only(4)) == 1
    assert jobs.only(4).start.tolist() == [5]


def test_a_trace_of_several_machines_is_up_only_while_all_are() -> None:
    assert AvailabilityHistory.of(
        AvailabilityTrace("four", 60, np.array([0, 3, 4, 4, 2]))
    ).up.tolist() == [
        0,
        0,
        1,
        1,
        0,
    ]
    assert not AvailabilityHistory.of(AvailabilityTrace("never", 60, np.array([0, 0]))).up.any()


def test_a_summary_is_a_mean_over_jobs() -> None:
    minutes = MINUTE
    terms = DeadlineTerms(2 * HOUR, 0, 4.0)
    one = AvailabilityHistory("one", 30 * minutes, np.array([True] * 4 + [False] * 8))
    jobs = lay_out([one], terms, [2.0], 2)
    found = summarize(jobs, "greedy", published(jobs, "greedy"))
    # The first job does all its work on spot, in 4 ticks; the second, without spot, all of it on
    # demand.
    assert found == [DeadlineSummary("greedy", 2.0, 2, (0.25 + 1.0) / 2, 1.0, 1.0, 0)]


@pytest.mark.parametrize(
    ("work", "delay", "ratio", "message"),
    [
        (0, 1, 3.0, "has no work"),
        (10, -1, 3.0, "is negative"),
        (10, 1, 0.0, "not positive and finite"),
        (10, 1, float("nan"), "not positive and finite"),
    ],
)
def test_invalid_terms_are_refused(work: int, delay: int, ratio: float, message: str) -> None:
    with pytest.raises(ImpossibleJob, match=message):
        DeadlineTerms(work * HOUR, delay * HOUR, ratio)


def test_a_slack_too_small_for_the_delay_is_refused() -> None:
    with pytest.raises(ImpossibleJob, match=r"use at least 1\.1000"):
        lay_out([history("1" * 50)], DeadlineTerms(100, 10, 3.0), [1.05], 3)
    assert len(lay_out([history("1" * 50)], DeadlineTerms(100, 10, 3.0), [1.1], 3)) == 3


def test_an_order_of_spot_that_is_not_there_gets_nothing() -> None:
    jobs = one_job("00000000", work=20, delay=0)

    class Stubborn:
        name = "stubborn"

        def decide(self, situation: Situation) -> Decision:
            return Decision((Rent(jobs.offer, 1, jobs.offer.on_demand),), situation.now + TICK)

    outcome = replay(jobs, lambda *_: Stubborn())
    assert (outcome.spot_ticks[0], outcome.on_demand_ticks[0], outcome.missed[0]) == (0, 0, True)


_FIVE = 5 * MINUTE


@settings(max_examples=60)
@given(patterns, st.floats(1.0, 2.5), st.integers(1, 20), st.integers(0, 20), ratios)
def test_no_decided_job_misses_its_deadline(
    up: Bools, slack: float, work: int, delay: int, ratio: float
) -> None:
    terms = DeadlineTerms(work * 3 * MINUTE, delay * MINUTE, ratio)
    one = AvailabilityHistory("one", _FIVE, np.tile(up, 8))
    try:
        jobs = lay_out([one], terms, [slack], 5)
    except ImpossibleJob:
        assume(False)
    assert not decided(jobs).missed.any()


def test_it_decides_as_the_batch_does() -> None:
    """With ticks of the length of its longest look: the same machine at the same tick, for almost
    every tick.
    """
    rng = np.random.default_rng(1)
    up = np.repeat(rng.random(80) < 0.5, rng.integers(1, 30, 80))
    one = AvailabilityHistory("one", 10 * MINUTE, up)
    terms = DeadlineTerms(12 * HOUR, 12 * MINUTE, 3.0)
    jobs = lay_out([one], terms, [1.1, 1.5, 2.0], 12)
    own = decided(jobs).course
    batch = batch_replay(jobs, Deadline(terms, [one]), keep_course=True).course
    assert own is not None
    assert batch is not None
    assert (own == batch).mean() > 0.99
