"""Reads the rows of an event log that may be damaged, as they are stored, and writes logs from such rows."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spotctl.log.store import WAIT_MS, EventLog, checksum

FIRST_PAGE = 4096
"""Bytes of the page with SQLite's header and the names of tables."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it is stored; unless `sound`, it says something else than its checksum."""

    id: int
    run: str
    at: int
    kind: str
    body: str
    sound: bool = True


@dataclass(frozen=True, slots=True)
class RawLog:
    """The readable part of a log: its rows, the run of each row by the index, which may have more rows, the number of
    the last row that was written (0: unknown), and why the rest cannot be read."""

    rows: tuple[RawRow, ...] = ()
    run_of: Mapping[int, str] = field(default_factory=dict)
    last: int = 0
    failure: str = ""


_SCANS = (
    "SELECT id, CAST(run AS BLOB), at_us, CAST(kind AS BLOB), CAST(body AS BLOB), checksum "
    "FROM events NOT INDEXED ORDER BY id",
    "SELECT id, CAST(run AS BLOB), at_us, CAST(kind AS BLOB), CAST(body AS BLOB), checksum "
    "FROM events NOT INDEXED ORDER BY id DESC",
)
_INDEX_SCANS = (
    "SELECT id, CAST(run AS BLOB) FROM events INDEXED BY events_of_run ORDER BY run, id",
    "SELECT id, CAST(run AS BLOB) FROM events INDEXED BY events_of_run ORDER BY run DESC, id DESC",
)
_LAST = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"


def raw_log(path: Path) -> RawLog:
    """The readable part of a log. Changes nothing."""
    failures = list[str]()
    rows, run_of, last = dict[int, RawRow](), dict[int, str](), 0
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=WAIT_MS / 1000)) as db:
            scans = _SCANS if _has_checksums(db) else [scan.replace("checksum", "NULL") for scan in _SCANS]
            for id_, *content in _scanned(db, scans, failures):
                rows[id_] = _row(id_, *content)
            run_of = {id_: _text(run) for id_, run in _scanned(db, _INDEX_SCANS, [])}
            failures += [finding for (finding,) in _scanned(db, ["PRAGMA integrity_check(1)"], []) if finding != "ok"]
            with suppress(sqlite3.Error, ValueError):
                last = int((db.execute(_LAST).fetchone() or (0,))[0])
    except (sqlite3.Error, ValueError) as error:
        failures.append(str(error))
    failure = " ".join(failures[0].split()) if failures else ""
    return RawLog(tuple(rows[id_] for id_ in sorted(rows)), run_of, last, failure)


def _scanned(db: sqlite3.Connection, scans: Iterable[str], failures: list[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of scans from both ends: a page that cannot be read stops each."""
    for scan in scans:
        try:
            yield from db.execute(scan)
        except (sqlite3.Error, ValueError) as error:
            failures.append(str(error))
        else:
            return


def _has_checksums(db: sqlite3.Connection) -> bool:
    with suppress(sqlite3.Error, ValueError):
        return any(column[1] == "checksum" for column in db.execute("PRAGMA table_info(events)"))
    return True


def _row(id_: int, run: bytes, at: object, kind: bytes, body: bytes, expected: int | None) -> RawRow:
    content = _text(run), at if isinstance(at, int) else 0, _text(kind), _text(body)
    return RawRow(id_, *content, sound=expected is None or expected == checksum(*content))


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode(errors="replace")


def write_rows(path: Path, rows: Iterable[RawRow]) -> None:
    """Writes a new log with these rows."""
    with closing(EventLog(path)) as log:
        log.restore((row.run, row.at, row.kind, row.body) for row in rows)


def restore_first_page(damaged: Path, copy: Path) -> None:
    """Copies a log whose first page is damaged, with the one that every log of this version has."""
    model = copy.with_name(f"{copy.name}.model")
    EventLog(model).close()
    content = model.read_bytes()[:FIRST_PAGE] + damaged.read_bytes()[FIRST_PAGE:]
    pages = len(content) // FIRST_PAGE
    copy.write_bytes(content[:28] + pages.to_bytes(4, "big") + content[32:])
    for end in ("", "-wal", "-shm"):
        model.with_name(model.name + end).unlink(missing_ok=True)
    wal = damaged.with_name(f"{damaged.name}-wal")
    if wal.exists():
        copy.with_name(f"{copy.name}-wal").write_bytes(wal.read_bytes())
