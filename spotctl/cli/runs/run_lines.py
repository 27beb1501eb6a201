"""Lines on stdout while runs go on: what the job's script prints, or an object of JSON for each
event.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO

from pricing_data.units import format_time
from spotctl.cli.options import ShownOutput
from spotctl.files.job.reader import restored
from spotctl.home.callbacks import unheard
from spotctl.home.paths import Paths
from spotctl.home.printable import printable
from spotctl.log.event_json import to_json
from spotctl.log.ledger.same_work import final_figures
from spotctl.log.store import EventLog
from spotctl.run.machine_output import RunOutput
from spotctl.show.columns import as_json
from spotctl.show.runs.run_answers import EVENT_LINE

if TYPE_CHECKING:
    from spotctl.home.config import Settings
    from spotctl.log.state import RunState


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
        self._settings, self._stream, self._lock = settings, stream, Lock()
        self._shown, self._answered = dict[str, int](), set[str]()

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


def answer_line(job: str, figures: dict[str, Any]) -> str:
    """The only line of a job that has no run."""
    return f"{json.dumps(_line(None, None, job, 'Answer', figures))}\n"


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
        self._settings, self._stream, self._several, self._lock = settings, stream, several, Lock()
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
