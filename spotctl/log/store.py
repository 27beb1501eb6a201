"""The event log: one SQLite file to which rows are only ever appended. `salvage` reads a damaged
one.

When `append` returns, the row is on disk and survives the process and the machine. Each row has a
checksum, and the rows of a run are numbered and chained (`schema`). The end of a run is written
together with what the run has cost. Other processes can read while a run writes.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

from pricing_data.units import DAY
from spotctl.home.callbacks import always
from spotctl.home.paths import make_private_file, make_private_folder
from spotctl.log import schema
from spotctl.log.jobs import is_used_elsewhere
from spotctl.log.outcomes import BrokenLog, LogFailed
from spotctl.log.schema import ChainEnd, StoredRow, checksum, link_of

if TYPE_CHECKING:
    # These imports take longer than a whole report on ended runs, which reads no event.
    from types import TracebackType

    from spotctl.log.events import Event, RowsLost, RunBegan, RunEnded
    from spotctl.log.queue import JobsQueued, QueueRow
    from spotctl.log.state import LogRow

CURE = "'spotctl log check' shows the damage; status, stop and gc work without the log"
WAIT_MS = 10_000
_LOCKED_PAUSE = 0.005

_RUNS = """
    WITH RECURSIVE names(run) AS (
        SELECT min(run) FROM events WHERE run > ''
        UNION ALL SELECT (SELECT min(run) FROM events WHERE run > names.run) FROM names WHERE run IS NOT NULL)"""
"""A step in the index per run; GROUP BY takes one per event. Marks of loss that belong to no run
have none."""

_FIRST_OF_EACH_RUN = (
    # Of constants.
    f"{_RUNS} SELECT (SELECT min(id) FROM events WHERE run = names.run) FROM names WHERE run > ''"  # noqa: S608
)

_NAMES = f"{_RUNS} SELECT run FROM names WHERE run > ''"  # noqa: S608 - of constants

_LAST_UNTIL = (
    "SELECT number, link FROM events WHERE run = ? AND id <= ? AND number IS NOT NULL ORDER BY id "
    "DESC LIMIT 1"
)

_ROWS_WRITTEN = "SELECT coalesce(max(rows), 0) FROM runs WHERE run = ?"

_CHAINED = (
    "SELECT (SELECT coalesce(sum(rows), 0) FROM runs) + (SELECT count(*) FROM events WHERE number "
    "IS NULL)"
)

_TRANSIENT = (
    "SQLITE_FULL",
    "SQLITE_IOERR",
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_READONLY",
    "SQLITE_CANTOPEN",
)
"""Errors of the disk or of another process. Any other one means that the file is damaged."""


class EventLog(AbstractContextManager["EventLog"]):
    """The log of all runs."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_read = False
        try:
            make_private_folder(path.parent)
            for end in ("", "-wal", "-shm"):
                if not end or path.with_name(path.name + end).exists():
                    make_private_file(path.with_name(path.name + end))
        except OSError as error:
            raise LogFailed(f"event log {path}: {error.strerror}") from error

        with self._failing():
            self._db = connect(path)
            try:
                self._prepare()
                self._has_chains = schema.has_chains(self._db)
                self._columns = f"{schema.COLUMNS}, {schema.added_columns(self._db)}"
            except BaseException:
                self._db.close()
                raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    # -- writing -----------------------------------------------------------------------------------

    def append(self, run: str, at: int, event: Event) -> LogRow:
        """Appends an event; when this returns, it is on disk, and the cost of a run that it ends,
        too.
        """
        row = self.append_if(run, at, event, always)
        assert row is not None
        return row

    def append_if(
        self, run: str, at: int, event: Event, holds: Callable[[], bool]
    ) -> LogRow | None:
        """Appends an event if a condition holds, which may read this log: no process writes until
        the event is there. None: it does not hold."""
        from spotctl.log.event_json import to_json
        from spotctl.log.events import RunEnded
        from spotctl.log.state import LogRow

        kind = type(event).__name__
        body = to_json(event)
        content = checksum(run, at, kind, body)
        # Computed before the transaction, for which other processes wait.
        cost = None
        if isinstance(event, RunEnded) and self._has_chains:
            cost = self._cost_with(run, at, event)

        with self._transaction() as cursor:
            if not holds():
                return None
            # Without tables for chains, or after rows without a number, the row gets no number
            # either.
            end = schema.chain_end(self._db, run) if self._has_chains else None
            if end is None:
                position = cursor.execute(
                    schema.INSERT_UNNUMBERED, (run, at, kind, body, content)
                ).lastrowid
            else:
                end = end.with_row(self._next_position(), kind, body, content)
                values = (run, at, kind, body, content, end.rows, end.link)
                position = cursor.execute(schema.INSERT, values).lastrowid
                schema.put_ends(cursor, [end])
                # Unless another process wrote to the run since: then a report computes its cost.
                if cost is not None and cost[0] == end.rows:
                    schema.put_final(cursor, "final_costs", [(end, cost[1])])

        assert position is not None
        if position == 1:
            self._mark_begun()
        return LogRow(position, run, at, event)

    def queued(self, queue: str, known: JobsQueued) -> JobsQueued:
        """A queue as its rows tell it now. BrokenLog: they are damaged."""
        from spotctl.log.queue import read_rows

        with self._failing():
            return read_rows(self._db, queue, known)

    def add_to_queue(self, queue: str, after: int, rows: Sequence[QueueRow]) -> bool:
        """Adds rows to a queue whose last row has the number `after`; False if it has others by
        now.
        """
        from spotctl.log.queue import write_rows

        with self._transaction() as cursor:
            return write_rows(cursor, queue, after, rows)

    def restore(self, rows: Iterable[tuple[str, int, str, str]]) -> None:
        """Adds rows of a damaged log (run, time, kind and body), numbered without gaps."""
        with self._transaction() as cursor:
            position = self._next_position()
            ends = schema.chain_ends(self._db)
            for run, at, kind, body in rows:
                content = checksum(run, at, kind, body)
                end = ends[run] = ends.get(run, ChainEnd(run)).with_row(
                    position, kind, body, content
                )
                cursor.execute(schema.INSERT, (run, at, kind, body, content, end.rows, end.link))
                position += 1
            schema.put_ends(cursor, ends.values())

    def keep(self, table: str, entries: Iterable[tuple[ChainEnd, tuple[str, str]]]) -> None:
        """Keeps what follows from the rows of ended runs, if they have no rows but those up to
        these ends. In a log that cannot be written, it is computed each time."""
        with suppress(LogFailed), self._transaction() as cursor:
            now = schema.chain_ends(self._db)
            schema.put_final(
                cursor, table, [(end, texts) for end, texts in entries if now.get(end.run) == end]
            )

    def _cost_with(self, run: str, at: int, end: RunEnded) -> tuple[int, tuple[str, str]] | None:
        """How many rows a run has with its end, and what it has cost, as the log keeps it; None if
        that does not follow from its rows. LogFailed: the disk fails."""
        try:
            from spotctl.log.ledger.final_cost import final_account
            from spotctl.log.state import LogRow

            rows = self.of_run(run)
            # No figure depends on the position of a row.
            account = final_account([*rows, LogRow(0, run, at, end)])
            return None if account is None else (len(rows) + 1, account.stored())
        except Exception as error:
            # Whatever the rows of the run say, its end is written: a report says what is wrong with
            # them.
            if isinstance(error, LogFailed):
                raise
            return None

    def _next_position(self) -> int:
        (last,) = self._db.execute(
            "SELECT max(seq) FROM sqlite_sequence WHERE name = 'events'"
        ).fetchone()
        return (last or 0) + 1

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._failing(), closing(self._db.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                # Some errors have ended the transaction already.
                if self._db.in_transaction:
                    cursor.execute("ROLLBACK")
                raise

    # -- reading -----------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A context whose reads all see the log as of one moment, while other processes go on
        writing.
        """
        is_outermost = not self._db.in_transaction
        if is_outermost:
            with self._failing():
                self._db.execute("BEGIN")

        try:
            yield
        finally:
            # Some errors have ended the transaction already.
            if is_outermost and self._db.in_transaction:
                with self._failing():
                    self._db.execute("ROLLBACK")

    def of_run(self, run: str, after: int = 0) -> list[LogRow]:
        """The events of a run in order, after a position in the log."""
        return _with_events(self.rows_of(run, after))

    def rows_of(self, run: str, after: int = 0) -> list[StoredRow]:
        """The rows of a run after a position. BrokenLog: not all that were written are there, as
        they were written.
        """
        before = (0, 0)
        written = 0
        with self.snapshot():
            if self._has_chains:
                with self._failing():
                    (written,) = self._db.execute(_ROWS_WRITTEN, (run,)).fetchone()
                    before = self._db.execute(_LAST_UNTIL, (run, after)).fetchone() or before
            portions = self._stored("WHERE run = ? AND id > ? ORDER BY id", run, after)
            rows = [row for portion in portions for row in portion]

        number, _ = self._followed(rows, *before)
        if number < written:
            raise BrokenLog(self.damaged(f"row {number + 1} of run {run} is missing"))
        return rows

    def _followed(self, rows: Sequence[StoredRow], number: int, link: int) -> tuple[int, int]:
        """The number and link of the last of some rows of a run, after a row with these. BrokenLog:
        one row does not follow the row before it."""
        if rows and schema.links_after(rows, number, link):
            # Nearly always, and many times as fast as the loop, which finds the row.
            return cast("tuple[int, int]", rows[-1][-2:])

        for position, run, at, kind, body, stored, own, expected in rows:
            if own is None:
                continue
            if own > number + 1:
                raise BrokenLog(self.damaged(f"row {number + 1} of run {run} is missing"))
            content = checksum(run, at, kind, body) if stored is None else stored
            if own <= number or expected != link_of(link, own, content):
                raise BrokenLog(self.damaged(f"row {position} is not the one that run {run} wrote"))
            number = own
            link = expected

        return number, link

    def names(self) -> list[str]:
        """The runs, by the index."""
        with self._failing():
            return [run for (run,) in self._db.execute(_NAMES)]

    def ended_runs(self) -> set[str]:
        """The runs that have ended."""
        with self._failing():
            return {
                run for (run,) in self._db.execute("SELECT run FROM events WHERE kind = 'RunEnded'")
            }

    def beginnings(self) -> list[LogRow]:
        """The first event of every run. BrokenLog: a run has lost its own."""
        firsts = self._stored(f"WHERE id IN ({_FIRST_OF_EACH_RUN}) ORDER BY id")
        rows = _with_events([row for portion in firsts for row in portion])
        if others := [row.run for row in rows if type(row.event).__name__ != "RunBegan"]:
            raise BrokenLog(self.damaged(f"the beginning of run {others[0]} is lost"))
        return rows

    def runs(self) -> dict[str, RunBegan]:
        """How each run began, the oldest first. BrokenLog: a run has lost its beginning."""
        return {row.run: cast("RunBegan", row.event) for row in self.beginnings()}

    def latest(self) -> dict[str, str]:
        """The newest run of each job, in the order in which jobs were first launched. BrokenLog: a
        run has lost its beginning."""
        ends = self.ends()
        if ends.keys() >= set(self.names()) and all(end.job for run, end in ends.items() if run):
            in_order = sorted((end.first, end.job, end.run) for end in ends.values() if end.run)
            return {job: run for _, job, run in in_order}
        return {began.job: run for run, began in self.runs().items()}

    def losses(self) -> tuple[RowsLost, ...]:
        """The marks of rows that repairs have dropped, and that may be of any run."""
        return tuple(cast("RowsLost", row.event) for row in self.of_run(""))

    def ends(self) -> dict[str, ChainEnd]:
        """The ends of the chains of runs whose rows all have numbers. BrokenLog: one is damaged."""
        if not self._has_chains:
            return {}
        with self._failing():
            unnumbered = {
                run for (run,) in self._db.execute("SELECT run FROM events WHERE number IS NULL")
            }
            ends = schema.chain_ends(self._db)
        return {run: end for run, end in ends.items() if run not in unnumbered}

    def final(self, table: str, ends: Mapping[str, ChainEnd]) -> dict[str, tuple[str, str]]:
        """The entries of a table for ended runs, for these ends of their chains."""
        if not self._has_chains:
            return {}
        with self._failing():
            return schema.final(self._db, table, ends)

    def verify(self) -> None:
        """BrokenLog: not all rows that were written can be found. Their contents are checked when
        they are read.
        """
        with self._failing():
            ((finding,), *_) = self._db.execute("PRAGMA integrity_check(1)").fetchall()
        if finding != "ok":
            raise BrokenLog(self.damaged(" ".join(finding.split())))
        self._check_counts()

    def check(self, now: int) -> None:
        """BrokenLog: rows are missing or foreign, or, as is noticed once a day of this computer's
        clock, were changed. Damage to rows that no answer needs changes none."""
        with self.snapshot():
            self._check_counts()
        with self._failing():
            latest = None
            if self._has_chains:
                latest = self._db.execute("SELECT max(at_us) FROM checks").fetchone()

        checked = latest[0] if latest and latest[0] is not None else None
        if checked is not None and checked <= now < checked + DAY:
            return

        with self.snapshot():
            self.verify()
            last = dict[str, tuple[int, int]]()
            # The upgrade that has just numbered all rows has read them.
            for portion in (
                () if self._is_read else self._stored("NOT INDEXED WHERE id > ? ORDER BY id", 0)
            ):
                for run, rows in groupby(sorted(portion, key=itemgetter(1)), itemgetter(1)):
                    last[run] = self._followed(list(rows), *last.get(run, (0, 0)))
            for run, end in self.ends().items() if last else ():
                number, link = last.get(run, (0, 0))
                if (number, link) != (end.rows, end.link):
                    raise BrokenLog(self.damaged(f"row {number + 1} of run {run} is missing"))

        if self._has_chains:
            with suppress(LogFailed), self._transaction() as cursor:
                cursor.execute("DELETE FROM checks")
                cursor.execute("INSERT INTO checks (at_us) VALUES (?)", (now,))

    def _check_counts(self) -> None:
        with self._failing():
            counts = self._db.execute(
                "SELECT count(*), coalesce(max(id), 0) FROM events"
            ).fetchone()
            written = self._db.execute(
                "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
            ).fetchone() or (0,)
            chained = written[0]
            if self._has_chains:
                (chained,) = self._db.execute(_CHAINED).fetchone()
        if {*counts, chained} != set(written):
            raise BrokenLog(self.damaged(f"{counts[0]} of {written[0]} rows are there"))

    def _stored(self, clause: str, *values: object) -> Iterator[list[StoredRow]]:
        """Rows in portions, each row checked by its checksum if it has one."""
        # No clause is given from outside.
        statement = f"SELECT {self._columns} FROM events {clause}"  # noqa: S608
        with self._failing():
            cursor = self._db.execute(statement, values)
        while True:
            with self._failing():
                portion = cursor.fetchmany(schema.PORTION)
            if not portion:
                return
            if (position := schema.first_changed(portion)) is not None:
                raise BrokenLog(self.damaged(f"row {position} was changed"))
            yield portion

    # -- the file ----------------------------------------------------------------------------------

    def damaged(self, what: str) -> str:
        """The message that the log is damaged."""
        return f"event log {self._path} is damaged: {what}; {CURE}"

    def _prepare(self) -> None:
        self._switch_to_wal()
        # In WAL mode only FULL survives a crash of the machine: a request that was sent must not be
        # forgotten.
        self._db.execute("PRAGMA synchronous = FULL")
        with self._transaction() as cursor:
            (version,) = cursor.execute("PRAGMA user_version").fetchone()
            has_begun = begun_marker(self._path).exists()
            if version == 0 and not has_begun:
                for statement in schema.CREATE:
                    cursor.execute(statement)

        if version == schema.FORMAT and schema.must_be_upgraded(self._db):
            # A log that cannot be written is read as it is.
            with suppress(LogFailed), self._transaction() as cursor:
                self._is_read = schema.upgrade(
                    cursor, numbers=not is_used_elsewhere(self._path.with_name("locks"))
                )

        lost = BrokenLog(f"event log {self._path} has lost all its rows; {CURE}")
        if version == 0 and has_begun:
            raise lost

        if version == schema.FORMAT:
            # Of a log that was emptied, machines may run that the log does not name any more.
            has_rows = self._db.execute("SELECT 1 FROM events LIMIT 1").fetchone() is not None
            if has_begun and not has_rows:
                raise lost
            if has_rows and not has_begun:
                self._mark_begun()

        if version not in (0, schema.FORMAT):
            raise BrokenLog(
                f"event log {self._path} has format {version}, but this version reads "
                f"{schema.FORMAT}; upgrade spotctl"
            )

    def _switch_to_wal(self) -> None:
        """Unlike other statements, this one does not wait by itself for a process that opens the
        log, too.
        """
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

    def _mark_begun(self) -> None:
        # Without the marker, an emptied log cannot be told from a new one, and nothing else is
        # lost.
        with suppress(OSError):
            begun_marker(self._path).touch()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            # The end of a chain is damaged, or, where the names of tables are, even SQLite's
            # messages are no text.
            if not getattr(error, "sqlite_errorname", "").startswith(_TRANSIENT):
                raise BrokenLog(self.damaged(str(error))) from error
            raise LogFailed(
                f"event log {self._path}: {error}; nothing is rented without it; free disk space "
                "or use another --home"
            ) from error


def connect(path: Path, mode: str = "rwc") -> sqlite3.Connection:
    """A connection to a log, for one thread. A log in a folder that cannot be written needs no file
    next to it.
    """
    is_alone = (
        not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    )
    name = f"file:{quote(os.fsencode(path))}?{'immutable=1' if is_alone else f'mode={mode}'}"
    # isolation_level None: each statement is a transaction of its own.
    return sqlite3.connect(name, uri=True, timeout=WAIT_MS / 1000, isolation_level=None)


def _with_events(rows: Sequence[StoredRow]) -> list[LogRow]:
    if not rows:
        return []
    from spotctl.log.event_json import log_rows

    return log_rows(rows)


def begun_marker(path: Path) -> Path:
    """A file next to the log that says that the log has had rows."""
    return path.with_name(f"{path.stem}.begun")


def exists(path: Path) -> bool:
    """Whether there is a log, or was one."""
    return path.exists() or begun_marker(path).exists()
