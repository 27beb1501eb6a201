"""Signals of a program that uses the Python API."""

from __future__ import annotations

from threading import Event, Thread

from spotctl.run.following import stop_signals


def test_signals_are_left_alone_outside_of_the_main_thread() -> None:
    entered = list[bool]()

    def enter() -> None:
        with stop_signals(Event()):
            entered.append(True)

    thread = Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [True]
