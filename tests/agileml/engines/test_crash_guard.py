"""How long processes that end by themselves are started again."""

from __future__ import annotations

import signal

from agileml.engines.base import Gone
from agileml.engines.job_loop import MAX_FROM_OUTSIDE, MAX_IN_A_ROW, MAX_IN_ONE_CLOCK, CrashGuard
from agileml.runtime.node_process import UNREACHABLE

UNKNOWN = Gone("")


def failures(guard: CrashGuard, most: int = 1000) -> int:
    """How many processes in a row may fail."""
    return next(number for number in range(most) if guard.add(UNKNOWN, ()))


def test_a_few_failures_in_a_row_are_too_many() -> None:
    guard = CrashGuard()
    guard.advance(4, 4)
    assert failures(guard) == MAX_IN_A_ROW
    assert "ended without any work done in between" in guard.add(UNKNOWN, ())


def test_a_new_clock_starts_the_count_again() -> None:
    guard = CrashGuard()
    for clock in range(1, 100):
        guard.advance(clock, clock)
        assert not any(guard.add(UNKNOWN, ()) for _ in range(MAX_IN_A_ROW))
    assert guard.add(UNKNOWN, ())


def test_a_repeated_clock_counts_as_progress() -> None:
    guard = CrashGuard()
    guard.advance(30, 30)
    for repeated in range(1, 1 + MAX_IN_ONE_CLOCK // MAX_IN_A_ROW):
        assert not any(guard.add(UNKNOWN, ()) for _ in range(MAX_IN_A_ROW))
        guard.advance(30, 30 + repeated)
    # A job that never gets beyond one clock ends nevertheless.
    assert "before clock 31 was finished" in guard.add(UNKNOWN, ())


def test_processes_that_end_faster_than_clocks_do_are_started_again_as_long_as_work_is_done() -> (
    None
):
    guard = CrashGuard()
    for chunks in range(40):
        guard.advance(3, 3 + chunks)
        assert not guard.add(UNKNOWN, ())


def test_nothing_new_is_no_progress() -> None:
    guard = CrashGuard()
    for _ in range(MAX_IN_A_ROW):
        guard.advance(3, 5)
        assert not guard.add(UNKNOWN, ())
    guard.advance(3, 5)
    assert guard.add(UNKNOWN, ())


def test_each_node_of_a_large_job_may_fail_once() -> None:
    assert failures(CrashGuard(nodes=4)) == MAX_IN_A_ROW
    assert failures(CrashGuard(nodes=64)) == 64


def test_processes_that_are_killed_from_outside_count_apart() -> None:
    """Six killed nodes are no sign of a program that crashes; a machine without memory kills every
    attempt.
    """
    guard, killed = CrashGuard(nodes=3), Gone("", -signal.SIGKILL)
    assert not any(guard.add(killed, ()) for _ in range(2 * MAX_IN_A_ROW))
    assert failures(guard) == MAX_IN_A_ROW
    guard.advance(1, 1)
    assert next(number for number in range(1000) if guard.add(killed, ())) == MAX_FROM_OUTSIDE
    assert "that a signal ended" in guard.add(killed, ())


def test_two_failures_alike_without_a_new_clock_are_enough() -> None:
    guard = CrashGuard()
    guard.advance(3, 3)
    assert not guard.add(Gone("a", 9, "shard 7: bad record at 0x7f01"), ["a", "b"])
    # A clock that is done again after a loss is no progress of that kind.
    guard.advance(3, 4)
    assert "failed in the same way" in guard.add(
        Gone("c", 9, "shard 12: bad record at 0x55aa"), ["b", "c"]
    )


def test_processes_that_fail_together_may_be_started_again() -> None:
    guard = CrashGuard()
    assert not any(guard.add(Gone(name, 1, "disk full"), ["a", "b", "c"]) for name in "abc")
    guard.advance(1, 1)
    assert not guard.add(Gone("d", 1, "disk full"), ["d", "e"]), "a clock was finished in between"


def test_failures_for_different_or_outside_reasons_are_not_alike() -> None:
    guard = CrashGuard()
    assert not guard.add(Gone("a", 1, "disk full"), ["a"])
    assert not guard.add(Gone("b", 2, "disk full"), ["b"])
    assert not guard.add(Gone("c", 2, "no such file"), ["c"])
    for status in (-9, UNREACHABLE, None):
        assert failures(CrashGuard()) == MAX_IN_A_ROW
        guard = CrashGuard()
        assert not any(guard.add(Gone(name, status, ""), [name]) for name in "abcde")
    guard = CrashGuard()
    assert not guard.add(Gone("a", -11, ""), ["a"])
    assert guard.add(Gone("b", -11, ""), ["b"]), "a crash of its own needs no words"
