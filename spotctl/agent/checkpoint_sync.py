"""Copies a program's checkpoints to storage that outlives its machine, and back to the next machine.

The program writes into a folder on its machine, at any time and in any format. It writes a file under a name that
begins with a dot and renames it, so that every visible file is complete. The folder is copied once it has not changed
from one look to the next, or when a copy is overdue, and the copy counts if the folder did not change meanwhile.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

from spotctl.agent.checkpoints import Checkpoints, TrainingPosition
from spotctl.agent.data_transfer import Signature, copy, signature
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.files import replace_json
from spotctl.agent.interval import CheckpointPlan, best_interval
from spotctl.agent.task import OTHER_NODE, CheckpointPolicy, NodeTask

_FILES, _RECORD, _FINISHED = "files", "account.json", "finished.json"
_COPIES = 10**6
"""Numbers reserved for the copies of one start of the program."""

_LEAST_SECONDS = 1.0
"""The shortest interval between checkpoints: a copy takes some looks, however cheap it seems."""


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint: the node task that wrote it, its number, its cost in seconds, its bytes, and the interval since."""

    by: str
    number: int
    seconds: float
    size: int
    every: float


class _Changed(Exception):
    """The program changed its checkpoint while it was copied."""


class CheckpointSync:
    """Copies the checkpoints of one node. `write_seconds` returns how long the program says that writing one takes."""

    def __init__(
        self,
        policy: CheckpointPolicy,
        task: NodeTask,
        folder: Path,
        plan: Path,
        write_seconds: Callable[[], float | None],
    ) -> None:
        self._policy, self._folder, self._plan, self._write_seconds = policy, folder, plan, write_seconds
        self._name = task.name
        self._own = node_checkpoints(Path(policy.path), task.rank)
        self._first = node_checkpoints(Path(policy.path), 0)
        self._start = 1
        self._copies = 0
        self._copied: Signature = ()
        self._seen: Signature = ()
        self._copied_at = time.monotonic()
        self._every = inf

    def restore(self) -> TrainingPosition | None:
        """Copies back the node's newest checkpoint; a node without one gets the first node's."""
        self._folder.mkdir(parents=True, exist_ok=True)
        own = self._own.newest()
        newest = own or self._first.newest()
        self._start = 1 if own is None else own[0].epoch + 1
        cost = self._policy.cost
        if newest is not None:
            files = newest[1] / _FILES
            copy(signature(files), files, self._folder)
            cost = record_of_checkpoint(newest[1]).seconds
        self._copied = self._seen = signature(self._folder)
        self._set_interval(cost)
        return None if newest is None else newest[0]

    def look(self) -> bool:
        """Copies a checkpoint that has not changed since the last look, or is overdue; returns whether it did."""
        now = signature(self._folder)
        due, self._seen = now == self._seen or time.monotonic() - self._copied_at > 2 * self._every, now
        return bool(now) and now != self._copied and due and self._store(now)

    def last(self) -> bool:
        """Copies the final checkpoint, once the program has ended."""
        now = signature(self._folder)
        return bool(now) and now != self._copied and self._store(now)

    def _store(self, files: Signature) -> bool:
        began = time.monotonic()

        def save(folder: Path) -> None:
            try:
                copy(files, self._folder, folder / _FILES)
            except FileNotFoundError:
                raise _Changed from None
            if signature(self._folder) != files:
                raise _Changed
            seconds = self._write_seconds() or time.monotonic() - began
            every = self._set_interval(seconds)
            record = CheckpointRecord(self._name, position.step, seconds, sum(size for _, size, *_ in files), every)
            (folder / _RECORD).write_text(json.dumps(asdict(record)))

        # Numbers of a later start are above all of an earlier one, however late the earlier one's last copy arrives.
        position = TrainingPosition(self._start, self._copies + 1, self._start * _COPIES + self._copies + 1)
        try:
            self._own.write(position, save)
        except _Changed:
            return False
        self._copies += 1
        self._copied, self._copied_at = files, time.monotonic()
        return True

    def _set_interval(self, cost: float) -> float:
        """Updates the interval, and tells the program, now that the cost of a checkpoint is known."""
        policy = self._policy
        mean_life = inf if policy.life is None else policy.life
        self._every = policy.every or max(best_interval(cost, mean_life, policy.longest), _LEAST_SECONDS)
        CheckpointPlan(self._every, cost).write(self._plan)
        return self._every


def node_checkpoints(path: Path, rank: int) -> Checkpoints:
    """The stored checkpoints of a node."""
    return Checkpoints(path / OTHER_NODE.format(rank=rank))


def latest(path: Path, rank: int) -> CheckpointRecord | None:
    """The record of a node's newest checkpoint, if there is one; its files are not verified."""
    newest = node_checkpoints(path, rank).latest()
    return None if newest is None else record_of_checkpoint(newest)


def discard_checkpoints(path: Path, *, fresh: bool) -> None:
    """Removes the checkpoints of a finished job, or of any job for a `fresh` start; a run resumes from what remains."""
    if fresh or (path / _FINISHED).exists():
        for node in path.glob(OTHER_NODE.format(rank="*")):
            shutil.rmtree(node)
        (path / _FINISHED).unlink(missing_ok=True)


def note_finished(path: Path, run: str) -> None:
    """Marks a job as finished, so that the next run does not resume from its checkpoints."""
    if any(path.glob(OTHER_NODE.format(rank="*"))):
        replace_json(path / _FINISHED, {"run": run})


def record_of_checkpoint(checkpoint: Path) -> CheckpointRecord:
    """The record that was stored with a checkpoint."""
    try:
        return CheckpointRecord(**json.loads((checkpoint / _RECORD).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise BadCheckpoint(f"{checkpoint}: not a checkpoint of a command job ({error}); name another folder") from None
