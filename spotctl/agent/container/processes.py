"""The processes of a machine: commands, each in a process group of its own and always ended as a
whole.

Processes that leave their group are found by a mark in their environment, which all of a machine
inherit, even daemons.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from spotctl.agent.layout import LEASE_VARIABLE, OF_ONE_PROCESS, RUN_VARIABLE, SETUP_VARIABLE

MARK = "SPOTCTL_MACHINE"
"""The environment variable with a machine's folder."""

CANNOT_START = 127
"""The exit code of a command that could not be started; a shell uses the same."""

WITH_SETUP = '(eval "$1") && shift && exec "$@"'
"""Runs the setup in a subshell, then replaces this shell by the rest of the command."""

SHELL = ("/bin/sh", "-c", f'eval "unset {RUN_VARIABLE}; ${RUN_VARIABLE}"')
"""Runs the text in a variable as `sh -c TEXT` does, without the text among its arguments."""

BEHIND_SETUP = (
    *("/bin/sh", "-c"),
    f'(eval "unset {RUN_VARIABLE} {SETUP_VARIABLE}; ${SETUP_VARIABLE}") && unset {SETUP_VARIABLE} && exec "$@"',
    "setup",
)
"""Runs the setup in a variable in a subshell, then replaces this shell by the command that
follows."""

_PROC = Path("/proc")
_MOUNTS, _FOLDER = "ns/mnt", "cwd"
"""Links of a process there: to its mount namespace, and to its working directory."""
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.01


class RunningCommand:
    """A command that runs from construction on. `finish` reaps its first process, so the group
    keeps its id until then.

    The command's output is appended to `output` (None: goes where this process prints). `mark` is
    the machine's folder, by which processes that have left the group are found.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        output: Path | None,
        mark: Path,
    ) -> None:
        self._mark = mark
        self._process: subprocess.Popen[bytes] | None = None
        with nullcontext(sys.stdout.buffer) if output is None else output.open("ab") as file:
            try:
                self._process = start_group(command, folder, environment, file, subprocess.STDOUT)
            except (OSError, ValueError) as error:
                file.write(f"{' '.join(command)}: cannot be started: {error}\n".encode())
                file.flush()

    def exit_code(self) -> int | None:
        """The exit code, or the negative number of the signal that ended the command; None while it
        runs.
        """
        return CANNOT_START if self._process is None else exit_code_of(self._process)

    def terminate(self) -> None:
        """Sends SIGTERM to the whole group."""
        if self._process is not None:
            signal_group(self._process, signal.SIGTERM)

    def finish(self) -> None:
        """Kills all remaining processes, even those that have left the group, and reaps the
        first."""
        if self._process is not None:
            signal_group(self._process, signal.SIGKILL)
        kill_marked(self._mark)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def end(self, grace_seconds: float) -> None:
        """Ends the command: sends SIGTERM and waits for this time, if it is above 0, then calls
        `finish`.
        """
        if grace_seconds > 0 and self.exit_code() is None:
            self.terminate()
            give_up = time.monotonic() + grace_seconds
            while self.exit_code() is None and time.monotonic() < give_up:
                time.sleep(_POLL_SECONDS)
        self.finish()


def start_group(
    command: Sequence[str],
    folder: Path | str,
    environment: Mapping[str, str],
    out: BinaryIO,
    err: BinaryIO | int,
) -> subprocess.Popen[bytes]:
    """Starts a process that leads a group of its own and dies with this one. Raises OSError or
    ValueError.
    """
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
        preexec_fn=dies_with(os.getpid()),  # noqa: PLW1509 - this process has one thread
    )


def exit_code_of(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a process that stays unreaped, so that its number and its group's cannot be
    reused.
    """
    status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if status is None:
        return None
    return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Sends a signal to the group that an unreaped process leads."""
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        # The group consists of the dead first process only.
        return


def dies_with(parent: int) -> Callable[[], None] | None:
    """A function by which the kernel kills its caller when `parent` dies, even by SIGKILL; None if
    not on Linux.
    """
    if sys.platform != "linux":
        return None

    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_START)

    return prepare


def marked() -> Iterator[tuple[int, Path]]:
    """This user's processes that belong to machines, each with the machine's folder.

    On a system without `/proc` there are none, and only a command's process group is known.
    """
    for entry in _PROC.glob("[0-9]*"):
        folder = environment_of(int(entry.name)).get(MARK)
        if folder is not None:
            yield int(entry.name), Path(folder)


def kill_marked(folder: Path) -> None:
    """Kills the processes of a machine until none is left: a process may fork while they are
    listed.
    """
    while pids := [pid for pid, mark in marked() if mark == folder and pid != os.getpid()]:
        for pid in pids:
            kill(pid)


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Sends a signal to a process that may have ended already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def cut_short(machine: Path, *folders: Path) -> list[Path]:
    """Files in or below these paths that SIGTERM would cut short: a machine's processes write them
    and none handles the signal.

    If one handles it, the program expects it. On a system without `/proc` there are no such files.
    """
    pids = [pid for pid, mark in marked() if mark == machine and pid != os.getpid()]
    if any(_handles(pid, signal.SIGTERM) for pid in pids):
        return []
    written = files_being_written(machine)
    roots = [folder.resolve() for folder in folders]
    return [path for path in written if any(path.is_relative_to(root) for root in roots)]


def files_being_written(machine: Path) -> list[Path]:
    """The files that a machine's processes have open for writing. Logs, to which lines are
    appended, may end anywhere."""
    pids = [pid for pid, mark in marked() if mark == machine and pid != os.getpid()]
    written = []
    for handle in chain.from_iterable((_PROC / str(pid) / "fd").glob("*") for pid in pids):
        # The process may close the file, or end.
        with suppress(OSError):
            path, opened = handle.readlink(), handle.parent.with_name("fdinfo") / handle.name
            flags = int(opened.read_text().partition("flags:")[2].split()[0], 8)
            if flags & os.O_ACCMODE != os.O_RDONLY and not flags & os.O_APPEND:
                written.append(path)
    return written


def _handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler of its own for a signal; False if the process is gone."""
    try:
        lines = (_PROC / str(pid) / "status").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return False
    masks = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return any(mask >> (number - 1) & 1 for mask in masks)


def parent_of(pid: int) -> int | None:
    """The parent of a process; None if the process is gone."""
    try:
        # The name, in parentheses, may contain any character.
        return int(
            (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
        )
    except (FileNotFoundError, ProcessLookupError):
        return None


def environment_of(pid: int) -> dict[str, str]:
    """The environment with which a process was started, without what is for that process alone;
    empty if the process is gone or another user's."""
    try:
        variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return {}

    pairs = (variable.partition(b"=") for variable in variables)

    # A zombie's environment is empty, so a marked process is alive.
    known = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs if name}
    return {name: value for name, value in known.items() if name not in OF_ONE_PROCESS}


class Surroundings:
    """The environment and the folder in which a machine's payload runs, or would start. `agent` is
    the agent's process, `folder` the payload's.

    `container` is a process of the payload if that runs in a container, which has its own
    environment and folders.
    """

    def __init__(self, machine: Path, agent: int, folder: str) -> None:
        own = machine / "work"
        own.mkdir(exist_ok=True)
        # The first process of the machine's program: a child of the process that the agent started,
        # or else that process.
        pids = sorted(pid for pid, mark in marked() if mark == machine)
        children = (pid for pid in pids if parent_of(pid) in pids)
        pid = next(children, pids[0] if pids else None)
        has_own = pid is not None and _linked(pid, _MOUNTS) not in (
            "",
            _linked(os.getpid(), _MOUNTS),
        )
        self.container = pid if has_own else None

        outside = None if has_own else pid
        self.environment = {
            **environment_of(outside or agent),
            MARK: str(machine),
            LEASE_VARIABLE: str(machine / "job"),
        }
        self.folder = (_linked(outside, _FOLDER) if outside else "") or folder or str(own)

    def wrap(self, command: Sequence[str]) -> list[str]:
        """The command line that runs a command here, if need be in the payload's container."""
        if self.container is None:
            return list(command)
        return [
            sys.executable,
            "-P",
            "-m",
            "spotctl.agent.container.podman",
            str(self.container),
            *command,
        ]


def _linked(pid: int, name: str) -> str:
    """The target of a process's link of this name; empty if the process is gone or another user's,
    or without one.
    """
    try:
        return str((_PROC / str(pid) / name).readlink())
    except (PermissionError, FileNotFoundError, ProcessLookupError):
        return ""
