"""Runs while they go on, with what Ctrl-C does to them, and how they end: for every command that
waits for runs.

A terminal shows them live. On stdout stand the lines that the job's script prints, or an object of
JSON for each event, with the answer of `launch --json` as the last one. Each run has one answer, in
whichever form, and the exit code follows from it.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer
from rich.live import Live

from pricing_data.units import counted, format_time, moment
from spotctl.cli.boundary import exit_code_of
from spotctl.cli.options import ShownOutput
from spotctl.files.job.reader import restored
from spotctl.home.callbacks import unheard
from spotctl.home.errors import Interrupted, SpotctlError
from spotctl.home.paths import Paths
from spotctl.home.printable import printable
from spotctl.home.wall_clock import wall_us
from spotctl.log.event_json import to_json
from spotctl.log.jobs import runner_of, waiting_jobs
from spotctl.log.ledger.same_work import final_figures, without_run
from spotctl.log.outcomes import WITHDRAWN
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from spotctl.run.following import RunObserver, noticing, stop_signals, waits_said
from spotctl.run.machine_output import RunOutput
from spotctl.run.notify import hidden, secret_values
from spotctl.run.start import runs
from spotctl.show.columns import as_json
from spotctl.show.runs import lines as run_lines
from spotctl.show.runs.lines import LiveLines
from spotctl.show.runs.reading import RunViews
from spotctl.show.runs.run_answers import EVENT_LINE
from spotctl.show.runs.run_view import run_view
from spotctl.show.runs.status import waiting_text, ways_on

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.files.job.spec import JobSpec
    from spotctl.home.config import Settings
    from spotctl.log.events import Alarm, RunEnded
    from spotctl.run.following import RunEnd
    from spotctl.run.notify import Delivery
    from spotctl.run.start.concurrent_runs import Launched


_AGAIN = "Ctrl-C again ends this command at once"


@contextmanager
def live_view(
    session: Session,
    *,
    from_here: bool = False,
    leaving: Event | None = None,
    several: bool = False,
    publish: Callable[[RunState], None] = unheard,
) -> Iterator[RunObserver]:
    """A live view if stderr is a terminal, and otherwise a line with the time for each event.

    `from_here` leaves out events from before this call.

    `publish` is called with each new state of a run. With `several` runs, each line names its job.

    The first Ctrl-C asks the runs to stop, a second one ends this process. With `leaving`, the
    first one only sets that event.
    """
    live = LiveRuns(
        session, LiveLines(several=several), leaving or Event(), from_here, leaving is None
    )

    def show_turn(state: RunState) -> None:
        publish(state)
        live.show_turn(state)

    observer = RunObserver(
        show_turn,
        partial(_notify, session),
        partial(_notify_of_alarm, session),
        on_remark=live.show_remark,
        is_stopped=live.stopped.is_set,
    )

    try:
        with (
            stop_signals(live.stopped),
            Live(live.view, console=session.err, transient=True, refresh_per_second=4),
            noticing(live.stopped, live.ask_to_stop),
        ):
            yield observer
    except KeyboardInterrupt:
        if not live.seen:
            raise
        raise Interrupted(live.interruption()) from None


class LiveRuns:
    """The runs that a command waits for. With `ends_runs`, the command attends to them, and Ctrl-C
    stops them.
    """

    def __init__(
        self, session: Session, view: LiveLines, stopped: Event, from_here: bool, ends_runs: bool
    ) -> None:
        self.view = view
        self.stopped = stopped
        self.seen: dict[str, RunState] = {}
        self._session = session
        self._from_here = from_here
        self._ends_runs = ends_runs
        self._views = RunViews(session.settings)
        self._remarked = set[tuple[str, int]]()
        self._noticed = False
        self._lock = Lock()

    def show_turn(self, state: RunState) -> None:
        """Shows what happened in a turn of a run."""
        assert state.began is not None
        before = self.seen.get(state.run, state if self._from_here else RunState())
        self.seen[state.run] = state
        if self.stopped.is_set():
            self.ask_to_stop()
            if self._ends_runs and state.stopping is None:
                runs.request_stop(state.began.job, self._session.settings)

        for short in state.over_budget.values():
            if (short.action, short.limit) not in self._remarked:
                self._remarked.add((short.action, short.limit))
                self._session.remark(f"{state.run}: {run_lines.short_budget(short)}")

        secrets = secret_values(state.began.spec.get("secrets", ()), os.environ)
        for line in run_lines.happened(before, state):
            # A cloud may quote what it was sent.
            self._say(hidden(line, secrets), state.began.job)

        if self._session.err.is_terminal:
            self.view.show(self._views.of(state))

    def show_remark(self, job: str, line: str) -> None:
        """Shows a line about a job that a window does not learn from the log."""
        if self._session.in_window:
            self._session.remark(f"{job}: {line}")
        self._say(" ".join(line.split()), job)

    def ask_to_stop(self) -> None:
        """Says, once, what the first Ctrl-C does, and asks the runs to stop; a turn may be waiting
        for a cloud.
        """
        with self._lock:
            if self._noticed:
                return
            self._noticed = True

        states = list(self.seen.values())
        said = _AGAIN
        if self._ends_runs:
            machines = sum(len(state.alive) for state in states)
            said = f"stopping; {_AGAIN}"
            if machines:
                said = (
                    f"stopping, and returning {counted(machines, 'machine')}; {_AGAIN}, and leaves "
                    "the machines rented until their leases end"
                )

        self._say(said)
        for state in states if self._ends_runs else ():
            # The next turn asks again, and fails if it cannot.
            with suppress(SpotctlError):
                runs.request_stop(state.job, self._session.settings)

    def interruption(self) -> str:
        """The runs that a second Ctrl-C leaves behind, and how to continue them."""
        paths = Paths(self._session.settings.home)
        with EventLog(paths.log) as log:
            latest = [latest_run(log, state.job) for state in self.seen.values()]
        left = [state for state in latest if state is not None and state.ended is None]
        waits = [
            waiting_text(job, paths, attended=False)
            for job in waiting_jobs(paths)
            if runner_of(paths.locks, job.name) == os.getpid()
        ]

        views = [run_view(state, state.at, attended=not self._ends_runs) for state in left]
        return "; ".join(["interrupted", *map(ways_on, views), *waits])

    def _say(self, line: str, job: str = "") -> None:
        err = self._session.err
        if self._session.in_window:
            return
        if err.is_terminal:
            err.print(self.view.event(line, err.width, job))
        else:
            name = f"{job}: " if job and self.view.several else ""
            self._session.remark(f"{moment(wall_us())} {name}{line}")


def _notify_of_alarm(session: Session, spec: JobSpec, state: RunState, alarm: Alarm) -> None:
    from spotctl.run.notify import notify_of_alarm

    def done(delivery: Delivery) -> None:
        if delivery.failure:
            session.remark(delivery.text)

    notify_of_alarm(spec, state, alarm, done)


def _notify(session: Session, spec: JobSpec, state: RunState, ended: RunEnded) -> None:
    from spotctl.run.notify import notify_of_end

    awaited = (
        f"run {state.run} has ended, and costs nothing any more: waiting for those whom the job "
        "notifies, for a minute each at most"
    )
    with waits_said(awaited, session.remark):
        deliveries = notify_of_end(spec, state, ended)
    session.remark(*(delivery.text for delivery in deliveries if delivery.failure))


# -- lines on stdout, and the end ------------------------------------------------------------------


def line_printer(
    settings: Settings, output: ShownOutput, *, as_json_lines: bool, several: bool
) -> Callable[[RunState], None]:
    """Prints the new lines of a run on stdout, whose state it is called with; the runs may be those
    of several threads."""
    if as_json_lines:
        return _EventLines(settings, sys.stdout).show
    if output is ShownOutput.SCRIPT:
        return _ScriptLines(settings, sys.stdout, several=several).show
    return unheard


class _EventLines:
    """A line of JSON for each event, and the answer of `launch --json` as the last line of each
    run.
    """

    def __init__(self, settings: Settings, stream: TextIO) -> None:
        self._settings = settings
        self._stream = stream
        self._lock = Lock()
        self._shown = dict[str, int]()
        self._answered = set[str]()

    def show(self, state: RunState) -> None:
        # A connection to the log belongs to one thread.
        with EventLog(Paths(self._settings.home).log) as log:
            rows = log.of_run(state.run, self._shown.get(state.run, 0))
        assert state.began is not None
        job = state.began.job
        lines = [
            _line(row.at, row.run, job, type(row.event).__name__, json.loads(to_json(row.event)))
            for row in rows
        ]

        if state.ended is not None and state.run not in self._answered:
            self._answered.add(state.run)
            figures = final_figures(state, state.ended)
            lines.append(_line(state.at, state.run, job, "Answer", figures))

        with self._lock:
            self._shown[state.run] = max(
                (row.id for row in rows), default=self._shown.get(state.run, 0)
            )
            self._stream.writelines(f"{json.dumps(line)}\n" for line in lines)
            self._stream.flush()


def _line(
    at: int | None, run: str | None, job: str, event: str, fields: dict[str, Any]
) -> dict[str, Any]:
    """A line of `launch --json-lines`."""
    time = None if at is None else format_time(at)
    return as_json(
        EVENT_LINE, {"time": time, "job": job, "run": run, "event": event, "fields": fields}
    )


class _ScriptLines:
    """The output of the machines of runs, each line with its machine, and with its job if there are
    several.
    """

    def __init__(self, settings: Settings, stream: TextIO, *, several: bool) -> None:
        self._settings = settings
        self._stream = stream
        self._several = several
        self._lock = Lock()
        self._outputs = dict[str, RunOutput]()

    def show(self, state: RunState) -> None:
        began = state.began
        assert began is not None
        if state.run not in self._outputs:
            spec = restored(began.spec, self._settings.home)
            self._outputs[state.run] = RunOutput(spec, state.run, self._settings)

        job = f"{began.job} " if self._several else ""
        lines = self._outputs[state.run].new_lines(state, last=state.ended is not None)
        with self._lock:
            self._stream.writelines(
                f"{job}{line.machine}: {printable(line.text)}\n" for line in lines
            )
            self._stream.flush()


EXIT_CODES = {
    "done": 0,
    "stopped": 0,
    "failed": 1,
    "no capacity": 3,
    "not in time": 3,
    "budget reached": 4,
    "not permitted": 5,
}
"""Exit code for each outcome of a run."""


def finish_all(
    session: Session, jobs: Sequence[Launched], *, json_: bool, is_said: bool = False
) -> NoReturn:
    """Prints how each job ended, unless that `is_said` already, line by line; exits with the
    highest of their exit codes."""
    endings = [job.ending for job in jobs if job.ending is not None]
    if is_said:
        for job in jobs:
            if job.ending is None:
                answer = _line(None, None, job.spec.name, "Answer", _figures(job))
                sys.stdout.write(f"{json.dumps(answer)}\n")
    elif json_:
        session.answer_json([_figures(job) for job in jobs])
    else:
        for ending in endings:
            session.out.print(run_lines.summary(*ending))

    failed = [
        exit_code_of(partial(_raise, job.error), debug=False)
        for job in jobs
        if job.error is not None
    ]

    raise typer.Exit(max([0, *failed, *(EXIT_CODES[ended.outcome] for _, ended in endings)]))


def _figures(job: Launched) -> dict[str, Any]:
    """The answer for a job, with or without a run."""
    if job.ending is not None:
        return final_figures(*job.ending)
    if job.is_withdrawn:
        return without_run(job.spec.name, "withdrawn", WITHDRAWN)
    return without_run(job.spec.name, "error", str(job.error))


def _raise(error: Exception) -> NoReturn:
    raise error


def finish_withdrawn(session: Session, job: str, *, json_: bool) -> NoReturn:
    """Prints that a job was withdrawn before it began."""
    session.answer(json_, without_run(job, "withdrawn", WITHDRAWN), None, f"{job}: {WITHDRAWN}")
    raise typer.Exit


def finish(
    session: Session, ending: RunEnd | None, *, json_: bool, is_said: bool = False
) -> NoReturn:
    """Prints how a run ended, unless that `is_said` already, and exits with its code; None if the
    run goes on without this computer."""
    if ending is None:
        raise typer.Exit
    if not is_said:
        session.answer(json_, final_figures(*ending), run_lines.summary(*ending))
    raise typer.Exit(EXIT_CODES[ending[1].outcome])
