"""The event log: one SQLite file to which rows are only ever appended. `raw_log` reads a damaged one.

Each row has a checksum, except those that earlier versions wrote. When `append` returns, the row is on disk and
survives the process and the machine. Other processes can read while a run writes. A job has one run at a time; the lock
of a job belongs to a process and ends with it.
"""

import fcntl
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import cast
from zlib import crc32

from spotctl.home.private import make_private_file, make_private_folder
from spotctl.log.errors import AlreadyRunning, BrokenLog, LogFailed
from spotctl.log.events import Event, RowsLost, RunBegan
from spotctl.log.log_row import LogRow, StoredRow

SCHEMA = 1
CURE = "'spotctl log check' shows the damage; status, down and gc work without the log"
WAIT_MS = 10_000
_LOCKED_PAUSE = 0.005

_CREATE = (
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run TEXT NOT NULL,
        at_us INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        checksum INTEGER)""",
    "CREATE INDEX events_of_run ON events (run, id)",
    "CREATE TRIGGER no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never changed'); END",
    "CREATE TRIGGER no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never removed'); END",
    f"PRAGMA user_version = {SCHEMA}",
)


_ADD_CHECKSUMS = "ALTER TABLE events ADD COLUMN checksum INTEGER"
"""Earlier versions still read and write such a log."""

_INSERT = "INSERT INTO events (run, at_us, kind, body, checksum) VALUES (?, ?, ?, ?, ?)"

_RUNS = """
    WITH RECURSIVE runs(run) AS (
        SELECT min(run) FROM events WHERE run > ''
        UNION ALL SELECT (SELECT min(run) FROM events WHERE run > runs.run) FROM runs WHERE run IS NOT NULL)"""
"""A step in the index per run; GROUP BY takes one per event. Marks of loss that belong to no run have none."""

_FIRST_OF_EACH_RUN = f"{_RUNS} SELECT (SELECT min(id) FROM events WHERE run = runs.run) FROM runs WHERE run > ''"  # noqa: S608 - of constants

_LAST_OF_EACH_RUN = f"{_RUNS} SELECT run, (SELECT max(id) FROM events WHERE run = runs.run) FROM runs WHERE run > ''"  # noqa: S608 - of constants

_COUNTS = "SELECT run, count(*) FROM events INDEXED BY events_of_run WHERE id > ? GROUP BY run"

_LAST_SINCE = "SELECT run, max(id) FROM events NOT INDEXED WHERE id > ? GROUP BY run"

_PORTION = 5000
"""Rows that are read at once."""

_TRANSIENT = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_READONLY", "SQLITE_CANTOPEN")
"""Errors of the disk or of another process. Any other one means that the file is damaged."""


class EventLog:
    """The log of all runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            make_private_folder(path.parent)
            for end in ("", "-wal", "-shm"):
                if not end or path.with_name(path.name + end).exists():
                    make_private_file(path.with_name(path.name + end))
        except OSError as error:
            raise LogFailed(f"event log {path}: {error.strerror}") from error
        with self._failing():
            # Written and read by one thread; isolation_level None: each statement is a transaction of its own.
            self._db = sqlite3.connect(path, timeout=WAIT_MS / 1000, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def __enter__(self) -> "EventLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    def append(self, run: str, at: int, event: Event) -> LogRow:
        """Appends an event; when this returns, it is on disk."""
        from spotctl.log.event_json import to_json

        with self._failing():
            values = (run, at, type(event).__name__, to_json(event))
            cursor = self._db.execute(_INSERT, (*values, checksum(*values)))
        assert cursor.lastrowid is not None
        if cursor.lastrowid == 1:
            self._mark_begun()
        return LogRow(cursor.lastrowid, run, at, event)

    def of_run(self, run: str, after: int = 0) -> list[LogRow]:
        """The events of a run in order, after a position in the log."""
        return self._rows("WHERE run = ? AND id > ? ORDER BY id", run, after)

    def ended_runs(self) -> set[str]:
        """The runs that have ended."""
        with self._failing():
            return {run for (run,) in self._db.execute("SELECT run FROM events WHERE kind = 'RunEnded'")}

    def beginnings(self) -> list[LogRow]:
        """The first event of every run. BrokenLog: a run has lost its own."""
        rows = self._rows(f"WHERE id IN ({_FIRST_OF_EACH_RUN}) ORDER BY id")
        if others := [row.run for row in rows if type(row.event).__name__ != "RunBegan"]:
            raise BrokenLog(self.damaged(f"the beginning of run {others[0]} is lost"))
        return rows

    def runs(self) -> dict[str, RunBegan]:
        """How each run began, the oldest first. BrokenLog: a run has lost its beginning."""
        return {row.run: cast("RunBegan", row.event) for row in self.beginnings()}

    def losses(self) -> tuple[RowsLost, ...]:
        """The marks of rows that repairs have dropped, and that may be of any run."""
        return tuple(cast("RowsLost", row.event) for row in self._rows("WHERE run = '' ORDER BY id"))

    def verify(self) -> None:
        """BrokenLog: not all rows that were written can be found. Their contents are checked when they are read."""
        with self._failing():
            ((finding,), *_) = self._db.execute("PRAGMA integrity_check(1)").fetchall()
            counts = self._db.execute("SELECT count(*), coalesce(max(id), 0) FROM events").fetchone()
            written = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone() or (0,)
        if finding != "ok" or set(counts) != set(written):
            what = f"{finding}" if finding != "ok" else f"{counts[0]} of {written[0]} rows are there"
            raise BrokenLog(self.damaged(" ".join(what.split())))

    def place(self) -> tuple[int, int, int]:
        """Device and inode of the file, and the number of changes of its tables and triggers: while these are the same,
        triggers have kept its rows as they are."""
        with self._failing():
            file = self._path.stat()
            (schema,) = self._db.execute("PRAGMA schema_version").fetchone()
        return file.st_dev, file.st_ino, schema

    def last(self) -> int:
        """The number of the last row that was written."""
        with self._failing():
            written = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        return 0 if written is None else int(written[0])

    def last_of_runs(self, after: int) -> dict[str, int]:
        """The number of each run's last row, by the index; for all rows, or those after a position.

        BrokenLog: the index is damaged.
        """
        with self._failing():
            last = dict(self._db.execute(_LAST_SINCE, (after,)) if after else self._db.execute(_LAST_OF_EACH_RUN))
        if not all(isinstance(run, str) and isinstance(row, int) for run, row in last.items()):
            raise BrokenLog(self.damaged("the index has other rows"))
        return last

    def stored_rows(self, after: int) -> Iterator[list[StoredRow]]:
        """The rows after a position, in portions. BrokenLog: not all are there as they were written."""
        count, of_run, has_checksums = after, Counter[str](), True
        for portion in self._stored("NOT INDEXED WHERE id > ? ORDER BY id", after):
            if [row[0] for row in portion] != list(range(count + 1, count + 1 + len(portion))):
                raise BrokenLog(self.damaged(f"a row is missing after row {count}"))
            has_checksums = has_checksums and not any(row[-1] is None for row in portion)
            of_run.update(row[1] for row in portion)
            count += len(portion)
            yield portion
        if (written := self.last()) != count:
            raise BrokenLog(self.damaged(f"{count} of {written} rows are there"))
        # Of a row without a checksum, only the index confirms the run.
        if not has_checksums and of_run != self._counts_of_runs(after):
            raise BrokenLog(self.damaged("the index has other rows"))

    def _counts_of_runs(self, after: int) -> dict[str, int]:
        with self._failing():
            return dict(self._db.execute(_COUNTS, (after,)))

    def stored_row(self, number: int) -> StoredRow | None:
        """The row at a position; None if there is none."""
        return next((portion[0] for portion in self._stored("WHERE id = ?", number)), None)

    def stored_rows_of(self, run: str, until: int) -> list[StoredRow]:
        """The rows of a run up to a position."""
        return [row for portion in self._stored("WHERE run = ? AND id <= ? ORDER BY id", run, until) for row in portion]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A context whose reads all see the log as of one moment, while other processes go on writing."""
        with self._failing():
            self._db.execute("BEGIN")
        try:
            yield
        finally:
            # Some errors have ended the transaction already.
            if self._db.in_transaction:
                with self._failing():
                    self._db.execute("ROLLBACK")

    def restore(self, rows: Iterable[tuple[str, int, str, str]]) -> None:
        """Adds rows of a damaged log (run, time, kind and body), numbered without gaps."""
        with self._failing():
            self._db.executemany(_INSERT, [(*row, checksum(*row)) for row in rows])

    def _rows(self, clause: str, *values: object) -> list[LogRow]:
        rows = [row for portion in self._stored(clause, *values) for row in portion]
        if not rows:
            return []
        # This import takes longer than a whole report on ended runs, which reads no event.
        from spotctl.log.event_json import log_rows

        return log_rows(rows)

    def _stored(self, clause: str, *values: object) -> Iterator[list[StoredRow]]:
        """Rows in portions, each row checked by its checksum if it has one."""
        statement = f"SELECT id, run, at_us, kind, body, checksum FROM events {clause}"  # noqa: S608 - no clause is given from outside
        with self._failing():
            cursor = self._db.execute(statement, values)
        while True:
            with self._failing():
                portion = cursor.fetchmany(_PORTION)
            if not portion:
                return
            for id_, run, at, kind, body, expected in portion:
                if expected is None:
                    # A byte of SQLite's own can make a checksum none, and a text a number.
                    is_right = isinstance(at, int) and all(isinstance(text, str) for text in (run, kind, body))
                else:
                    is_right = expected == checksum(run, at, kind, body)
                if not is_right:
                    raise BrokenLog(self.damaged(f"row {id_} was changed"))
            yield portion

    def damaged(self, what: str) -> str:
        """The message that the log is damaged."""
        return f"event log {self._path} is damaged: {what}; {CURE}"

    def _prepare(self) -> None:
        self._switch_to_wal()
        # In WAL mode only FULL survives a crash of the machine: a request that was sent must not be forgotten.
        self._db.execute("PRAGMA synchronous = FULL")
        with closing(self._db.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            (version,) = cursor.execute("PRAGMA user_version").fetchone()
            if version == 0 and not begun_marker(self._path).exists():
                for statement in _CREATE:
                    cursor.execute(statement)
            if version == SCHEMA:
                _add_checksums(cursor)
            cursor.execute("COMMIT")
            if version == 0 and begun_marker(self._path).exists():
                raise BrokenLog(f"event log {self._path} has lost all its rows; {CURE}")
            if version == SCHEMA:
                self._check_begun(cursor.execute("SELECT 1 FROM events LIMIT 1").fetchone() is not None)
        if version not in (0, SCHEMA):
            raise BrokenLog(
                f"event log {self._path} has format {version}, but this version reads {SCHEMA}; upgrade spotctl"
            )

    def _switch_to_wal(self) -> None:
        """Unlike other statements, this one does not wait by itself for a process that opens the log, too."""
        until = time.monotonic() + WAIT_MS / 1000
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > until:
                    raise
                time.sleep(_LOCKED_PAUSE)
            else:
                return

    def _check_begun(self, has_rows: bool) -> None:
        """Refuses a log that was emptied: machines may run that the log does not name any more."""
        begun = begun_marker(self._path).exists()
        if begun and not has_rows:
            raise BrokenLog(f"event log {self._path} has lost all its rows; {CURE}")
        if has_rows and not begun:
            self._mark_begun()

    def _mark_begun(self) -> None:
        # Without the marker, an emptied log cannot be told from a new one, and nothing else is lost.
        with suppress(OSError):
            begun_marker(self._path).touch()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            # Where the names of tables are damaged, even SQLite's messages are no text.
            if not getattr(error, "sqlite_errorname", "").startswith(_TRANSIENT):
                raise BrokenLog(self.damaged(str(error))) from error
            raise LogFailed(
                f"event log {self._path}: {error}; nothing is rented without it; free disk space or use another --home"
            ) from error


def _add_checksums(cursor: sqlite3.Cursor) -> None:
    """Makes room for checksums in a log of an earlier version, whose rows have none."""
    if not any(column[1] == "checksum" for column in cursor.execute("PRAGMA table_info(events)").fetchall()):
        cursor.execute(_ADD_CHECKSUMS)


def checksum(run: str, at: int, kind: str, body: str) -> int:
    """The checksum of what a row says: one changed byte is always found."""
    return crc32(f"{run}\0{at}\0{kind}\0{body}".encode(errors="replace"))


def begun_marker(path: Path) -> Path:
    """A file next to the log that says that the log has had rows."""
    return path.with_name(f"{path.stem}.begun")


def exists(path: Path) -> bool:
    """Whether there is a log, or was one."""
    return path.exists() or begun_marker(path).exists()


class JobLock:
    """Held by the process that runs a job. The system releases it when the process ends, by whatever signal."""

    def __init__(self, folder: Path, job: str) -> None:
        make_private_folder(folder.parent)
        make_private_folder(folder)
        path = folder / f"{job}.lock"
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if not any(_try_lock(self._descriptor, fcntl.LOCK_EX, pause) for pause in _PAUSES):
            holder = path.read_text().strip() or "unknown"
            os.close(self._descriptor)
            raise AlreadyRunning(f"job {job} is already running as process {holder} ('spotctl stop {job}' stops it)")
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, str(os.getpid()).encode())

    def __enter__(self) -> "JobLock":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)


_PAUSES = (0.0, 0.02, 0.1)
"""Seconds before attempts: a process that only checks the lock holds it for a moment."""


def runner_of(folder: Path, job: str) -> int | None:
    """The process that holds the lock of a job, or held it last; None if there was none."""
    try:
        return int((folder / f"{job}.lock").read_text())
    except (FileNotFoundError, ValueError):
        return None


def is_running(folder: Path, job: str) -> bool:
    """Whether a process holds the lock of a job."""
    try:
        descriptor = os.open(folder / f"{job}.lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, kind: int, pause: float = 0.0) -> bool:
    time.sleep(pause)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
