"""Helpers of tests with real machines, which leave nothing running."""

from __future__ import annotations

from pathlib import Path

from spotctl.agent.container.processes import kill, marked


def running(root: Path) -> list[tuple[int, Path]]:
    """The processes of the machines under a folder, each with the folder in its mark."""
    return [(pid, mark) for pid, mark in marked() if mark.is_relative_to(root)]


def kill_all(root: Path) -> None:
    while found := running(root):
        for pid, _ in found:
            kill(pid)
