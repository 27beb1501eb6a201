"""Checkpoints that a program writes into a folder of its machine, and how often it writes them.

They are used only if they are complete and unchanged. An eviction loses the work since the last
one, and every one takes time. With checkpoints of cost C and a mean time M to the next eviction,
the best interval is sqrt(2 C M) (Young 1974; Daly 2006 has the terms beyond it, which matter only
where C is near M).
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from math import inf, sqrt
from pathlib import Path
from typing import Any

from agileml.runtime.ground import move, sync
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.files import Watched, replace_json

_LOG = logging.getLogger(__name__)
_MANIFEST = "manifest.json"
_UNFINISHED = ".writing-"


@dataclass(frozen=True, slots=True)
class TrainingPosition:
    """How far a training is: `step` batches in total, `batch` of them in this epoch."""

    epoch: int = 0
    batch: int = 0
    step: int = 0


class Checkpoints:
    """The checkpoints of a job, or of one of its ranks, in a folder; the newest `keep` are kept.

    A checkpoint is written to a temporary folder, with a digest of each file, and renamed: a kill
    at any moment leaves the previous checkpoint. The digests also reveal later damage; then the
    previous checkpoint is used.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise BadCheckpoint(f"{folder}: keep {keep} checkpoints: keep at least one")
        self.folder, self._keep = folder, keep

    def write(self, position: TrainingPosition, save: Callable[[Path], None]) -> Path:
        """Has `save` fill a new folder, which becomes the newest checkpoint. BadCheckpoint: the
        write fails.
        """
        # The same step may have been saved before. With a new name, a complete checkpoint exists at
        # every moment.
        again = len(self._steps(position.step))
        target = self.folder / f"step-{position.step:012d}-{again:02d}"
        new = self.folder / f"{_UNFINISHED}{target.name}"
        try:
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir(parents=True)
            save(new)
            # Every file is flushed to the disk before its digest is taken.
            files = {}
            for path in sorted(new.rglob("*")):
                if path.is_file():
                    sync(path)
                    files[path.relative_to(new).as_posix()] = _digest(path)
                elif path.is_dir():
                    sync(path)
            if not files:
                raise BadCheckpoint(f"{new}: save wrote no file into its folder")
            body = {"place": asdict(position), "files": files}
            replace_json(new / _MANIFEST, {"body": body, "sha256": _digest_of(body)}, lasting=True)
            move(new, target)
            sync(self.folder)
        except OSError as error:
            raise BadCheckpoint(
                f"{target}: cannot be written: {error.strerror or error}"
            ) from error

        # Checkpoints beyond `keep`, and incomplete ones of writers that were killed.
        pattern = f"{_UNFINISHED}*"
        unfinished = [path for path in self.folder.glob(pattern) if path.name < new.name]
        for path in [*self._steps()[: -self._keep], *unfinished]:
            shutil.rmtree(path, ignore_errors=True)
        return target

    def newest(self) -> tuple[TrainingPosition, Path] | None:
        """The newest complete checkpoint, or None without any. BadCheckpoint: all are damaged."""
        steps = self._steps()
        newest = _first_whole(steps)
        if newest is None and steps:
            raise BadCheckpoint(
                f"{self.folder}: none of {len(steps)} checkpoints is complete; restore one or "
                "empty it"
            )
        return newest

    def at(self, step: int) -> tuple[TrainingPosition, Path]:
        """The checkpoint of a step. BadCheckpoint: no complete one exists."""
        checkpoint = _first_whole(self._steps(step))
        if checkpoint is None:
            raise BadCheckpoint(
                f"{self.folder}: no complete checkpoint of step {step}, where other ranks resume"
            )
        return checkpoint

    def _steps(self, step: int | None = None) -> list[Path]:
        """The folders of all checkpoints, or of one step's, oldest first."""
        return sorted(self.folder.glob("step-*" if step is None else f"step-{step:012d}-*"))


def _first_whole(newest_last: list[Path]) -> tuple[TrainingPosition, Path] | None:
    """The newest checkpoint whose files are unchanged; warns of newer ones that are not."""
    for path in reversed(newest_last):
        try:
            manifest = json.loads((path / _MANIFEST).read_text())
            body = manifest["body"]
            if _digest_of(body) != manifest["sha256"]:
                raise ValueError(f"{_MANIFEST} does not match its own digest")
            for name, digest in body["files"].items():
                if _digest(path / name) != digest:
                    raise ValueError(f"{name} has changed")
            return TrainingPosition(**body["place"]), path
        except (OSError, ValueError, KeyError, TypeError) as error:
            _LOG.warning("ignoring checkpoint %s: %s", path, error)
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


CHECKPOINT_VARIABLE = "SPOTCTL_CHECKPOINT_DIR"
"""The environment variable with the folder whose files are copied to the next machine."""

PLAN_VARIABLE = "SPOTCTL_CHECKPOINT_PLAN"
"""The environment variable with the path of the plan, a file with the seconds between checkpoints
(`every`) and those that one is assumed to take (`cost`). It is replaced when a checkpoint's cost is
measured."""


AFFORDABLE = 0.01
"""The share of the time that checkpoints may take which no eviction asks for."""


def best_interval(cost: float, life: float, longest: float) -> float:
    """Time between checkpoints, in the unit of the arguments, by Young's formula (1974): the root
    of twice the `cost` of one times the mean `life` of machines; at least `cost`.

    Programs fail for other reasons, too, so that it is at most `longest`, as long as checkpoints
    that often are affordable.

    >>> best_interval(2.0, 100.0, 3600.0), best_interval(2520.0, inf, 3600.0)
    (20.0, 252000.0)
    """
    longest = max(longest, cost / AFFORDABLE)
    if life == inf:
        return longest
    return max(cost, min(sqrt(2 * cost * life), longest))


class CheckpointPlanReader:
    """Reads the plan for the program; a read costs one look at a time stamp."""

    def __init__(self, path: Path) -> None:
        self._plan = Watched(path, lambda values: float(values["every"]))

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> "CheckpointPlanReader | None":
        """The reader of the file that the environment names; None if there is no name."""
        path = environment.get(PLAN_VARIABLE)
        return cls(Path(path)) if path else None

    def every(self) -> float | None:
        """Seconds between checkpoints, as of now; None without a plan."""
        return self._plan.value()
