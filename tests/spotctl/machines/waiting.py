"""Waiting for what happens in another thread or process, however busy the computer is."""

from __future__ import annotations

import time
from collections.abc import Callable

_PATIENCE_SECONDS = 60.0


def until(happened: Callable[[], bool]) -> None:
    give_up = time.monotonic() + _PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.01)
