"""A command on a machine: in a process group of its own, and always ended as a whole."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from spotctl.agent.processes import kill_marked

CANNOT_START = 127
"""The exit code of a command that could not be started; a shell uses the same."""

_WITH_SETUP = '(eval "$1") && shift && exec "$@"'
"""Runs the setup in a subshell, then replaces this shell by the rest of the command."""

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.01


class RunningCommand:
    """A command that runs from construction on. `finish` reaps its first process, so the group keeps its id until then.

    The command's output is appended to `output` (None: goes where this process prints). `mark` is the machine's folder,
    by which processes that have left the group are found.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path | None, mark: Path
    ) -> None:
        self._mark = mark
        self._process: subprocess.Popen[bytes] | None = None
        with _output_to(output) as file:
            try:
                self._process = start_group(command, folder, environment, file, subprocess.STDOUT)
            except (OSError, ValueError) as error:
                file.write(f"{' '.join(command)}: cannot be started: {error}\n".encode())
                file.flush()

    def exit_code(self) -> int | None:
        """The exit code, or the negative number of the signal that ended the command; None while it runs."""
        return CANNOT_START if self._process is None else exit_code_of(self._process)

    def terminate(self) -> None:
        """Sends SIGTERM to the whole group."""
        if self._process is not None:
            signal_group(self._process, signal.SIGTERM)

    def finish(self) -> None:
        """Kills all remaining processes, even those that have left the group, and reaps the first."""
        if self._process is not None:
            signal_group(self._process, signal.SIGKILL)
        kill_marked(self._mark)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def end(self, grace_seconds: float) -> None:
        """Ends the command: sends SIGTERM and waits for this time, if it is above 0, then calls `finish`."""
        if grace_seconds > 0 and self.exit_code() is None:
            self.terminate()
            give_up = time.monotonic() + grace_seconds
            while self.exit_code() is None and time.monotonic() < give_up:
                time.sleep(_POLL_SECONDS)
        self.finish()


def after_setup(setup: str, command: Sequence[str]) -> list[str]:
    """The command, behind its setup if there is one."""
    return ["/bin/sh", "-c", _WITH_SETUP, "setup", setup, *command] if setup else list(command)


def start_group(
    command: Sequence[str], folder: Path | str, environment: Mapping[str, str], out: BinaryIO, err: BinaryIO | int
) -> subprocess.Popen[bytes]:
    """Starts a process that leads a group of its own and dies with this one. Raises OSError or ValueError."""
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
    """The exit code of a process that stays unreaped, so that its number and its group's cannot be reused."""
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


@contextmanager
def _output_to(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        yield sys.stdout.buffer
    else:
        with output.open("ab") as file:
            yield file


def dies_with(parent: int) -> Callable[[], None] | None:
    """A function by which the kernel kills its caller when `parent` dies, even by SIGKILL; None if not on Linux."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(CANNOT_START)

    return prepare
