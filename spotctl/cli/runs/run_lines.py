"""The output of runs on stdout: lines while they go on, and their ends, with the exit code.

The lines are those that the job's script prints, or an object of JSON for each event, with the
answer of `launch --json` as the last one. Each run has one answer, in whichever form.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import typer

from pricing_data.units import format_time
from spotctl.cli.boundary import exit_code_of
from spotctl.cli.options import ShownOutput
from spotctl.files.job.reader import restored
from spotctl.home.callbacks import unheard
from spotctl.home.paths import Paths
from spotctl.home.printable import printable
from spotctl.log.event_json import to_json
from spotctl.log.ledger.same_work import final_figures, without_run
from spotctl.log.outcomes import WITHDRAWN
from spotctl.log.store import EventLog
from spotctl.run.machine_output import RunOutput
from spotctl.show.columns import as_json
from spotctl.show.runs import lines as run_lines
from spotctl.show.runs.run_answers import EVENT_LINE

if TYPE_CHECKING:
    from spotctl.cli.session import Session
    from spotctl.home.config import Settings
    from spotctl.log.state import RunState
    from spotctl.run.following import RunEnd
    from spotctl.run.start.concurrent_runs import Launched


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
