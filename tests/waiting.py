"""Waiting for what happens in another thread or process, however busy the computer is."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 300.0
_LOOK_SECONDS = 0.02


def eventually(happened: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(_LOOK_SECONDS)
