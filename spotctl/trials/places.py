"""The places of a job's folder that a script writes to, of which its next start may need some.

Only what is written once the script works counts: data sets that it loads before that are none.
Neither are logs, by their names or because they only grow at their end, nor caches.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from spotctl.agent.checkpoints.kept import ARCHIVE, is_log
from spotctl.agent.data.transfer import listing
from spotctl.trials.script_watch import NO_SAVES

_CACHES = ("__pycache__", "wandb", "mlruns", "cache", "tmp", "node_modules")
_SAMPLE = 256
"""Bytes at both ends of what a file was, which a log still has."""


class WrittenPlaces:
    """Files that a start of a script writes in a new copy of the job's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._given = folder, set(listing(folder, unfinished=True))
        self._own = {Path(name) for name, *_ in self._given}
        self._folders = {above for name in self._own for above in name.parents}
        self._begun: dict[str, tuple[int, bytes]] = {}
        self.logs = set[str]()
        """Files that are no part of what the next start needs."""

    def needed(self, since: float) -> tuple[str, ...]:
        """Places, as `checkpoint.keep` has them, with files that were written after a time."""
        places = dict[str, None]()
        for file in listing(self._folder):
            name, _, changed, _ = file
            if file in self._given:
                continue
            if self._is_log(file):
                self.logs.add(name)
            elif changed / 1e9 >= since:
                places[self._place(Path(name))] = None
        return tuple(places)

    def _place(self, name: Path) -> str:
        """The outermost folder that the script has made for a file, or else the file; others like
        it, of other steps, belong to it."""
        for above in [*reversed(name.parents)][1:]:
            if above not in self._folders:
                return f"{_series(above, self._folders)}/"
        return _series(name, self._own)

    def glob(self, name: Path) -> str:
        """A pattern for a file and others like it, below folders of other times and steps."""
        made = [part for part in [name, *name.parents][:-1] if part not in self._folders]
        places = [re.sub(r"\d+", "*", part.name) for part in reversed(made)]
        return (made[-1].parent / Path(*places)).as_posix()

    def _is_log(self, file: tuple[str, int, int, int]) -> bool:
        name, size, _, _ = file
        parts = Path(name).parts
        if name.endswith(NO_SAVES) or is_log(name) or not set(parts).isdisjoint(_CACHES):
            return True

        try:
            with (self._folder / name).open("rb") as content:
                if name not in self._begun:
                    self._begun[name] = (size, _ends(content, size))
                    return False
                was, ends = self._begun[name]
                # An archive that is being written grows at its end as well.
                is_archive = ends.startswith(ARCHIVE)
                return 0 < was < size and not is_archive and _ends(content, was) == ends
        except OSError:
            return False


def _ends(file: BinaryIO, size: int) -> bytes:
    """The first and last bytes of what was a file of this size."""
    part = min(_SAMPLE, size)
    head = file.read(part)
    file.seek(size - part)
    return head + file.read(part)


def _series(path: Path, given: Iterable[Path]) -> str:
    """A pattern for a path and those with other numbers, if none of the job's own is like it."""
    pattern = re.sub(r"\d+", "*", path.name)
    similar = path.with_name(pattern).as_posix()
    if pattern == path.name or any(own.match(similar) for own in given):
        return path.as_posix()
    return similar
