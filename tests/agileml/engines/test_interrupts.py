"""Ctrl-C as a request."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import pytest

from agileml.engines.interrupts import ONE_PRESS_SECONDS, requested_by_ctrl_c


@pytest.fixture(autouse=True)
def _usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_press_is_a_request_and_the_second_an_interrupt() -> None:
    now = 7.0
    with requested_by_ctrl_c(lambda: now) as requested:
        assert not requested()
        signal.raise_signal(signal.SIGINT)
        assert requested()
        now += ONE_PRESS_SECONDS
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_press_that_arrives_twice_is_one() -> None:
    """`timeout -s INT` sends its signal to the command and to its group."""
    now = 7.0
    with requested_by_ctrl_c(lambda: now) as requested:
        signal.raise_signal(signal.SIGINT)
        now += ONE_PRESS_SECONDS / 2
        signal.raise_signal(signal.SIGINT)
        assert requested()


def test_a_handler_of_the_caller_stays() -> None:
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    with requested_by_ctrl_c() as requested:
        signal.raise_signal(signal.SIGINT)
        assert not requested()
    assert heard == [1]


def test_another_thread_changes_nothing() -> None:
    def run() -> None:
        with requested_by_ctrl_c() as requested:
            assert not requested()
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
