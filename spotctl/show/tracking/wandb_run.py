"""A run in Weights & Biases, which knows it by spotctl's own name of the run."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import wandb

from spotctl.agent.files import replace_json
from spotctl.log.outcomes import DONE
from spotctl.show.tracking.tracker import LOSS, PREFIX, Point, TrackedRun

_SECONDS, _CLOCK = f"{PREFIX}seconds", "clock"


class WandbRun:
    """A run in a project, `ENTITY/PROJECT` or `PROJECT`: else in that of WANDB_PROJECT, or one named for the job.

    Offline, nothing can be asked, so a file keeps how much was added.
    """

    def __init__(self, place: str, run: TrackedRun) -> None:
        entity, _, project = place.rpartition("/")
        run.folder.mkdir(parents=True, exist_ok=True)
        self._kept = run.folder / "wandb.json"
        self.events = int(json.loads(self._kept.read_text())["events"]) if self._kept.exists() else 0
        # Silent, it does not ask for a login either: the terminal belongs to the launch.
        settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True)
        self._run = wandb.init(
            entity=entity or None,
            project=project or os.environ.get("WANDB_PROJECT") or run.job,
            id=run.run,
            name=run.run,
            resume="allow",
            # One process may attend to several runs.
            reinit="create_new",
            dir=os.environ.get("WANDB_DIR") or str(run.folder),
            config=dict(run.about),
            tags=[f"{name}={value}" for name, value in run.tags.items()],
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
