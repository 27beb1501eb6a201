"""Runs in experiment trackers: the points that each gets, from its events and views, and the
threads that send them.

A slow or broken tracker never holds up a run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Lock, Thread

from bidbrain.billing import usd
from pricing_data.units import SECOND
from spotctl.agent.files import replace_json
from spotctl.files.job.spec import JobSpec
from spotctl.files.job.values import MLFLOW, WANDB
from spotctl.home.config import Settings
from spotctl.home.errors import BadRequest
from spotctl.home.paths import Paths
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.outcomes import DONE, STOPPED
from spotctl.log.state import LogRow, RunState
from spotctl.log.store import EventLog
from spotctl.run.following import waits_said
from spotctl.show.runs.reading import RunViews
from spotctl.show.runs.run_view import RunView

LOSS = "loss"

PREFIX = "spotctl/"
"""Begins the name of every metric except the loss, so that none collides with what the user's
script logs."""

ViewAt = Callable[[RunState, int], RunView]
"""The view of a run in a state, at a moment of the run's clock."""


def check_installed(spec: JobSpec) -> None:
    """BadRequest: the job names a tracker whose library is missing here."""
    for name in spec.track:
        if find_spec(name) is None:
            raise BadRequest(
                f"{spec.name}: track: {name} is not installed: pip install {name}, or remove track"
            )


@dataclass(frozen=True, slots=True)
class Point:
    """A value at a moment of the run's clock. `step` is the clock of a loss, else seconds since the
    run began.
    """

    name: str
    value: float
    step: int
    at: int


def points_of(
    before: RunState, rows: Sequence[LogRow], view_at: ViewAt
) -> tuple[RunState, list[Point]]:
    """The state after the events, and their points: each loss, and cost and machines whenever the
    machines change.
    """
    state, points = before, list[Point]()
    for row in rows:
        earlier, state = state, fold([row], state)
        if isinstance(row.event, ev.Progressed):
            # Commands report no clocks.
            if state.work.attempt is None and row.event.loss is not None:
                points.append(Point(LOSS, row.event.loss, row.event.clock, row.at))
            continue
        machines_changed = len(state.alive) != len(earlier.alive)
        if state.ended is not None or machines_changed or state.evictions != earlier.evictions:
            points += run_points(view_at(state, row.at))

    return state, points


def run_points(view: RunView) -> list[Point]:
    """The cost of a run by then, and its machines."""
    amounts = {
        "spent_usd": view.money.spent,
        "committed_usd": view.money.committed,
        "on_demand_usd": view.money.on_demand,
    }

    values = {name: float(usd(amount)) for name, amount in amounts.items() if amount is not None}
    spot = sum(machine.pricing == "spot" for machine in view.machines)
    values["spot_machines"] = spot
    values["on_demand_machines"] = len(view.machines) - spot
    values["evictions"] = view.evictions

    seconds = (view.now - view.started) // SECOND
    return [Point(f"{PREFIX}{name}", value, seconds, view.now) for name, value in values.items()]


_EVERY_SECONDS = 5.0
_AGAIN_SECONDS = 60.0
"""A tracker that failed is tried again after this time: it may be a server that is restarted."""
_COST_SECONDS = 60.0
_CLOSE_SECONDS = 30.0
_LONGEST = 400
"""Characters of a library's message that are shown."""


class TrackedRuns:
    """The runs of a command whose jobs name trackers."""

    def __init__(self, settings: Settings, remark: Callable[[str], None]) -> None:
        self._settings, self._remark = settings, remark
        self._writers = dict[tuple[str, str], _Writer]()
        # Several runs of one launch are in threads of their own.
        self._lock = Lock()

    def note(self, state: RunState) -> None:
        """Learns that a run has a new state; returns at once."""
        assert state.began is not None
        # Most jobs name none, and this is asked in each turn.
        if not (named := state.began.spec.get("track")):
            return
        with self._lock:
            for name in [named] if isinstance(named, str) else named:
                if (state.run, name) not in self._writers:
                    copy = RunCopy(name, state, self._settings)
                    self._writers[state.run, name] = _Writer(copy, self._remark)
                if state.ended is not None:
                    self._writers[state.run, name].woken.set()

    def close(self) -> None:
        """Gives the trackers some time to take the last points."""
        for writer in self._writers.values():
            writer.closing.set()
            writer.woken.set()

        end = time.monotonic() + _CLOSE_SECONDS
        awaited = (
            f"track: waiting {_CLOSE_SECONDS:g} s at most for the last points to be taken; nothing "
            "costs meanwhile"
        )
        with waits_said(awaited, self._remark):
            for (run, name), writer in self._writers.items():
                writer.thread.join(max(end - time.monotonic(), 0.0))
                if writer.thread.is_alive():
                    self._remark(
                        f"track: {name} has not taken the last points of {run} in "
                        f"{_CLOSE_SECONDS:g} s"
                    )


class _Writer:
    """The thread that writes a run to one tracker."""

    def __init__(self, copy: RunCopy, remark: Callable[[str], None]) -> None:
        self.woken, self.closing = Event(), Event()
        self._copy, self._remark, self._said = copy, remark, ""
        self.thread = Thread(target=self._write, name=f"track-{copy.name}", daemon=True)
        self.thread.start()

    def _write(self) -> None:
        pause = 0.0
        while not self._copy.is_complete:
            self.woken.wait(pause)
            self.woken.clear()
            is_last = self.closing.is_set()
            try:
                self._copy.advance()
                pause = _EVERY_SECONDS
            # A tracker's library may raise anything, and the run goes on.
            except Exception as error:  # noqa: BLE001
                why = str(error) or type(error).__name__
                if why != self._said:
                    self._said = why
                    self._remark(
                        f"track: {self._copy.name}: {' '.join(why.split())[:_LONGEST]}; the run "
                        "continues"
                    )
                pause = _AGAIN_SECONDS
            if is_last:
                break

        with suppress(Exception):
            self._copy.leave()


class RunCopy:
    """A run in one tracker, which gets from the log what it does not have yet."""

    def __init__(self, name: str, state: RunState, settings: Settings) -> None:
        self.name = name
        self._began, self._settings = state, settings
        self._tracker: Tracker | None = None
        self._state, self._events, self._cost_due = RunState(), 0, 0.0

    @property
    def is_complete(self) -> bool:
        """Whether the tracker has the end of the run."""
        return self._state.ended is not None

    def advance(self) -> None:
        """Sends what is new, and from time to time what the run costs while nothing happens."""
        # The run's own thread has other views: these read the price store, too.
        views = RunViews(self._settings)
        if self._tracker is None:
            spec, _, _ = views.terms(self._began)
            check_installed(spec)
            about = {
                "kind": str(spec.kind),
                "strategy": spec.strategy,
                "clouds": ", ".join(spec.resources.clouds),
            }
            folder = Paths(self._settings.home).tracked(self._began.run)
            self._tracker = open_tracker(self.name, spec, self._began, about, folder)

        tracker = self._tracker
        with EventLog(Paths(self._settings.home).log) as log:
            rows = log.of_run(self._began.run, self._state.last_row)
        if not self._events:
            self._events = tracker.events
            sent, rows = rows[: self._events], rows[self._events :]
            self._state = fold(sent)

        state, points = points_of(self._state, rows, views.at)
        now, has_ended = time.monotonic(), state.ended is not None
        if not has_ended and now >= self._cost_due:
            points += run_points(views.of(state))
            self._cost_due = time.monotonic() + _COST_SECONDS

        events = self._events + len(rows)
        if points or has_ended:
            tracker.send(points, events)
        if state.ended is not None:
            tracker.end(state.ended.outcome, state.at)
        self._state, self._events = state, events

    def leave(self) -> None:
        """Stops adding points; the run may go on, and another process may add to it."""
        if self._tracker is not None and not self.is_complete:
            self._tracker.leave()


_RUN, _EVENTS, _OUTCOME = "spotctl.run", "spotctl.events", "spotctl.outcome"
_AT_ONCE = 500
"""MLflow takes at most 1,000 metrics in one request."""


class MlflowRun:
    """A run in the experiment that MLFLOW_EXPERIMENT_NAME names, else in one named for the job."""

    def __init__(self, spec: JobSpec, began: RunState, about: Mapping[str, str]) -> None:
        from mlflow import MlflowClient

        # An empty place leaves the choice to MLflow, which reads MLFLOW_TRACKING_URI.
        place = spec.track[MLFLOW] or None
        self._client = MlflowClient(tracking_uri=place)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or spec.name
        experiment = self._experiment(name)
        is_this_run = f"tags.`{_RUN}` = '{began.run}'"
        begun = self._client.search_runs([experiment], is_this_run, max_results=1)
        if begun:
            known = begun[0]
            self._id = known.info.run_id
            self.events = int(known.data.tags.get(_EVENTS, "0"))
            return

        tags = {**spec.tags, _RUN: began.run}
        new = self._client.create_run(experiment, began.started // 1000, tags, began.run)
        self._id, self.events = new.info.run_id, 0
        for parameter, value in about.items():
            self._client.log_param(self._id, parameter, value)

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        for _ in range(2):
            if (known := self._client.get_experiment_by_name(name)) is not None:
                return str(known.experiment_id)
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:
                # Another job of the same launch was faster, or the reason is found again.
                continue

        return str(self._client.create_experiment(name))

    def send(self, points: Sequence[Point], events: int) -> None:
        """Adds points; with them, the tracker has those of this number of events."""
        from mlflow.entities import Metric

        metrics = [
            Metric(point.name, point.value, point.at // 1000, point.step) for point in points
        ]
        for start in range(0, len(metrics), _AT_ONCE):
            self._client.log_batch(self._id, metrics=metrics[start : start + _AT_ONCE])
        self._client.set_tag(self._id, _EVENTS, str(events))
        self.events = events

    def end(self, outcome: str, at: int) -> None:
        """Says how the run has ended."""
        status = "FINISHED" if outcome == DONE else "KILLED" if outcome == STOPPED else "FAILED"
        self._client.set_tag(self._id, _OUTCOME, outcome)
        self._client.set_terminated(self._id, status, at // 1000)

    def leave(self) -> None:
        """Leaves the run in MLflow as it is: no connection stays open between points."""


_SECONDS, _CLOCK = f"{PREFIX}seconds", "clock"


class WandbRun:
    """A run in a project, `ENTITY/PROJECT` or `PROJECT`: else in that of WANDB_PROJECT, or one
    named for the job.

    Offline, nothing can be asked, so a file keeps how much was added.
    """

    def __init__(self, spec: JobSpec, run: str, about: Mapping[str, str], folder: Path) -> None:
        import wandb

        entity, _, project = spec.track[WANDB].rpartition("/")
        folder.mkdir(parents=True, exist_ok=True)
        self._kept = folder / "wandb.json"
        self.events = 0
        if self._kept.exists():
            kept = json.loads(self._kept.read_text())
            self.events = int(kept["events"])

        # Silent, it does not ask for a login either: the terminal belongs to the launch.
        settings = wandb.Settings(
            silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True
        )
        tags = [f"{name}={value}" for name, value in spec.tags.items()]
        self._run = wandb.init(
            entity=entity or None,
            project=project or os.environ.get("WANDB_PROJECT") or spec.name,
            id=run,
            name=run,
            resume="allow",
            # One process may attend to several runs.
            reinit="create_new",
            dir=os.environ.get("WANDB_DIR") or str(folder),
            config=dict(about),
            tags=tags,
            settings=settings,
        )

        self._run.define_metric(LOSS, step_metric=_CLOCK)
        self._run.define_metric(f"{PREFIX}*", step_metric=_SECONDS)

    def send(self, points: Sequence[Point], events: int) -> None:
        together: dict[tuple[str, int], dict[str, float]] = {}
        for point in points:
            step = _CLOCK if point.name == LOSS else _SECONDS
            together.setdefault((step, point.step), {step: point.step})[point.name] = point.value
        for values in together.values():
            self._run.log(values)
        replace_json(self._kept, {"events": events})
        self.events = events

    def end(self, outcome: str, at: int) -> None:  # noqa: ARG002 - it takes its own time
        self._run.summary["spotctl/outcome"] = outcome
        self._run.finish(exit_code=0 if outcome == DONE else 1)

    def leave(self) -> None:
        self._run.finish()


Tracker = MlflowRun | WandbRun
"""A run in a tracker. Its methods may wait for a server, and raise what the tracker's library
raises. `events` is the number of the run's events whose points it has, from this process or an
earlier one."""


def open_tracker(
    name: str, spec: JobSpec, began: RunState, about: Mapping[str, str], folder: Path
) -> Tracker:
    """The run in a tracker: a new one, or the one that an earlier process began. `about` are the
    job's settings, and `folder` is for files of the tracker."""
    if name == MLFLOW:
        return MlflowRun(spec, began, about)
    assert name == WANDB
    return WandbRun(spec, began.run, about, folder)
