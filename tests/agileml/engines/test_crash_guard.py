"""How long processes that end by themselves are started again."""

from __future__ import annotations

from agileml.engines.crash_guard import MOST_IN_A_ROW, MOST_IN_ONE_CLOCK, CrashGuard


def failures(guard: CrashGuard, most: int = 1000) -> int:
    """How many processes in a row may fail."""
    return next(number for number in range(most) if guard.add())


def test_a_few_failures_in_a_row_are_too_many() -> None:
    guard = CrashGuard()
    guard.advance(4, 4)
    assert failures(guard) == MOST_IN_A_ROW
    assert "ended without a clock finished in between" in guard.add()


def test_a_new_clock_starts_the_count_again() -> None:
    guard = CrashGuard()
    for clock in range(1, 100):
        guard.advance(clock, clock)
        assert not any(guard.add() for _ in range(MOST_IN_A_ROW))
    assert guard.add()


def test_a_repeated_clock_counts_as_progress() -> None:
    guard = CrashGuard()
    guard.advance(30, 30)
    for repeated in range(1, 1 + MOST_IN_ONE_CLOCK // MOST_IN_A_ROW):
        assert not any(guard.add() for _ in range(MOST_IN_A_ROW))
        guard.advance(30, 30 + repeated)
    # A job that never gets beyond one clock ends nevertheless.
    assert "before clock 31 was finished" in guard.add()


def test_nothing_new_is_no_progress() -> None:
    guard = CrashGuard()
    for _ in range(MOST_IN_A_ROW):
        guard.advance(3, 5)
        assert not guard.add()
    guard.advance(3, 5)
    assert guard.add()


def test_each_node_of_a_large_job_may_fail_once() -> None:
    assert failures(CrashGuard(nodes=4)) == MOST_IN_A_ROW
    assert failures(CrashGuard(nodes=64)) == 64
