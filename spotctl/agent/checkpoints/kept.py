"""Places of a job's folder that outlive its machine: `checkpoint.keep`, files and folders that a
script writes where it likes.

A script writes them under their own names, at any time. So a copy has no file that is open for
writing, nor an archive without its end: of these, the copy before counts. Logs change all the time;
they are copied along with the next save.
"""

import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG

from agileml.runtime.ground import move
from spotctl.agent.container.processes import files_being_written
from spotctl.agent.data.transfer import FolderListing, listing

KEPT = ".kept"
"""The folder that holds the kept places among the files of a checkpoint. Files of the checkpoint's
own folder do not begin with a dot."""

_LOGS = (".log", ".csv", ".tsv", ".jsonl", ".out", ".err")
_EVENTS = "tfevents"
ARCHIVE, _DATABASE = b"PK\x03\x04", b"SQLite format 3\0"


def is_log(name: str) -> bool:
    """Whether a file's name is one that logs have: no training starts again from these."""
    return name.endswith(_LOGS) or _EVENTS in name


class KeptPlaces:
    """The kept places of a work folder, by names or patterns relative to it, which the processes of
    a machine write."""

    def __init__(self, places: Sequence[str], work: Path, machine: Path) -> None:
        self.places, self._work, self._machine = tuple(places), work, machine

    def paths(self, root: Path | None = None) -> list[Path]:
        """The places that exist, in the work folder or in another; none that leads elsewhere."""
        root, existing = root or self._work, dict[Path, None]()
        for place in self.places:
            for path in sorted(root.glob(place.rstrip("/"))):
                if path.resolve().is_relative_to(root.resolve()):
                    existing[path] = None
        return list(existing)

    def named(self) -> list[tuple[str, Path]]:
        """The places that exist, with their names in a checkpoint."""
        return [
            (f"{KEPT}/{path.relative_to(self._work).as_posix()}", path) for path in self.paths()
        ]

    def listing(self) -> FolderListing:
        """The files of the kept places, as those of a checkpoint."""
        entries: dict[str, tuple[str, int, int, int]] = {}
        for name, path in self.named():
            if path.is_dir():
                for inner, size, changed, number in listing(path):
                    entries[f"{name}/{inner}"] = (f"{name}/{inner}", size, changed, number)
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                continue
            if S_ISREG(status.st_mode):
                entries[name] = (name, status.st_size, status.st_mtime_ns, status.st_ino)

        return tuple(sorted(entries.values()))

    def unfinished(self, files: FolderListing) -> set[str]:
        """The names of those that are being written, or were cut short."""
        if not files:
            return set()

        written, unfinished = set(files_being_written(self._machine)), set[str]()
        for name, size, *_ in files:
            path = self.source(name)
            is_open = path.resolve() in written
            if (is_open and not size) or not _is_whole(path, is_open=is_open):
                unfinished.add(name)
        return unfinished

    def source(self, name: str) -> Path:
        """The file of the work folder that has this name in a checkpoint."""
        return self._work / name.removeprefix(f"{KEPT}/")

    def put_back(self, folder: Path) -> None:
        """Moves the kept places of a restored checkpoint to the work folder, in place of what is
        there. Without any, the work folder stays as the job brought it."""
        kept = folder / KEPT
        if not kept.is_dir():
            return

        for path in self.paths():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for path in self.paths(kept):
            target = self._work / path.relative_to(kept)
            target.parent.mkdir(parents=True, exist_ok=True)
            move(path, target)
        shutil.rmtree(kept)


def _is_whole(path: Path, *, is_open: bool) -> bool:
    """Whether a file is no archive of PyTorch or NumPy without its end, and not being written. A
    database is open all the time, and is written while it has a journal."""
    try:
        with path.open("rb") as file:
            head = file.read(len(_DATABASE))
            if head == _DATABASE:
                return not path.with_name(f"{path.name}-journal").exists()
            return not is_open and (not head.startswith(ARCHIVE) or zipfile.is_zipfile(file))
    except OSError:
        return False
