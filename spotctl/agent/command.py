"""A command on a machine: in a process group of its own, and never left behind."""

from __future__ import annotations

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
"""What a shell says of a command that is not there."""

_PR_SET_PDEATHSIG = 1
_LOOK_SECONDS = 0.01


class Command:
    """Runs from its construction on. Its first process is kept, dead or alive, until `end`: so its group stays its.

    What it prints is added to `output`, or goes where this process prints.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str], output: Path | None, mark: Path
    ) -> None:
        self._mark = mark
        self._refused = False
        self._process: subprocess.Popen[bytes] | None = None
        with _printing_to(output) as file:
            try:
                self._process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    preexec_fn=_dying_with(os.getpid()),  # noqa: PLW1509 - this process has one thread
                )
            except (OSError, ValueError) as error:
                file.write(f"{' '.join(command)}: cannot be started: {error}\n".encode())
                file.flush()

    def exit_code(self) -> int | None:
        """What it ended with, negative by a signal; None while it runs."""
        if self._process is None:
            return CANNOT_START
        # Looked at, not reaped: its number and its group's cannot be another's before `end`.
        found = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found is None:
            return None
        return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status

    def terminate(self) -> None:
        """Asks all of it to end."""
        self._signal(signal.SIGTERM)

    def end(self, grace_seconds: float) -> None:
        """Ends all of it: asked first where there is grace, killed then, also what has left its group."""
        if self._process is not None:
            if grace_seconds > 0 and self.exit_code() is None:
                self.terminate()
                give_up = time.monotonic() + grace_seconds
                while self.exit_code() is None and time.monotonic() < give_up:
                    time.sleep(_LOOK_SECONDS)
            self._signal(signal.SIGKILL)
        kill_marked(self._mark)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                # Only the dead first process is left of the group.
                return


@contextmanager
def _printing_to(output: Path | None) -> Iterator[BinaryIO]:
    if output is None:
        yield sys.stdout.buffer
    else:
        with output.open("ab") as file:
            yield file


def _dying_with(machine: int) -> Callable[[], None] | None:
    """Has the kernel kill the command when the machine's process is killed, and cannot do it."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != machine:
            os._exit(CANNOT_START)

    return prepare
