"""Copies a program's checkpoints to storage that outlives its machine, and back to the next
machine.

The program writes into a folder on its machine, at any time and in any format. It writes a file
under a name that begins with a dot and renames it, so that every visible file is complete. The
folder is copied once it has not changed from one look to the next, or once a copy is overdue; a
copy counts if the folder did not change meanwhile.
"""

import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from spotctl.agent.checkpoints.local import best_interval, write_plan
from spotctl.agent.checkpoints.stored import CheckpointRecord, StoredCheckpoints
from spotctl.agent.container.payload import CheckpointPolicy, NodeTask
from spotctl.agent.data.transfer import FolderListing, listing

_NUMBERS_PER_START = 10**6
"""Numbers reserved for the copies of one start of the program."""

_MIN_SECONDS = 1.0
"""The shortest interval between checkpoints: even a cheap copy takes some looks."""


class CheckpointSync:
    """Copies the checkpoints of one node. `write_seconds` returns the time of a write as the
    program reports it, if it can.
    """

    def __init__(
        self,
        policy: CheckpointPolicy,
        task: NodeTask,
        folder: Path,
        plan: Path,
        write_seconds: Callable[[], float | None] | None = None,
    ) -> None:
        self._policy, self._folder, self._plan = policy, folder, plan
        self._write_seconds = write_seconds
        self._name, self._foreign = task.name, policy.of_first and task.rank > 0
        self._own, self._first = (StoredCheckpoints(policy.path, rank) for rank in (task.rank, 0))
        self._number = _NUMBERS_PER_START
        self._copied: FolderListing = ()
        self._seen: FolderListing = ()
        self._copied_at = time.monotonic()
        self._every = inf

    def restore(self) -> CheckpointRecord | None:
        """Copies back the node's newest checkpoint; a node without one gets the first node's."""
        self._folder.mkdir(parents=True, exist_ok=True)
        own = None if self._foreign else self._own.restore(self._folder)
        restored = own or self._first.restore(self._folder)

        # Numbers of a later start are above all of an earlier one, however late the earlier one's
        # last copy arrives.
        self._number = (
            1 if own is None else own.number // _NUMBERS_PER_START + 1
        ) * _NUMBERS_PER_START
        self._copied = self._seen = listing(self._folder)
        self._set_interval(self._policy.cost if restored is None else restored.seconds)

        return restored

    def look(self) -> bool:
        """Copies a checkpoint that is unchanged since the last look, or overdue. Returns whether a
        copy was stored.
        """
        now = listing(self._folder)
        due, self._seen = (
            now == self._seen or time.monotonic() - self._copied_at > 2 * self._every,
            now,
        )
        return bool(now) and now != self._copied and due and self._store(now)

    @property
    def copied(self) -> FolderListing:
        """The files of the newest copy."""
        return self._copied

    def last(self) -> bool:
        """Copies the final checkpoint, once the program has ended."""
        now = listing(self._folder)
        return bool(now) and now != self._copied and self._store(now)

    def _store(self, files: FolderListing) -> bool:
        """Stores a checkpoint, unless the program changes it meanwhile; returns whether it is
        stored.
        """
        if self._foreign:
            return False

        began, number = time.monotonic(), self._number + 1
        names = [name for name, *_ in files]
        try:
            self._own.put_files(self._name, number, self._folder, names)
        except FileNotFoundError:
            return False

        if listing(self._folder) != files:
            return False

        reported = None if self._write_seconds is None else self._write_seconds()
        seconds = reported or time.monotonic() - began
        size = sum(size for _, size, *_ in files)
        record = CheckpointRecord(self._name, number, seconds, size, self._set_interval(seconds))
        self._own.put_record(record, names, self._folder)
        self._number = number
        self._copied, self._copied_at = files, time.monotonic()

        return True

    def _set_interval(self, cost: float) -> float:
        """Derives the interval from the cost of a checkpoint, and writes it for the program."""
        policy = self._policy
        mean_life = inf if policy.life is None else policy.life
        self._every = policy.every or max(
            best_interval(cost, mean_life, policy.longest), _MIN_SECONDS
        )
        write_plan(self._plan, self._every, cost)
        return self._every
