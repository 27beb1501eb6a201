"""Follows runs into trackers, each from a thread of its own: a slow or broken tracker never holds up a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Lock, Thread

from spotctl.files.job.values import MLFLOW, WANDB
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.show.runs.reading import RunViews
from spotctl.show.tracking.tracker import TrackedRun, Tracker, check_installed, points_of, run_points

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
        for (run, name), writer in self._writers.items():
            writer.thread.join(max(end - time.monotonic(), 0.0))
            if writer.thread.is_alive():
                self._remark(f"track: {name} has not taken the last points of {run} in {_CLOSE_SECONDS:g} s")


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
            except Exception as error:  # noqa: BLE001 - a tracker's library may raise anything, and the run goes on
                why = str(error) or type(error).__name__
                if why != self._said:
                    self._said = why
                    self._remark(f"track: {self._copy.name}: {' '.join(why.split())[:_LONGEST]}; the run continues")
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
        tracker = self._tracker = self._tracker or self._opened(views)
        with EventLog(Paths(self._settings.home).log) as log:
            rows = log.of_run(self._began.run, self._state.last_row)
        if not self._events:
            self._events = tracker.events
            self._state, rows = fold(rows[: self._events]), rows[self._events :]
        state, points = points_of(self._state, rows, views.at)
        if state.ended is None and time.monotonic() >= self._cost_due:
            points += run_points(views.of(state))
            self._cost_due = time.monotonic() + _COST_SECONDS
        if points or state.ended is not None:
            tracker.send(points, self._events + len(rows))
        if state.ended is not None:
            tracker.end(state.ended.outcome, state.at)
        self._state, self._events = state, self._events + len(rows)

    def _opened(self, views: RunViews) -> Tracker:
        spec, _, _ = views.terms(self._began)
        check_installed(spec)
        about = {"kind": str(spec.kind), "strategy": spec.strategy, "clouds": ", ".join(spec.resources.clouds)}
        folder = Paths(self._settings.home).tracked(self._began.run)
        run = TrackedRun(spec.name, self._began.run, self._began.started, about, spec.tags, folder)
        return open_tracker(self.name, spec.track[self.name], run)

    def leave(self) -> None:
        """Adds nothing more; the run may go on, and another process may add to it."""
        if self._tracker is not None and not self.is_complete:
            self._tracker.leave()


def open_tracker(name: str, place: str, run: TrackedRun) -> Tracker:
    """The run in a tracker: a new one, or the one that an earlier process began."""
    if name == MLFLOW:
        from spotctl.show.tracking.mlflow_run import MlflowRun

        return MlflowRun(place, run)
    assert name == WANDB
    from spotctl.show.tracking.wandb_run import WandbRun

    return WandbRun(place, run)
