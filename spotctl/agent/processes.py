"""Finds processes by a mark in their environment, which all processes of a machine inherit, even daemons."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spotctl.agent.lease import FOLDER_VARIABLE

MARK = "SPOTCTL_MACHINE"
"""The environment variable with a machine's folder."""

_PROC = Path("/proc")


def marked() -> Iterator[tuple[int, Path]]:
    """This user's processes that belong to machines, each with the machine's folder.

    On a system without `/proc` there are none, and only a command's process group is known.
    """
    for entry in _PROC.glob("[0-9]*"):
        folder = environment_of(int(entry.name)).get(MARK)
        if folder is not None:
            yield int(entry.name), Path(folder)


def kill_marked(folder: Path) -> None:
    """Kills the processes of a machine until none is left: a process may fork while they are listed."""
    while pids := [pid for pid, mark in marked() if mark == folder and pid != os.getpid()]:
        for pid in pids:
            kill(pid)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to a process that may have ended already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def cut_short(machine: Path, folder: Path) -> list[Path]:
    """Files below a folder that SIGTERM would cut short: a machine's processes write them and none handles the signal.

    If one handles it, the program expects it. Logs, to which lines are appended, may end anywhere. On a system without
    `/proc` there are no such files.
    """
    folder = folder.resolve()
    pids = [pid for pid, mark in marked() if mark == machine and pid != os.getpid()]
    if any(_handles(pid, signal.SIGTERM) for pid in pids):
        return []
    return [path for pid in pids for path in _written_files(pid) if path.is_relative_to(folder)]


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal; False if the process is gone."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return any(mask >> (number - 1) & 1 for mask in masks)


def _written_files(pid: int) -> Iterator[Path]:
    """The files that a process has open for writing, other than at their end."""
    for handle in (_PROC / str(pid) / "fd").glob("*"):
        # The process may close the file, or end.
        with suppress(OSError):
            path = handle.readlink()
            flags = (_PROC / str(pid) / "fdinfo" / handle.name).read_text().partition("flags:")[2].split()[0]
            if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY and not int(flags, 8) & os.O_APPEND:
                yield path


def at_work(folder: Path) -> int | None:
    """The first process of a machine's program: a child of the process that the agent started, or else that process."""
    pids = sorted(pid for pid, mark in marked() if mark == folder)
    children = (pid for pid in pids if parent_of(pid) in pids)
    return next(children, pids[0] if pids else None)


def parent_of(pid: int) -> int | None:
    """The parent of a process; None if the process is gone."""
    try:
        # The name, in parentheses, may contain any character.
        return int((_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return None


def folder_of(pid: int) -> str | None:
    """The working directory of a process; None if the process is gone or another user's."""
    try:
        return str((_PROC / str(pid) / "cwd").readlink())
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return None


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started; empty if the process is gone or another user's."""
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return {}
    pairs = (variable.partition(b"=") for variable in variables)
    # A zombie's environment is empty, so a marked process is alive.
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment and the folder in which a machine's payload runs, or would start.

    `container` is a process of the payload if that runs in a container, which has its own environment and folders.
    """

    environment: Mapping[str, str]
    folder: str
    container: int | None

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command here, if need be in the payload's container."""
        if self.container is None:
            return list(command)
        return [sys.executable, "-P", "-m", "spotctl.agent.enter_container", str(self.container), *command]


def surroundings_of(machine: Path, agent: int, folder: str) -> Surroundings:
    """The surroundings of a machine's payload. `agent` is the agent's process, `folder` the payload's."""
    own = machine / "work"
    own.mkdir(exist_ok=True)
    pid = at_work(machine)
    container = pid if pid is not None and _mounts(pid) not in ("", _mounts(os.getpid())) else None
    outside = pid if container is None else None
    environment = {**environment_of(outside or agent), MARK: str(machine), FOLDER_VARIABLE: str(machine / "job")}
    return Surroundings(environment, (folder_of(outside) if outside else None) or folder or str(own), container)


def _mounts(pid: int) -> str:
    """The mount namespace of a process; empty if the process is gone or another user's, or without namespaces."""
    try:
        return str((_PROC / str(pid) / "ns/mnt").readlink())
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return ""
