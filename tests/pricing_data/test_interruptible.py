"""Work that Ctrl-C has to wait for."""

from __future__ import annotations

import os
import signal

import pytest

from pricing_data.interruptible import uninterrupted


def test_ctrl_c_waits_for_what_must_not_be_interrupted() -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
