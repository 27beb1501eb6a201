"""Work that Ctrl-C has to wait for."""

from __future__ import annotations

import os
import signal

import pytest

from pricing_data.interruptible import uninterrupted


def test_ctrl_c_waits_for_what_must_not_be_interrupted() -> None:
    # A test run that was started in the background ignores Ctrl-C.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    done = []

    def work() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append(True)

    try:
        with pytest.raises(KeyboardInterrupt):
            work()
    finally:
        signal.signal(signal.SIGINT, usual)
    assert done
