"""The copy of a run's event log in the object store, which grows with the log and outlives every machine.

The copy consists of segments, objects of up to `SEGMENT_ROWS` rows, named by the epoch of their runner (`fence`) and by
the number of their first row. If two epochs have the same row, the later epoch counts: a runner that was cut off may
still add rows that were never part of the run.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from agileml.runtime.blob_store import BlobStore
from spotctl.log.event_json import from_json, to_json
from spotctl.log.events import Event
from spotctl.log.log_row import LogRow
from spotctl.log.loss import rows_written
from spotctl.log.store import EventLog

SEGMENT_ROWS = 500
_FOLDER = "log/"


@dataclass(frozen=True, slots=True)
class CopiedRow:
    """An event and its time."""

    at: int
    event: Event

    def to_line(self) -> bytes:
        kind, body = type(self.event).__name__, json.loads(to_json(self.event))
        return json.dumps({"at": self.at, "kind": kind, "body": body}).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> "CopiedRow":
        values = json.loads(line)
        return cls(values["at"], from_json(values["kind"], json.dumps(values["body"])))


class LogCopy:
    """Reads the copy of one run's log."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._full: dict[str, list[CopiedRow]] = {}

    def rows(self) -> list[CopiedRow]:
        """All rows so far. Raises StoreRefused or UnreadableBlob."""
        return join_segments({_position(name): self._segment(name) for name in self._store.list(_FOLDER)})

    def _segment(self, name: str) -> list[CopiedRow]:
        if name in self._full:
            return self._full[name]
        rows = [CopiedRow.from_line(line) for line in b"".join(self._store.get(name)).splitlines()]
        if len(rows) == SEGMENT_ROWS:
            self._full[name] = rows
        return rows


def join_segments(segments: Mapping[tuple[int, int], Sequence[CopiedRow]]) -> list[CopiedRow]:
    """The rows of segments, given by epoch and first row, up to the first row that is missing."""
    merged: list[CopiedRow] = []
    for (_, first), rows in sorted(segments.items()):
        if first <= len(merged):
            merged[first:] = rows
    return merged


class LogCopier:
    """Writes the copy while the run of an epoch goes on; the first `start` rows are in segments of earlier epochs.

    Its methods may be called from any thread.
    """

    def __init__(self, store: BlobStore, path: Path, run: str, epoch: int, start: int) -> None:
        self._store, self._path, self._run, self._epoch = store, path, run, epoch
        self._lock = Lock()
        self._skip, self._after = start, 0
        self._first, self._segment, self._changed = start, list[CopiedRow](), False

    def copy(self) -> None:
        """Adds the new rows of the log. Raises OSError; the next call then copies the rows that are missing."""
        with self._lock:
            self._read()
            while self._changed:
                part = self._segment[:SEGMENT_ROWS]
                name = f"{_FOLDER}{self._epoch:06d}-{self._first:08d}"
                self._store.put(name, [row.to_line() for row in part])
                if len(part) == SEGMENT_ROWS:
                    self._first += SEGMENT_ROWS
                    del self._segment[:SEGMENT_ROWS]
                self._changed = bool(len(part) == SEGMENT_ROWS and self._segment)

    def _read(self) -> None:
        with EventLog(self._path) as log:
            new = log.of_run(self._run, self._after)
        for row in new:
            self._after = row.id
            if self._skip:
                self._skip -= 1
            else:
                self._segment.append(CopiedRow(row.at, row.event))
                self._changed = True


def add_missing(log: EventLog, run: str, rows: Iterable[CopiedRow | LogRow]) -> int:
    """Appends to a log the rows of a run that the log lacks; returns how many. What a repair dropped is not added."""
    known = rows_written(log.of_run(run))
    new = list(rows)[known:]
    for row in new:
        log.append(run, row.at, row.event)
    return len(new)


def _position(name: str) -> tuple[int, int]:
    epoch, _, first = name.removeprefix(_FOLDER).partition("-")
    return int(epoch), int(first)
