"""Processes found by the mark that they inherit: whatever a machine's command has started, also as a daemon."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from spotctl.agent.lease import FOLDER_VARIABLE

MARK = "SPOTCTL_MACHINE"
"""The environment variable that names a machine's folder to all that runs on it."""

_PROC = Path("/proc")


def marked() -> Iterator[tuple[int, Path]]:
    """The processes of this user that belong to machines, each with the folder that it was started for.

    Where the system has no `/proc`, none are found: there the process group is all that is known of a command.
    """
    for entry in _PROC.glob("[0-9]*"):
        folder = environment_of(int(entry.name)).get(MARK)
        if folder is not None:
            yield int(entry.name), Path(folder)


def kill_marked(folder: Path) -> None:
    """Kills what was started for a machine, until nothing of it is found: a process may fork while it is looked for."""
    while found := [pid for pid, mark in marked() if mark == folder and pid != os.getpid()]:
        for pid in found:
            kill(pid)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to a process that may have ended already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def at_work(folder: Path) -> int | None:
    """The first process of what a machine runs: the agent starts one that starts it, or it is the only one there is."""
    there = sorted(pid for pid, mark in marked() if mark == folder)
    started = (pid for pid in there if parent_of(pid) in there)
    return next(started, there[0] if there else None)


def parent_of(pid: int) -> int | None:
    """The process that started it, or took it over."""
    try:
        # The name, in parentheses, may hold anything.
        return int((_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def folder_of(pid: int) -> str | None:
    """The folder in which a process works."""
    try:
        return str((_PROC / str(pid) / "cwd").readlink())
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return None


def environment_of(pid: int) -> dict[str, str]:
    """The environment in which a process was started; empty where that is not to be known, or it has ended."""
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        # Another user's, or just gone.
        return {}
    pairs = (variable.partition(b"=") for variable in variables)
    # A zombie has no environment any more, so what is found is alive.
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}


def surroundings(machine: Path, agent: int, folder: str) -> tuple[dict[str, str], str]:
    """The environment and the folder in which a machine's payload runs, or in which one would start.

    `agent` is the agent's process, `folder` the one that the payload names.
    """
    own = machine / "work"
    own.mkdir(exist_ok=True)
    pid = at_work(machine)
    environment = {**environment_of(pid or agent), MARK: str(machine), FOLDER_VARIABLE: str(machine / "job")}
    return environment, (folder_of(pid) if pid else None) or folder or str(own)
