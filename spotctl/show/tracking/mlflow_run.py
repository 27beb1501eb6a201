"""A run in MLflow. Everything that a later process needs stands in tags there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException

from spotctl.log.outcomes import DONE, STOPPED
from spotctl.show.tracking.tracker import Point, TrackedRun

_RUN, _EVENTS, _OUTCOME = "spotctl.run", "spotctl.events", "spotctl.outcome"
_AT_ONCE = 500
"""MLflow takes at most 1,000 metrics in one request."""


class MlflowRun:
    """A run in the experiment that MLFLOW_EXPERIMENT_NAME names, else in one named for the job."""

    def __init__(self, place: str, run: TrackedRun) -> None:
        # An empty place leaves the choice to MLflow, which reads MLFLOW_TRACKING_URI.
        self._client = MlflowClient(tracking_uri=place or None)
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.job)
        begun = self._client.search_runs([experiment], f"tags.`{_RUN}` = '{run.run}'", max_results=1)
        if begun:
            self._id, self.events = begun[0].info.run_id, int(begun[0].data.tags.get(_EVENTS, "0"))
            return
        tags = {**run.tags, _RUN: run.run}
        new = self._client.create_run(experiment, run.started // 1000, tags, run.run)
        self._id, self.events = new.info.run_id, 0
        for name, value in run.about.items():
            self._client.log_param(self._id, name, value)

    def _experiment(self, name: str) -> str:
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
        metrics = [Metric(point.name, point.value, point.at // 1000, point.step) for point in points]
        for start in range(0, len(metrics), _AT_ONCE):
            self._client.log_batch(self._id, metrics=metrics[start : start + _AT_ONCE])
        self._client.set_tag(self._id, _EVENTS, str(events))
        self.events = events

    def end(self, outcome: str, at: int) -> None:
        status = "FINISHED" if outcome == DONE else "KILLED" if outcome == STOPPED else "FAILED"
        self._client.set_tag(self._id, _OUTCOME, outcome)
        self._client.set_terminated(self._id, status, at // 1000)

    def leave(self) -> None:
        """Nothing is open in between."""
