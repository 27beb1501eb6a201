"""The checkpoints of a command job in a blob store that outlives its machines.

A checkpoint is its files, one blob each, and a record that is written last: files without a record
do not count.

The program writes into a folder on its machine, at any time and in any format. It writes a file
under a name that begins with a dot and renames it, so that every visible file is complete. The
folder is copied once it has not changed from one look to the next, or once a copy is overdue; a
copy counts if the folder did not change meanwhile.
"""

import json
import logging
import os
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from agileml.errors import Unrecoverable
from agileml.runtime.blob_store import BlobStore, fetch_file, file_pieces
from agileml.runtime.ground import refilled
from spotctl.agent.container.payload import OTHER_NODE
from spotctl.agent.data.locations import MACHINE, StoreIdentity, store_at
from spotctl.agent.data.stores import StoreRefused
from spotctl.agent.data.transfer import is_temporary
from spotctl.agent.errors import BadCheckpoint, TransferFailed

_LOG = logging.getLogger(__name__)
_FINISHED = "finished"
_KEPT_CHECKPOINTS = 2
"""Checkpoints of a node that are kept, in case the newest is damaged."""

_LARGEST_RECORD = 64 << 20
_LARGEST = 1 << 62
"""Above all counts, sizes and times that a record has; a log keeps numbers of 64 bits."""

_BLOB = re.compile(r"(?P<stem>node-\d+/\d+-.+)\.(?P<part>record|\d+)")


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint: its writer (a node task), its number, its cost in seconds, its bytes, and the
    planned interval.
    """

    by: str
    number: int
    seconds: float
    size: int
    every: float


class StoredCheckpoints:
    """The checkpoints of one node at a job's `checkpoint.path`. Who may write there is for the
    store's policy to say.

    Raises BadCheckpoint if a checkpoint cannot be written, and if all stored checkpoints are
    damaged.
    """

    def __init__(self, path: str, rank: int, who: StoreIdentity = MACHINE) -> None:
        self._path, self._node = path, OTHER_NODE.format(rank=rank)
        self.restored: Mapping[str, str] = {}
        """Where the files of the checkpoint that was restored are stored, by their names."""
        with _as_bad_checkpoint(path):
            self._store = store_at(path, who)

    def put_files(
        self,
        by: str,
        number: int,
        folder: Path,
        names: Sequence[str],
        known: Mapping[str, str] = {},
    ) -> list[str]:
        """Stores the files of a checkpoint, other than those that are `known`; returns where all of
        them are. FileNotFoundError: a file has been removed."""
        stem = self._stem(by, number)
        blobs = [known.get(name, f"{stem}.{i}") for i, name in enumerate(names)]
        try:
            for name, blob in zip(names, blobs, strict=True):
                if name not in known:
                    self._store.put(blob, file_pieces(folder / name))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._unwritable(error) from error
        return blobs

    def put_record(
        self, record: CheckpointRecord, names: Sequence[str], more: Mapping[str, Any] = {}
    ) -> None:
        """Completes a checkpoint whose files are stored, and removes the checkpoints that it
        replaces.

        `more` has the `times` of the files and the `links` to folders: programs find their newest
        checkpoint by them. Where only changed files were stored, `blobs` says where each is.
        """
        stem = self._stem(record.by, record.number)
        values = {**asdict(record), "files": list(names), **more}
        try:
            self._store.put(f"{stem}.record", [json.dumps(values).encode()])

            # Beyond `_KEPT_CHECKPOINTS`, and what writers that were killed have left incomplete.
            complete = self._complete()
            parts = _parts(self._store, f"{self._node}/")
            kept = {*complete[-_KEPT_CHECKPOINTS:], *(old for old, _ in parts if old > stem)}
            used = set[str]()
            for old in kept.intersection(complete) if "blobs" in values else ():
                with suppress(Unrecoverable):
                    used.update(self._record(old)[2]["blobs"])
            # "record" sorts after all numbers: reversed, a checkpoint loses its record before its
            # files.
            for old, part in reversed(parts):
                if old not in kept and f"{old}.{part}" not in used:
                    self._store.delete(f"{old}.{part}")
        except OSError as error:
            raise self._unwritable(error) from error

    def latest(self) -> CheckpointRecord | None:
        """The record of the newest checkpoint, whose files are not read."""
        stems = self._complete()
        if not stems:
            return None
        try:
            with _as_bad_checkpoint(self._path):
                return self._record(stems[-1])[0]
        except Unrecoverable as error:
            raise BadCheckpoint(str(error)) from error

    def restore(self, folder: Path) -> CheckpointRecord | None:
        """Replaces a folder by the files of the newest checkpoint that is not damaged; None if
        there is none.
        """
        stems, why = self._complete(), ""
        for stem in reversed(stems):
            try:
                with _as_bad_checkpoint(self._path):
                    record, names, values = self._record(stem)
                    with refilled(folder) as new:
                        for blob, name in zip(values["blobs"], names, strict=True):
                            fetch_file(self._store, blob, new / name)

                        times: dict[Path, int] = {}
                        for name, changed in zip(names, values["times"], strict=False):
                            times[new / name] = changed
                            # A folder changes with its files.
                            for above in Path(name).parents[:-1]:
                                times[new / above] = max(changed, times.get(new / above, 0))
                        for path, changed in times.items():
                            os.utime(path, ns=(changed, changed))

                        for name, target in values["links"].items():
                            (new / name).symlink_to(target)
                    self.restored = dict(zip(names, values["blobs"], strict=True))
                    return record
            except Unrecoverable as error:
                if is_temporary(error):
                    raise BadCheckpoint(f"checkpoints at {self._path}: {error}") from error
                _LOG.warning("ignoring checkpoint %s: %s", stem, error)
                why = str(error)

        if stems:
            unusable = f"{self._path}/{self._node}: none of {len(stems)} checkpoints can be used"
            raise BadCheckpoint(f"{unusable}: {why}; restore one, or remove all")

        return None

    def _record(self, stem: str) -> tuple[CheckpointRecord, list[str], dict[str, Any]]:
        """A checkpoint's record, the names of its files, and all that was written. Unrecoverable:
        it is damaged, or another one's."""
        content = bytearray()
        for piece in self._store.get(f"{stem}.record"):
            content += piece
            if len(content) > _LARGEST_RECORD:
                raise Unrecoverable(f"its record is larger than {_LARGEST_RECORD} bytes")

        try:
            values = dict(json.loads(content))
            names = [_inside(str(name)) for name in values["files"]]
            values["links"] = _links_inside(values.get("links", {}))
            values["times"] = [int(changed) for changed in values.get("times", ())]
            own = [f"{stem}.{i}" for i in range(len(names))]
            values["blobs"] = [str(blob) for blob in values.get("blobs", own)]
            matches = [_BLOB.fullmatch(blob) for blob in values["blobs"]]
            if len(matches) != len(names) or not all(
                match and match["part"].isdecimal() and blob.startswith(f"{self._node}/")
                for match, blob in zip(matches, values["blobs"], strict=True)
            ):
                raise ValueError("a file of the record is none of this node's")
            record = CheckpointRecord(
                str(values["by"]),
                int(values["number"]),
                float(values["seconds"]),
                int(values["size"]),
                float(values["every"]),
            )
            numbers = (record.number, record.size, *values["times"])
            if not all(0 <= number < _LARGEST for number in numbers) or not (
                record.seconds >= 0 <= record.every
            ):
                raise ValueError("a number of the record is none that was measured")
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            OverflowError,
            RecursionError,
        ) as error:
            raise Unrecoverable("its record is damaged") from error

        if self._stem(record.by, record.number) != stem:
            # An old checkpoint under a higher number would be the newest for ever.
            raise Unrecoverable("its record is that of another checkpoint")

        return record, names, values

    def _complete(self) -> list[str]:
        """The checkpoints that have a record, oldest first."""
        with _as_bad_checkpoint(self._path):
            return [
                stem for stem, part in _parts(self._store, f"{self._node}/") if part == "record"
            ]

    def _unwritable(self, error: OSError) -> BadCheckpoint:
        return BadCheckpoint(
            f"{error.filename or self._path}: cannot be written: {error.strerror or error}"
        )

    def _stem(self, by: str, number: int) -> str:
        return f"{self._node}/{number:012d}-{by}"


def discard_checkpoints(path: str, *, fresh: bool, who: StoreIdentity = MACHINE) -> None:
    """Removes the checkpoints of a finished job, or of any job for a `fresh` start; a run resumes
    from what remains.
    """
    with _as_bad_checkpoint(path):
        store = store_at(path, who)
        for mark in store.list(ENDED):
            store.delete(mark)
        if fresh or _FINISHED in store.list(_FINISHED):
            for stem, part in reversed(_parts(store, "node-")):
                store.delete(f"{stem}.{part}")
            store.delete(_FINISHED)


def has_checkpoint(path: str, who: StoreIdentity) -> bool:
    """Whether a run would begin at the checkpoint of an earlier one."""
    with _as_bad_checkpoint(path):
        store = store_at(path, who)
        return bool(_parts(store, "node-")) and _FINISHED not in store.list(_FINISHED)


def note_finished(path: str, run: str, who: StoreIdentity = MACHINE) -> None:
    """Marks a job as finished, so that the next run does not resume from its checkpoints."""
    with _as_bad_checkpoint(path):
        store = store_at(path, who)
        if _parts(store, "node-"):
            store.put(_FINISHED, [run.encode()])


@contextmanager
def _as_bad_checkpoint(path: str) -> Iterator[None]:
    """Turns refusals of an object store, and failures of a disk, into failures of checkpoints."""
    try:
        yield
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        raise BadCheckpoint(f"checkpoints at {path}: {where}{error.strerror or error}") from error


def links_of(folder: Path) -> dict[str, str]:
    """Links from within a folder to folders in it, such as `latest`, with their targets."""
    links: dict[str, str] = {}
    for root, folders, _ in os.walk(folder):
        for path in (Path(root, name) for name in folders if not name.startswith(".")):
            target = path.resolve() if path.is_symlink() else None
            if target is not None and target.is_relative_to(folder.resolve()):
                link = path.relative_to(folder).as_posix()
                links[link] = os.path.relpath(target, path.parent.resolve())
    return links


def _inside(name: str) -> str:
    """The name of a file; ValueError if it leads out of the checkpoint's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise ValueError(name)
    return name


def _links_inside(links: dict[str, str]) -> dict[str, str]:
    """The links of a record; ValueError if one leads out of the checkpoint's folder, perhaps by way
    of another.
    """
    inside: dict[str, str] = {}
    for name, given in links.items():
        # As text, `link/..` is nothing; for the system, it is the folder above what the link leads
        # to.
        target, above = posixpath.normpath(given), PurePosixPath(_inside(name)).parents
        _inside(posixpath.normpath(posixpath.join(posixpath.dirname(name), target)))
        if not links.keys().isdisjoint(map(str, above)):
            raise ValueError(name)
        inside[name] = target

    return inside


def _parts(store: BlobStore, prefix: str) -> list[tuple[str, str]]:
    """The blobs of checkpoints, as the checkpoint's name and the part that a blob holds."""
    matches = (_BLOB.fullmatch(name) for name in store.list(prefix))
    return [(match["stem"], match["part"]) for match in matches if match]


ENDED = "ended/"
"""The prefix of the names of all marks."""


def note_ended(path: str, start: str, rank: int) -> None:
    """Marks a node's start of the program as ended with status 0."""
    with _as_transfer_failure(path):
        store_at(path).put(f"{ENDED}{start}/{OTHER_NODE.format(rank=rank)}", [b"0"])


def have_ended(path: str, start: str, nodes: int, who: StoreIdentity = MACHINE) -> bool:
    """Whether a start of the program ended with status 0 on all of its nodes."""
    with _as_transfer_failure(path):
        return len(store_at(path, who).list(f"{ENDED}{start}/")) >= nodes


def forget_ended(path: str, run: str, who: StoreIdentity = MACHINE) -> None:
    """Removes the marks of a run."""
    with _as_transfer_failure(path):
        store = store_at(path, who)
        for mark in store.list(f"{ENDED}{run}."):
            store.delete(mark)


@contextmanager
def _as_transfer_failure(path: str) -> Iterator[None]:
    try:
        yield
    except StoreRefused as error:
        raise TransferFailed(f"{path}: {error}") from error
    except OSError as error:
        where = error.filename or path
        raise TransferFailed(f"{where}: {error.strerror or error}") from error
