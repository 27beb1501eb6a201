"""Helpers of tests with real machines, which leave nothing running."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from spotctl.agent.processes import kill, marked

PATIENCE_SECONDS = 60.0


def eventually(happened: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.01)


def running(root: Path) -> list[tuple[int, Path]]:
    """The processes of the machines under a folder, each with the folder in its mark."""
    return [(pid, mark) for pid, mark in marked() if mark.is_relative_to(root)]


def kill_all(root: Path) -> None:
    while found := running(root):
        for pid, _ in found:
            kill(pid)
