"""Copies the checkpoints of one node, and the kept places of its job's folder, to where they are
stored, while its program runs.

What is copied at one time belongs together. It is copied once nothing has changed from one look to
the next and nothing is being written, or once a copy is overdue. Of kept places, each file is
stored only when it has changed, by way of a second name, which the program cannot remove.
"""

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

from spotctl.agent.checkpoints.kept import KEPT, KeptPlaces, is_log
from spotctl.agent.checkpoints.local import best_interval
from spotctl.agent.checkpoints.stored import CheckpointRecord, StoredCheckpoints, links_of
from spotctl.agent.container.payload import CheckpointPolicy, NodeTask
from spotctl.agent.data.transfer import FolderListing, listing
from spotctl.agent.files import replace_json

_NUMBERS_PER_START = 10**6
"""Numbers reserved for the copies of one start of the program."""

_STEP, _DIGITS = re.compile(r".*\d[^/]*/"), re.compile(r"\d+")
"""The innermost folder with a number in its name."""
_SETTLED_NS = 30 * 10**9
"""A folder that has not changed for so long is as complete as it will be."""

_MIN_SECONDS = 1.0
"""The shortest interval between checkpoints: even a cheap copy takes some looks."""


class CheckpointSync:
    """Copies the checkpoints of one node, and what it keeps besides. `write_seconds` returns the
    time of a write as the program reports it, if it can.
    """

    def __init__(
        self,
        policy: CheckpointPolicy,
        task: NodeTask,
        folder: Path,
        plan: Path,
        write_seconds: Callable[[], float | None] | None = None,
        kept: KeptPlaces | None = None,
    ) -> None:
        self._policy, self._folder, self._plan = policy, folder, plan
        self._write_seconds = write_seconds
        self._kept = kept or KeptPlaces((), folder, folder)
        self._name, self._foreign = task.name, policy.of_first and task.rank > 0
        self._own, self._first = (StoredCheckpoints(policy.path, rank) for rank in (task.rank, 0))
        self._number = _NUMBERS_PER_START
        self.copied: FolderListing = ()
        """The files of the newest copy."""
        self._blobs: dict[tuple[str, int, int, int], str] = {}
        """Where the files of the node's newest copy are stored, if it keeps places."""
        self._seen: FolderListing = ()
        self._copied_at = time.monotonic()
        self._every = inf
        self._is_rewritten = False
        """Whether the program was seen to write over a file while that was copied."""

    def restore(self) -> CheckpointRecord | None:
        """Copies back the node's newest checkpoint; a node without one gets the first node's."""
        self._folder.mkdir(parents=True, exist_ok=True)
        own = None if self._foreign else self._own.restore(self._folder)
        restored = own or self._first.restore(self._folder)
        self._kept.put_back(self._folder)

        # Numbers of a later start are above all of an earlier one, however late the earlier one's
        # last copy arrives.
        self._number = (
            1 if own is None else own.number // _NUMBERS_PER_START + 1
        ) * _NUMBERS_PER_START
        self.copied = self._seen = self._listing()
        stored = self._own.restored if self._kept.places and own else {}
        self._blobs = {file: stored[file[0]] for file in self.copied if file[0] in stored}
        self._set_interval(self._policy.cost if restored is None else restored.seconds)

        return restored

    def look(self) -> bool:
        """Copies a checkpoint that is unchanged since the last look, or overdue. Returns whether a
        copy was stored.
        """
        now = self._listing()
        was, self._seen = self._seen, now
        if not now or _counted(now) == _counted(self.copied):
            return False

        unfinished = self._unfinished(now)
        is_overdue = time.monotonic() - self._copied_at > 2 * self._every
        is_quiet = not unfinished and _counted(now) == _counted(was)
        return (is_quiet or is_overdue) and self._store(now, unfinished)

    def last(self) -> bool:
        """Copies the final checkpoint, once the program has ended."""
        now = self._listing()
        return bool(now) and now != self.copied and self._store(now, self._unfinished(now))

    def _listing(self) -> FolderListing:
        return tuple(sorted((*listing(self._folder), *self._kept.listing())))

    def _unfinished(self, files: FolderListing) -> set[str]:
        """Kept files that changed since the last copy and may not be copied now."""
        copied, kept = set(self.copied), [file for file in files if file[0].startswith(KEPT)]
        changed = tuple(file for file in kept if file not in copied)
        return self._kept.unfinished(changed) | _incomplete(kept, time.time_ns())

    def _store(self, now: FolderListing, unfinished: set[str]) -> bool:
        """Stores a checkpoint, unless the program changes it meanwhile; returns whether it is
        stored.
        """
        if self._foreign:
            return False

        began, number = time.monotonic(), self._number + 1
        files = [file for file in now if file[0] not in unfinished]
        # Of what is being written, the version before stays.
        before = {file: blob for file, blob in self._blobs.items() if file[0] in unfinished}
        has_lost = {name for name, *_ in self.copied} & unfinished - {name for name, *_ in before}
        if has_lost or not _counted(files) or {*files, *before} == set(self.copied):
            return False

        try:
            with self._staged(files) as folder:
                names = [name for name, *_ in files]
                known = {file[0]: self._blobs[file] for file in files if file in self._blobs}
                blobs = self._own.put_files(self._name, number, folder, names, known)
                is_same = self._is_same(folder, files)
        except FileNotFoundError:
            return False

        if not is_same:
            return False

        stored = dict(zip(files, blobs, strict=True)) | before
        files = sorted(stored)
        reported = None if self._write_seconds is None else self._write_seconds()
        seconds = reported or time.monotonic() - began
        size = sum(size for _, size, *_ in files)
        record = CheckpointRecord(self._name, number, seconds, size, self._set_interval(seconds))
        links = links_of(self._folder)
        for place, path in self._kept.named():
            links |= {f"{place}/{link}": target for link, target in links_of(path).items()}
        times = [changed for _, _, changed, _ in files]
        values: dict[str, Any] = {"times": times, "links": links}
        if self._kept.places:
            values["blobs"] = [stored[file] for file in files]
            self._blobs = stored
        self._own.put_record(record, [name for name, *_ in files], values)
        self._number = number
        self.copied, self._copied_at = tuple(files), time.monotonic()

        return True

    @contextmanager
    def _staged(self, files: FolderListing | list[tuple[str, int, int, int]]) -> Iterator[Path]:
        """A folder with the files to store. Kept ones have a second name there: the program may
        remove or replace its own meanwhile, as with folders of single steps."""
        if not self._kept.places:
            yield self._folder
            return

        staged = self._folder.with_name(f"{self._folder.name}.staged")
        shutil.rmtree(staged, ignore_errors=True)
        try:
            for file in (file for file in files if file not in self._blobs):
                source, target = self.source(file[0]), staged / file[0]
                target.parent.mkdir(parents=True, exist_ok=True)
                if not self._is_rewritten:
                    with suppress(PermissionError, OSError):
                        os.link(source, target)
                if not target.exists():
                    shutil.copy2(source, target)
            yield staged
        finally:
            shutil.rmtree(staged, ignore_errors=True)

    def _is_same(self, folder: Path, files: list[tuple[str, int, int, int]]) -> bool:
        """Whether the files that were stored are those that were seen before."""
        if not self._kept.places:
            return list(listing(folder)) == files

        for file in (file for file in files if file not in self._blobs and not _is_loose(file[0])):
            status = (folder / file[0]).stat()
            if (status.st_size, status.st_mtime_ns) != file[1:3]:
                # From now on, a copy is made first, which takes less time than to store it.
                self._is_rewritten = True
                return False
        return True

    def source(self, name: str) -> Path:
        """The program's file that has this name in a checkpoint."""
        return self._kept.source(name) if name.startswith(KEPT) else self._folder / name

    def _set_interval(self, cost: float) -> float:
        """Derives the interval from the cost of a checkpoint, and writes it for the program."""
        policy = self._policy
        mean_life = inf if policy.life is None else policy.life
        self._every = policy.every or max(
            best_interval(cost, mean_life, policy.longest), _MIN_SECONDS
        )
        replace_json(self._plan, {"every": self._every, "cost": cost})
        return self._every


def _incomplete(files: list[tuple[str, int, int, int]], now: int) -> set[str]:
    """The files of a folder of one step, such as `checkpoint-30`, that changed a moment ago and lacks
    a file that the folder of the step before has. A start that finds only a part of the newest step
    often fails."""
    steps: dict[str, dict[str, list[tuple[str, int, int, int]]]] = {}
    for file in files:
        if (step := _STEP.match(file[0])) is not None and not _is_loose(file[0]):
            series = steps.setdefault(_DIGITS.sub("#", step[0]), {})
            series.setdefault(step[0], []).append(file)

    incomplete = set[str]()
    for series in steps.values():
        by_age = sorted(series.items(), key=lambda each: max(file[2] for file in each[1]))
        if len(by_age) > 1 and now - max(file[2] for file in by_age[-1][1]) < _SETTLED_NS:
            before, newest = (
                {_DIGITS.sub("#", file[0].removeprefix(step)) for file in of_step}
                for step, of_step in by_age[-2:]
            )
            incomplete |= {file[0] for file in by_age[-1][1] if before - newest}
    return incomplete


def _is_loose(name: str) -> bool:
    """Whether a file is a log in a kept place, which may change at any time."""
    return name.startswith(KEPT) and is_log(name)


def _counted(
    files: FolderListing | list[tuple[str, int, int, int]],
) -> list[tuple[str, int, int, int]]:
    """The files whose changes make a new checkpoint."""
    return [file for file in files if not _is_loose(file[0])]
