"""FlexRR's decisions: when a worker lends work, how much, and to which."""

from __future__ import annotations

import pytest

from agileml.policies.flexrr import FlexRR, Lend, WorkerProgress, help_groups


def test_a_worker_that_is_more_than_a_fifth_behind_lends_a_fortieth() -> None:
    policy = FlexRR()
    assert policy.other_reported("a", 1.75, 5.0, 0.0, WorkerProgress(1.56, 9.0))[1] == ()
    assert policy.other_reported("a", 1.75, 5.0, 0.0, WorkerProgress(1.54, 9.0))[1] == (
        Lend("a", 0.025),
    )
    assert policy.other_reported("a", 1.75, 5.0, 0.0, WorkerProgress(1.0, 9.0), busy=True)[1] == ()
    assert policy.other_began("a") == (Lend("a", 0.05),)


def test_a_late_report_counts_with_the_time_it_took() -> None:
    policy = FlexRR().clock_took(10.0)
    # Timers differ by 100 s; the second report took 2 s longer, a fifth of a clock.
    policy, lends = policy.other_reported("a", 1.75, 0.0, 0.0, WorkerProgress(1.70, 100.0))
    assert lends == ()
    _, lends = policy.other_reported("a", 1.75, 50.0, 0.0, WorkerProgress(1.70, 152.0))
    assert lends == (Lend("a", 0.025),)


def test_others_are_expected_to_go_on_to_the_end_of_their_clock() -> None:
    """Worker a reports 1.75 at 100 s, and takes 8 s for a clock: it will be at 2 at 102 s."""
    policy, lends = FlexRR().other_reported("a", 1.75, 0.0, 8.0, WorkerProgress(1.7, 100.0))
    lend = (Lend("a", 0.025),)
    assert lends == ()
    # At 10 s for a clock this worker will be 0.19 or 0.21 behind by then, and at 100 s much more.
    assert policy.went_on(WorkerProgress(1.71, 101.0, 10.0)) == ()
    assert policy.went_on(WorkerProgress(1.69, 101.0, 10.0)) == lend
    assert policy.went_on(WorkerProgress(1.71, 101.0, 100.0)) == lend
    assert policy.went_on(WorkerProgress(1.69, 101.0, 10.0), {"a"}) == ()
    # After that, a may wait for others.
    assert policy.went_on(WorkerProgress(1.81, 200.0, 10.0)) == ()
    assert policy.went_on(WorkerProgress(1.79, 200.0, 10.0)) == lend
    assert policy.without("a").went_on(WorkerProgress(1.5, 200.0, 10.0)) == ()
    # A worker that has become slow lends at once.
    assert FlexRR().other_reported("a", 1.75, 0.0, 8.0, WorkerProgress(1.7, 100.0, 40.0))[1] == lend
    assert FlexRR().other_reported("a", 1.75, 0.0, 8.0, WorkerProgress(1.7, 100.0, 8.0))[1] == ()


def test_the_usual_time_follows_the_latest_clocks() -> None:
    policy = FlexRR()
    for seconds in (8.0, 4.0, 4.0):
        policy = policy.clock_took(seconds)
    assert policy.usual == 5.0


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 64])
def test_every_worker_has_its_helpers(count: int) -> None:
    names = [f"w{number}" for number in range(count)]
    groups = help_groups(names, 4)
    wanted = min(4, count - 1)
    assert all(len(set(group)) == wanted and name not in group for name, group in groups.items())
    assert all(sum(name in group for group in groups.values()) == wanted for name in names)
