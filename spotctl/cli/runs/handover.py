"""Hands runs over to a runner in a process of its own, which goes on when the terminal is
closed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from agileml.runtime.ground import move
from spotctl.cli.boundary import DONE
from spotctl.home.paths import Paths, make_private_folder
from spotctl.log.jobs import is_running
from spotctl.run.start.runs import request_stop

if TYPE_CHECKING:
    from spotctl.cli.runs.launches import LaunchOrder
    from spotctl.home.config import Settings


_RUNNER = "spotctl.cli.runs.runner_process"


@dataclass(frozen=True, slots=True)
class ResumeOrder:
    """A run to resume, and the file or port where its figures are published."""

    job: str
    metrics: str


@dataclass(frozen=True, slots=True)
class RunnerTask:
    """An order, and the home of its runs. The runner has the environment and the working directory
    of the window.
    """

    home: Path
    order: LaunchOrder | ResumeOrder
    debug: bool


class StartedRunner:
    """A runner that this process has started, and the file in which the runner prints."""

    is_older = False

    def __init__(self, child: subprocess.Popen[bytes], output: BinaryIO) -> None:
        self._child = child
        self._output = output
        self._stopped = False
        self.process = child.pid

    def exit_code(self) -> int | None:
        """The exit code of the runner, below 0 if a signal killed it; None while it runs."""
        return self._child.poll()

    def new_lines(self) -> list[str]:
        """Lines that the runner has printed since the last call."""
        start = self._output.tell()
        text = self._output.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._output.seek(start + len(whole))
        return whole.decode(errors="replace").splitlines()

    def stop(self) -> None:
        """Asks the runner to stop its runs, and to return their machines."""
        # A second signal would end the process at once.
        if not self._stopped:
            self._stopped = True
            self._child.terminate()


@dataclass(frozen=True, slots=True)
class FoundRunner:
    """A runner that was found at work: another terminal started it."""

    job: str
    process: int | None
    settings: Settings
    is_older: bool = True

    def exit_code(self) -> int | None:
        return None if is_running(Paths(self.settings.home).locks, self.job) else DONE

    def new_lines(self) -> list[str]:
        return []

    def stop(self) -> None:
        request_stop(self.job, self.settings)


AttendedRuns = StartedRunner | FoundRunner
"""A runner in another process, as a window sees it; one that `is_older` attended to its run
before."""


@contextmanager
def started_runner(task: RunnerTask) -> Iterator[StartedRunner]:
    """Starts a runner in a process of its own: neither Ctrl-C nor the end of this terminal reaches
    it.
    """
    paths = Paths(task.home)
    folder = paths.runner_output(0).parent
    make_private_folder(folder)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", _RUNNER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=file,
            start_new_session=True,
        )
        path = move(Path(file.name), paths.runner_output(child.pid))

    assert child.stdin is not None
    with path.open("rb") as output:
        # A runner that has ended already has said why.
        with suppress(BrokenPipeError), child.stdin:
            pickle.dump(task, child.stdin)
        yield StartedRunner(child, output)
