"""How many workers DBW waits for, by cases solved by hand, and the isotonic regression of its
times.
"""

from __future__ import annotations

import random

import pytest

from agileml.policies.dbw import (
    DBW,
    FORGET_AFTER,
    ClockBegins,
    FixedWait,
    GradientArrived,
    GradientsSummed,
    WaitFor,
    expected_seconds,
    guessed,
    isotonic,
)


def played(
    policy: DBW,
    clocks: int,
    square: float,
    spread: float,
    seconds: list[float],
    steep: float | None = None,
) -> list[WaitFor]:
    """Proposals of the policy, one for each clock; `square` is that of the true gradient, which steps
    turn by `steep`.
    """
    return observed(policy, [(square, spread)] * clocks, seconds, steep)


def observed(
    policy: DBW,
    gradients: list[tuple[float, float]],
    seconds: list[float],
    steep: float | None = None,
) -> list[WaitFor]:
    """The same for a true gradient and a spread of each clock."""
    proposals: list[WaitFor] = []
    before: float | None = None
    waited = len(seconds)
    for clock, (square, spread) in enumerate(gradients, 1):
        policy, (proposal,) = policy.observe(ClockBegins(clock, len(seconds)))
        proposals.append(proposal)
        for number in range(1, proposal.gradients + 1):
            policy = policy.observe(GradientArrived(waited, number, seconds[number - 1]))[0]
        waited = proposal.gradients
        along = None if steep is None or before is None else square - steep * before
        before = square + spread / waited
        seen = GradientsSummed(clock, waited, before, spread if waited > 1 else None, along)
        policy = policy.observe(seen)[0]
    return proposals


@pytest.mark.parametrize(
    ("spread", "expected"),
    [
        # Gains per second of waiting for 1, 2, 3, 4: 10, 10 / 2, 10 / 3, 10 / 8.
        (0.0, 1),
        # 10 - 8 / k: 2, 6, 7.33, 8 in 1, 2, 3, 8 s.
        (8.0, 2),
        # 10 - 18 / k: -8, 1, 4, 5.5.
        (18.0, 3),
        # No gain is positive.
        (50.0, 4),
    ],
)
def test_it_waits_for_the_number_with_the_largest_gain_per_second(
    spread: float, expected: int
) -> None:
    proposals = played(DBW(), 12, 10.0, spread, [1.0, 2.0, 3.0, 8.0])
    assert proposals == [WaitFor(2), *[WaitFor(expected)] * 11]


@pytest.mark.parametrize(
    ("steep", "expected"),
    [
        # 10 - 18 / k: -8, 1, 4, 5.5 in 1, 2, 3, 8 s.
        (1.0, 3),
        # (2 - s) 10 - s 18 / k: 8, 12, 13.3, 14.
        (0.4, 1),
        # No step of this rate lowers the loss.
        (2.0, 4),
    ],
)
def test_noise_costs_less_if_steps_are_short(steep: float, expected: int) -> None:
    proposals = played(DBW(), 24, 10.0, 18.0, [1.0, 2.0, 3.0, 8.0], steep)
    assert proposals[-8:] == [WaitFor(expected)] * 8


def test_noise_that_grows_is_noticed_although_one_gradient_has_no_spread() -> None:
    # 19 - 1.8 / k in 1, 2, 3, 8 s; then 19 - 40 / k: -21, -1, 5.7, 9.
    proposals = observed(
        DBW(), [(10.0, 18.0)] * 30 + [(10.0, 400.0)] * 60, [1.0, 2.0, 3.0, 8.0], 0.1
    )
    assert proposals[29] == WaitFor(1)
    assert proposals[-1] == WaitFor(3)


@pytest.mark.parametrize(("gradients", "clocks"), [(4, 5), (2, 10), (1, 20)])
def test_the_fewer_gradients_a_clock_has_the_more_clocks_are_averaged(
    gradients: int, clocks: int
) -> None:
    policy = DBW(workers=4)
    for clock in range(1, 40):
        policy = policy.observe(GradientsSummed(clock, gradients, 1.0, 1.0))[0]
        assert len(policy.seen) == min(clock, clocks)


def test_workers_that_are_equally_fast_are_all_awaited() -> None:
    assert played(DBW(), 12, 10.0, 1.0, [1.0] * 4) == [WaitFor(2), *[WaitFor(4)] * 11]


def test_times_of_slower_workers_follow_from_those_of_the_faster_half() -> None:
    """The second of four came 1 s after the first, so one worker passes its end every 3 s."""
    seen = {(4, 1): ((1, 1.0),), (4, 2): ((1, 2.0),)}
    assert guessed(seen, 1, 4) == {(0, 3): ((1, 3.5),), (0, 4): ((1, 6.5),)}
    assert expected_seconds({**seen, **guessed(seen, 1, 4)}, 2, 4) == [1.0, 2.0, 3.5, 6.5]
    assert guessed({(2, 1): ((1, 1.0),)}, 1, 2) == {}


def test_the_blind_variant_weighs_time_alone() -> None:
    # 1 / 1, 2 / 1.5, 3 / 4, 4 / 8. The third is first guessed to come after 2.25 s.
    assert played(DBW(blind=True), 6, 0.0, 0.0, [1.0, 1.5, 4.0, 8.0])[1:] == [
        WaitFor(3),
        *[WaitFor(2)] * 4,
    ]


def test_a_number_that_was_not_chosen_for_long_is_tried_again() -> None:
    # Times of up to 2 s, that of a clock, are forgotten after 64 clocks; the guess of 6.5 s after
    # 3.25 times as many.
    proposals = played(DBW(), 5 * FORGET_AFTER, 10.0, 8.0, [1.0, 2.0, 3.0, 8.0])
    again = [clock for clock, one in enumerate(proposals, 1) if one == WaitFor(4)]
    assert 3.25 * FORGET_AFTER < again[0] < 4.25 * FORGET_AFTER
    assert proposals.count(WaitFor(2)) > 4 * FORGET_AFTER


def test_auto_waits_for_all_until_less_pays_and_says_so() -> None:
    proposals = played(DBW(auto=True), 16, 10.0, 8.0, [1.0, 2.0, 3.0, 8.0])
    first = next(number for number, one in enumerate(proposals) if one.reason)
    assert set(proposals[:first]) == {WaitFor(4)}
    assert proposals[first].gradients == 2
    assert (
        "waiting for 2 of 4 workers lowers the loss 3.00 times as fast" in proposals[first].reason
    )
    assert set(proposals[first + 1 :]) == {WaitFor(2)}
    assert set(played(DBW(auto=True), 16, 10.0, 8.0, [1.0, 1.0, 1.0, 1.05])) == {WaitFor(4)}


def test_auto_gives_up_what_no_longer_pays() -> None:
    policy = DBW(auto=True, leaves_out=True, workers=2)
    proposals = played(policy, 16, 10.0, 15.0, [1.0, 1.5])
    (said,) = [one for one in proposals if one.reason]
    assert said.gradients == 2
    assert "no longer pay" in said.reason


def test_a_fixed_number_is_left_out_but_never_all() -> None:
    assert FixedWait(3).observe(ClockBegins(1, 8))[1] == (WaitFor(5),)
    assert FixedWait(3).observe(ClockBegins(1, 2))[1] == (WaitFor(1),)


def test_times_that_were_not_seen_after_the_last_number_come_from_the_others() -> None:
    times = {
        (3, 1): [(1, 1.0)],
        (3, 2): [(1, 4.0)],
        (3, 3): [(1, 6.0)],
        (2, 1): [(2, 2.0), (3, 4.0)],
    }
    assert expected_seconds(times, 2, 3) == [3.0, 4.0, 6.0]
    assert expected_seconds(times, 3, 4) == [1.0, 4.0, 6.0, 6.0]
    assert expected_seconds({}, 3, 4) == []


@pytest.mark.parametrize("seed", range(20))
def test_isotonic_regression_is_the_nearest_nondecreasing_sequence(seed: int) -> None:
    """The oracle: the value at i is the maximum over a of the minimum over b of the mean of a..b,
    with a <= i <= b.
    """
    chance = random.Random(seed)
    count = chance.randint(1, 6)
    values = [chance.uniform(0, 10) for _ in range(count)]
    weights = [chance.randint(1, 4) for _ in range(count)]

    def mean(low: int, high: int) -> float:
        part = range(low, high + 1)
        return sum(values[at] * weights[at] for at in part) / sum(weights[at] for at in part)

    expected = [
        max(min(mean(a, b) for b in range(i, count)) for a in range(i + 1)) for i in range(count)
    ]
    assert isotonic(values, weights) == pytest.approx(expected)


@pytest.mark.parametrize("squares", [[100.0, 1.0, 1.0, 1.0, 1.0], [256.0, 64.0, 16.0, 4.0, 1.0]])
def test_a_gradient_that_shrinks_without_noise_is_not_noise(squares: list[float]) -> None:
    policy = DBW(workers=4)
    for clock, square in enumerate(squares, 1):
        policy = policy.observe(GradientsSummed(clock, 4.0, square, 1e-6))[0]
    size, spread = policy._estimates() or (0.0, 0.0)
    assert size == pytest.approx(sum(squares) / 5, rel=1e-3)
    assert spread == pytest.approx(1e-6)


@pytest.mark.parametrize(
    ("squares", "expected"),
    [
        # A size of 2 with a squared standard error of 0.8.
        ([1.0, 5.0, 1.0, 5.0, 3.0], 0.8),
        # A size of 0.6, which noise alone explains.
        ([0.0, 4.0, 0.0, 4.0, 0.0], 0.0),
    ],
)
def test_an_uncertain_gradient_counts_less(squares: list[float], expected: float) -> None:
    policy = DBW(workers=4)
    for clock, square in enumerate(squares, 1):
        policy = policy.observe(GradientsSummed(clock, 4.0, square, 4.0))[0]
    assert (policy._estimates() or ()) == pytest.approx((expected, 4.0))
