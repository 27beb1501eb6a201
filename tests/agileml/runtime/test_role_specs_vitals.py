"""What a node shows of its progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

import pytest

from agileml.protocol.messages import UNKNOWN_STEP
from agileml.runtime.role_specs import RECENT_STEPS, Vitals


def clock(*times: float) -> Callable[[], float]:
    left = iter(times)
    return lambda: next(left)


def steps(vitals: Vitals, seconds: Sequence[float], start: float = 0.0) -> None:
    for each in seconds:
        with vitals.step(first=False, clock=clock(start, start + each)):
            pass
        start += each


def test_a_node_that_waits_for_messages_makes_progress() -> None:
    vitals = Vitals()
    vitals.note_turn(50.0)
    assert vitals.stalled(50.5) == 0.5


def test_a_step_and_a_stopped_message_loop_are_no_progress() -> None:
    vitals = Vitals()
    vitals.note_turn(50.0)
    with vitals.step(first=False, clock=clock(10.0, 60.0)):
        assert vitals.stalled(50.0) == 40.0
        vitals.note_turn(5.0)
        assert vitals.stalled(50.0) == 45.0
    assert vitals.stalled(50.0) == 45.0


def test_the_usual_step_is_the_longest_of_the_recent_ones() -> None:
    vitals = Vitals()
    with vitals.step(first=False, clock=clock(0.0, 1.0)):
        assert vitals.usual_step == UNKNOWN_STEP
    steps(vitals, [7.0, *[2.0] * (RECENT_STEPS - 1)])
    with vitals.step(first=False, clock=clock(0.0, 0.0)):
        assert vitals.usual_step == 7.0
    with vitals.step(first=False, clock=clock(0.0, 0.0)):
        assert vitals.usual_step == 2.0


def test_a_first_step_says_nothing_about_later_ones() -> None:
    vitals = Vitals()
    steps(vitals, [2.0])
    with vitals.step(first=True, clock=clock(0.0, 500.0)):
        assert vitals.usual_step == UNKNOWN_STEP
    with vitals.step(first=False, clock=clock(0.0, 0.0)):
        assert vitals.usual_step == 2.0


def test_a_step_that_fails_is_over() -> None:
    vitals = Vitals()
    with pytest.raises(KeyError), vitals.step(first=True):
        raise KeyError
    vitals.note_turn(9.0)
    assert vitals.stalled(9.0) == 0.0


def test_a_forked_process_sees_what_the_node_does() -> None:
    vitals = Vitals()
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(told, 1)
        os._exit(int(vitals.stalled(100.0)))
    vitals.note_turn(58.0)
    os.write(tell, b"x")
    _, status = os.waitpid(child, 0)
    os.close(told)
    os.close(tell)
    assert os.waitstatus_to_exitcode(status) == 42
    assert vitals.stalled(time.monotonic()) >= 0.0
