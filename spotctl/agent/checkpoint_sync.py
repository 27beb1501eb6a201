"""A program's checkpoint, carried from its machine to a place that outlives it, and back on the next machine.

The program writes into a folder of its machine, whenever it likes and in whatever form; a file is written under a name
that begins with a dot and then renamed, so that what is there is whole. The folder is copied once it has stood still
from one look to the next, or when a copy is overdue because it never does, and counts if it did not change meanwhile.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path

from spotctl.agent.checkpoints import Checkpoints, Place
from spotctl.agent.data_transfer import Signature, copy, signature
from spotctl.agent.errors import BadCheckpoint
from spotctl.agent.files import replace_json
from spotctl.agent.interval import Plan, best_interval
from spotctl.agent.task import OTHER_NODE, Keeping, Task

_FILES, _ACCOUNT, _FINISHED = "files", "account.json", "finished.json"
_COPIES = 10**6
"""Copies in a life of the program, for numbering."""

_LEAST_SECONDS = 1.0
"""No checkpoint is asked for more often, however cheap it seems to be: copies take some looks."""


@dataclass(frozen=True, slots=True)
class Account:
    """A checkpoint: who wrote it, its number among all of the job, what it cost, and how often one is wanted since."""

    by: str
    number: int
    seconds: float
    size: int
    every: float


class _Changed(Exception):
    """The program wrote while its checkpoint was copied."""


class CheckpointSync:
    """Carries the checkpoint of one node. `told_seconds` is what the program says that writing one took it."""

    def __init__(
        self, keeping: Keeping, task: Task, folder: Path, plan: Path, told_seconds: Callable[[], float | None]
    ) -> None:
        self._keeping, self._folder, self._plan, self._told_seconds = keeping, folder, plan, told_seconds
        self._name = task.name
        self._own = vault(Path(keeping.path), task.rank)
        self._first = vault(Path(keeping.path), 0)
        self._life = 1
        self._copies = 0
        self._kept: Signature = ()
        self._seen: Signature = ()
        self._kept_at = time.monotonic()
        self._every = inf

    def restore(self) -> Place | None:
        """Brings back the node's newest checkpoint; a node that never wrote one gets that of the first."""
        self._folder.mkdir(parents=True, exist_ok=True)
        own = self._own.newest()
        found = own or self._first.newest()
        self._life = 1 if own is None else own[0].epoch + 1
        cost = self._keeping.cost
        if found is not None:
            files = found[1] / _FILES
            copy(signature(files), files, self._folder)
            cost = account_of(found[1]).seconds
        self._kept = self._seen = signature(self._folder)
        self._want(cost)
        return None if found is None else found[0]

    def look(self) -> bool:
        """Carries a checkpoint that stands still since the last look, or is overdue; whether it did."""
        now = signature(self._folder)
        due, self._seen = now == self._seen or time.monotonic() - self._kept_at > 2 * self._every, now
        return bool(now) and now != self._kept and due and self._keep(now)

    def last(self) -> bool:
        """Carries what is there: the program has ended."""
        now = signature(self._folder)
        return bool(now) and now != self._kept and self._keep(now)

    def _keep(self, files: Signature) -> bool:
        began = time.monotonic()

        def save(folder: Path) -> None:
            try:
                copy(files, self._folder, folder / _FILES)
            except FileNotFoundError:
                raise _Changed from None
            if signature(self._folder) != files:
                raise _Changed
            seconds = self._told_seconds() or time.monotonic() - began
            every = self._want(seconds)
            told = Account(self._name, place.step, seconds, sum(size for _, size, *_ in files), every)
            (folder / _ACCOUNT).write_text(json.dumps(asdict(told)))

        # Numbers of a later life are above all of an earlier one, however late that one's last copy arrives.
        place = Place(self._life, self._copies + 1, self._life * _COPIES + self._copies + 1)
        try:
            self._own.write(place, save)
        except _Changed:
            return False
        self._copies += 1
        self._kept, self._kept_at = files, time.monotonic()
        return True

    def _want(self, cost: float) -> float:
        """Tells the program how often, now that this is what a checkpoint costs."""
        keeping = self._keeping
        life = inf if keeping.life is None else keeping.life
        self._every = keeping.every or max(best_interval(cost, life, keeping.longest), _LEAST_SECONDS)
        Plan(self._every, cost).tell(self._plan)
        return self._every


def vault(path: Path, rank: int) -> Checkpoints:
    """Where the checkpoints of a node are kept."""
    return Checkpoints(path / OTHER_NODE.format(rank=rank))


def latest(path: Path, rank: int) -> Account | None:
    """What was seen of the newest checkpoint of a node, if there is one; whether it is whole is not looked at."""
    found = vault(path, rank).latest()
    return None if found is None else account_of(found)


def begin_anew(path: Path, *, fresh: bool) -> None:
    """Removes the checkpoints of a job that is done, or of any if asked to; what is left, a run goes on from."""
    if fresh or (path / _FINISHED).exists():
        for node in path.glob(OTHER_NODE.format(rank="*")):
            shutil.rmtree(node)
        (path / _FINISHED).unlink(missing_ok=True)


def note_finished(path: Path, run: str) -> None:
    """The job is done: its checkpoints are what it ended with, and nothing that another run goes on from."""
    if any(path.glob(OTHER_NODE.format(rank="*"))):
        replace_json(path / _FINISHED, {"run": run})


def account_of(checkpoint: Path) -> Account:
    """What was seen of a checkpoint."""
    try:
        return Account(**json.loads((checkpoint / _ACCOUNT).read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise BadCheckpoint(f"{checkpoint}: is no checkpoint of a command job ({error}); name another folder") from None
