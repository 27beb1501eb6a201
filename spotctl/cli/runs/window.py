"""The window of runs: a terminal shows what a runner in another process does, and can be closed at
any time.

The window starts that process and hands the order over, or finds one at work. The runner goes on
when the terminal is closed; only a question that its user answers, or a signal, stops its runs.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import termios
import tty
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, BinaryIO, NoReturn

import typer
from rich.live import Live

from agileml.runtime.ground import move
from pricing_data.units import counted
from spotctl.cli.boundary import DONE
from spotctl.cli.runs import remote_runner
from spotctl.cli.runs.live_runs import EXIT_CODES, LiveRuns
from spotctl.home.callbacks import unheard
from spotctl.home.paths import Paths, make_private_folder
from spotctl.log.folding import fold
from spotctl.log.jobs import is_running, left_behind, runner_of, waiting_jobs
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.run.remote_runner.place import RunnerLost
from spotctl.run.start.runs import request_stop
from spotctl.show.runs import lines as run_lines
from spotctl.show.runs.lines import LiveLines
from spotctl.show.runs.run_view import run_view
from spotctl.show.runs.status import waiting_text, ways_on

if TYPE_CHECKING:
    from spotctl.cli.runs.launches import LaunchOrder
    from spotctl.cli.session import Session
    from spotctl.home.config import Settings
    from spotctl.run.following import RunEnd


_LOOK_SECONDS = 0.2
_PAGE_KEY = "u"
"""Opens the page of `spotctl ui`."""
_MAX_TYPED = 1024


def hand_over(
    session: Session,
    order: LaunchOrder | ResumeOrder,
    jobs: Sequence[str],
    *,
    debug: bool,
    show: Callable[[RunState], None] = unheard,
) -> NoReturn:
    """Starts a runner in a process of its own, and shows its runs; exits with the code of the
    runner.
    """
    home = session.settings.home
    with EventLog(Paths(home).log) as log:
        goes_on = isinstance(order, ResumeOrder) and left_behind(Paths(home), order.job) is None
        before = () if goes_on else {row.run for row in log.beginnings()}
        with started_runner(home, order, debug=debug) as runner:
            session.remark(
                "the run goes on if this window is closed; Ctrl-C asks whether to stop it"
            )
            _show(session, RunWindow(session, log, jobs, runner, before, show))


def _show(session: Session, window: RunWindow) -> NoReturn:
    """Shows runs, and how they ended; exits with the code of their runner."""
    code = window.show()
    if code is None:
        raise typer.Exit
    for ending in window.endings:
        session.out.print(run_lines.summary(*ending))
    raise typer.Exit(max([code, *(EXIT_CODES[ended.outcome] for _, ended in window.endings)]))


def resume(session: Session, job: str, metrics: str, *, debug: bool) -> NoReturn:
    """Resumes a run in a process of its own, or shows it if another process attends to it."""
    paths = Paths(session.settings.home)
    if metrics or not is_running(paths.locks, job):
        # A runner that is at work publishes figures if its own command said so.
        hand_over(session, ResumeOrder(job, metrics), [job], debug=debug)
    process = runner_of(paths.locks, job)
    session.remark(f"process {process} attends to the run; this command only watches")
    with EventLog(paths.log) as log:
        _show(session, RunWindow(session, log, [job], FoundRunner(job, process, session.settings)))


class RunWindow:
    """Shows the runs of jobs that a runner attends to. Runs that began `before` are not shown."""

    def __init__(
        self,
        session: Session,
        log: EventLog,
        jobs: Sequence[str],
        runner: AttendedRuns,
        before: Collection[str] = (),
        print_lines: Callable[[RunState], None] = unheard,
    ) -> None:
        self._print_lines = print_lines
        self._session = session
        self._log = log
        self._jobs = jobs
        self._runner = runner
        self._before = before

        self._states = dict[str, RunState]()
        hint = ""
        if session.in_terminal:
            hint = f"{_PAGE_KEY} opens the page of all runs, to set budgets and stop runs"

        lines = LiveLines(several=len(jobs) > 1, hint=hint)
        self._live = LiveRuns(session, lines, Event(), from_here=runner.is_older, ends_runs=False)
        self._stopped = False
        self._paths = Paths(session.settings.home)
        self._page = OpenedPage(session.settings.home)

    @property
    def endings(self) -> list[RunEnd]:
        """The runs that have ended."""
        return [(state, state.ended) for state in self._states.values() if state.ended is not None]

    def show(self) -> int | None:
        """Shows the runs until their runner has ended, and returns its exit code; None if the user
        leaves before.

        RunnerLost: the runner was killed.
        """
        interrupted = Event()
        with _interruptions(interrupted), closing(self._page):
            try:
                while (code := self._watch(interrupted)) is None:
                    self._ask()
                    interrupted.clear()
            except KeyboardInterrupt:
                left = [
                    (job, state.run) for job, state in self._states.items() if state.ended is None
                ]
                ways = "'spotctl resume {0}' shows it again, 'spotctl stop {0}' ends it"
                self._session.remark(
                    *(f"run {run} goes on: {ways.format(job)}" for job, run in left)
                )
                return None

        going = [state for state in self._states.values() if state.ended is None]
        if code < 0 or (self._runner.is_older and going):
            if self._stopped and not self._states:
                raise KeyboardInterrupt
            lost = [
                waiting_text(job, self._paths, attended=False)
                for job in waiting_jobs(self._paths)
                if job.name in self._jobs
            ]
            going_on = [ways_on(run_view(state, state.at, attended=False)) for state in going]
            raise RunnerLost(
                f"the runner was killed: {'; '.join([*going_on, *lost]) or 'nothing was rented'}"
            )

        return code

    def _watch(self, interrupted: Event) -> int | None:
        """Returns the exit code of the runner, or None after Ctrl-C."""
        with (
            pressed_keys() as keys,
            Live(self._live.view, console=self._session.err, transient=True, refresh_per_second=4),
        ):
            while True:
                if _PAGE_KEY in keys():
                    self._page.open()
                self._session.remark(*self._page.new_lines())
                # Asked before the last look, so that nothing is missed.
                code = self._runner.exit_code()
                self._session.remark(*self._runner.new_lines())
                for job in self._jobs:
                    # Another runner may have been faster: only what this one began is shown.
                    state = self._states.get(job)
                    if state is None and runner_of(self._paths.locks, job) == self._runner.process:
                        latest = latest_run(self._log, job)
                        state = None if latest is None or latest.run in self._before else latest
                    if state is not None:
                        self._states[job] = state = fold(
                            self._log.of_run(state.run, state.last_row), state
                        )
                        self._live.show_turn(state)
                        self._print_lines(state)
                if code is not None or interrupted.wait(_LOOK_SECONDS):
                    return code

    def _ask(self) -> None:
        """Asks what Ctrl-C is to do. KeyboardInterrupt: leave."""
        machines = sum(len(state.alive) for state in self._states.values())
        returned = f" and return {counted(machines, 'machine')}" if machines else ""
        sys.stderr.write(f"stop{returned} (s), leave it running (l), or go on watching (Enter)? ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if not answer or answer.strip().lower().startswith("l"):
            raise KeyboardInterrupt
        if self._stopped or not answer.strip().lower().startswith("s"):
            return

        self._stopped = True
        for job in self._jobs:
            # RunnerLost: nothing says whether the run's runner is on a rented machine by now.
            client = remote_runner.client_of(self._session, job)
            claim = None if client is None else client.claim()
            if claim is not None and claim.holder:
                remote_runner.stop(self._session, job)
                return

        self._runner.stop()


class OpenedPage:
    """The page of `spotctl ui`, in a process that ends with the window."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None

    def open(self) -> None:
        """Opens the page in a browser, unless it is open."""
        if self._process is not None and self._process.poll() is None:
            return

        self.close()
        words = [sys.executable, "-P", "-m", "spotctl", "ui", "--open"]
        self._process = self._stack.enter_context(
            # In a session of its own, Ctrl-C does not reach it, and no browser takes the terminal.
            subprocess.Popen(
                words,
                env={**os.environ, "SPOTCTL_HOME": str(self._home)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        )

        self._stack.callback(self._process.terminate)
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    def new_lines(self) -> list[str]:
        """The lines that it has printed since the last call: its address, and what went wrong."""
        if self._process is None or self._process.stdout is None:
            return []
        return (self._process.stdout.read() or b"").decode(errors="replace").splitlines()

    def close(self) -> None:
        self._stack.close()


@contextmanager
def pressed_keys() -> Iterator[Callable[[], str]]:
    """The keys pressed since the last call, as long as this command has the terminal to itself."""
    if not sys.stdin.isatty() or not _has_terminal():
        yield lambda: ""
        return

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def typed() -> str:
        if not _has_terminal() or not select.select([sys.stdin], [], [], 0)[0]:
            return ""
        return os.read(sys.stdin.fileno(), _MAX_TYPED).decode(errors="replace")

    try:
        yield typed
    finally:
        if _has_terminal():
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _has_terminal() -> bool:
    """Whether the terminal listens to this process: one in the background that reads or changes it
    is stopped.
    """
    with suppress(OSError):
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    return False


@contextmanager
def _interruptions(interrupted: Event) -> Iterator[None]:
    """The first Ctrl-C sets an event, after which there is a question; a second one, and SIGTERM,
    leave.
    """

    def received(number: int, _: object) -> None:
        if interrupted.is_set() or number == signal.SIGTERM:
            raise KeyboardInterrupt
        interrupted.set()

    before = {number: signal.signal(number, received) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_RUNNER = "spotctl.cli.runs.runner_process"


@dataclass(frozen=True, slots=True)
class ResumeOrder:
    """A run to resume, and the file or port where its figures are published."""

    job: str
    metrics: str


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
def started_runner(
    home: Path, order: LaunchOrder | ResumeOrder, *, debug: bool
) -> Iterator[StartedRunner]:
    """Starts a runner for an order on the runs of a home, in a process of its own: neither Ctrl-C
    nor the end of this terminal reaches it. It has the environment and the working directory of the
    window.
    """
    paths = Paths(home)
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
            pickle.dump((home, order, debug), child.stdin)
        yield StartedRunner(child, output)
