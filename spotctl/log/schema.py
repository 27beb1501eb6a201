"""The tables of the event log: the rows of all runs, the end of each run's chain of rows, the costs
of ended runs.

The rows of a run are numbered from 1 and chained: the `link` of a row is a digest of the row and of
the link before it, and `runs` has the last number and link of each run. A lost, foreign, repeated
or changed row is a fact about one run.

Rows of earlier versions have no number. They are numbered, all in one transaction, when the log is
opened while no other process runs a job (`upgrade`), and read as they are until then. Earlier
versions read and write the log as they did before.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple
from zlib import crc32

FORMAT = 1
FINAL_FORMAT = 13
"""The format of what `final_costs` and `final_views` have: what is in another one is computed
again."""

StoredRow = tuple[int, str, int, str, str, int | None, int | None, int | None]
"""A row's position in the log, run, time, kind, body, checksum, number within its run, and link.
Rows of early versions have no checksum, those of versions without chains no number and no link."""

COLUMNS = "id, run, at_us, kind, body"
_ADDED_COLUMNS = ("checksum", "number", "link")
"""Columns that logs of earlier versions lack."""

_TRIGGER = (
    "CREATE TRIGGER no_update BEFORE UPDATE OF id, run, at_us, kind, body, checksum ON events"
    " BEGIN SELECT RAISE(ABORT, 'events are never changed'); END"
)

_ADDED = (
    "CREATE INDEX unnumbered_events ON events (run) WHERE number IS NULL",
    """CREATE TABLE runs (
        run TEXT PRIMARY KEY,
        job TEXT NOT NULL,
        first INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        link INTEGER NOT NULL,
        checksum INTEGER NOT NULL) WITHOUT ROWID""",
    *(
        f"""CREATE TABLE {name} (
        run TEXT PRIMARY KEY,
        last_row INTEGER NOT NULL,
        link INTEGER NOT NULL,
        format INTEGER NOT NULL,
        content TEXT NOT NULL,
        lines TEXT NOT NULL,
        checksum INTEGER NOT NULL)"""
        for name in ("final_costs", "final_views")
    ),
    "CREATE TABLE checks (at_us INTEGER NOT NULL)",
)

CREATE = (
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run TEXT NOT NULL,
        at_us INTEGER NOT NULL,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        checksum INTEGER,
        number INTEGER,
        link INTEGER)""",
    "CREATE INDEX events_of_run ON events (run, id)",
    _TRIGGER,
    "CREATE TRIGGER no_delete BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'events are never "
    "removed'); END",
    *_ADDED,
    f"PRAGMA user_version = {FORMAT}",
)

INSERT = (
    "INSERT INTO events (run, at_us, kind, body, checksum, number, link) VALUES (?, ?, ?, ?, ?, ?, "
    "?)"
)
INSERT_UNNUMBERED = "INSERT INTO events (run, at_us, kind, body, checksum) VALUES (?, ?, ?, ?, ?)"
_ENDS = "SELECT run, job, first, rows, link, checksum FROM runs"
_PUT_END = (
    "INSERT OR REPLACE INTO runs (run, job, first, rows, link, checksum) VALUES (?, ?, ?, ?, ?, ?)"
)
PORTION = 5000
"""Rows that are read at once."""


class ChainEnd(NamedTuple):
    """The end of a run's chain: the number and link of its last row; and its job, and the position
    of its first row.
    """

    run: str
    job: str = ""
    first: int = 0
    rows: int = 0
    link: int = 0

    def with_row(self, position: int, kind: str, body: str, content: int) -> "ChainEnd":
        """The end after one more row, whose checksum is `content`."""
        job = self.job
        first = self.first
        number = self.rows + 1
        if number == 1:
            first = position
            # A beginning that cannot be read says no job, and stops no other run: its own readers
            # say what is wrong.
            with suppress(ValueError, AttributeError):
                job = str(json.loads(body).get("job", "")) if kind == "RunBegan" else ""
        return ChainEnd(self.run, job, first, number, link_of(self.link, number, content))


def checksum(*values: object) -> int:
    """The checksum of what a row says: one changed byte is always found."""
    return crc32("\0".join(map(str, values)).encode(errors="replace"))


def link_of(before: int, number: int, content: int) -> int:
    """The link of a row with this number and checksum, which follows a row with the link `before`
    (0: none).
    """
    return crc32(b"%d %d" % (number, content), before)


_CONTENT = "%s\0%s\0%s\0%s"
_NUMBERS = {int, type(None)}
"""The types of a number and a link: a byte of SQLite's own can make a number a text."""


def first_changed(rows: Sequence[StoredRow]) -> int | None:
    """The position of the first row that does not say what its checksum says, or whose number or
    link is none; None if all rows are as they were written."""
    _, runs, times, kinds, bodies, expected, numbers, links = zip(*rows, strict=True)
    # All rows at once, several times as fast as one by one. What is not text in UTF-8 is looked at
    # below.
    with suppress(UnicodeError):
        contents = map(
            crc32,
            map(str.encode, map(_CONTENT.__mod__, zip(runs, times, kinds, bodies, strict=True))),
        )
        if {*map(type, numbers), *map(type, links)} <= _NUMBERS and tuple(contents) == expected:
            return None

    for position, run, at, kind, body, stored, number, link in rows:
        # A byte of SQLite's own can make a checksum none, and a text a number.
        is_typed = isinstance(at, int) and all(isinstance(text, str) for text in (run, kind, body))
        is_numbered = {type(number), type(link)} <= _NUMBERS
        if not (is_typed and is_numbered and stored in (None, checksum(run, at, kind, body))):
            return position

    return None


def links_after(rows: Sequence[StoredRow], number: int, link: int) -> bool:
    """Whether rows with checksums follow each other, and a row with this number and link."""
    *_, contents, numbers, links = zip(*rows, strict=True)
    if numbers != tuple(range(number + 1, number + 1 + len(rows))) or None in contents:
        return False
    return (
        tuple(
            map(crc32, map(b"%d %d".__mod__, zip(numbers, contents, strict=True)), (link, *links))
        )
        == links
    )


def added_columns(db: sqlite3.Connection | sqlite3.Cursor) -> str:
    """The last columns of `StoredRow` as a query has them; logs of earlier versions lack some."""
    there = {column[1] for column in db.execute("PRAGMA table_info(events)").fetchall()}
    return ", ".join(name if name in there else "NULL" for name in _ADDED_COLUMNS)


def has_chains(db: sqlite3.Connection | sqlite3.Cursor) -> bool:
    """Whether the log has the tables of this version."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'checks'").fetchone() is not None


def chain_end(db: sqlite3.Connection, run: str) -> ChainEnd | None:
    """The end of a run's chain; None if rows of the run have no number. ValueError: it is
    damaged."""
    if db.execute(
        "SELECT 1 FROM events WHERE run = ? AND number IS NULL LIMIT 1", (run,)
    ).fetchone():
        return None
    end = chain_ends(db, run).get(run)
    if end is None and db.execute("SELECT 1 FROM events WHERE run = ? LIMIT 1", (run,)).fetchone():
        raise ValueError(f"the number of rows of run {run} is lost")
    return ChainEnd(run) if end is None else end


def chain_ends(db: sqlite3.Connection, of: str | None = None) -> dict[str, ChainEnd]:
    """The ends of all chains, or that `of` a run. ValueError: one is damaged."""
    ends = dict[str, ChainEnd]()
    for *values, expected in (
        db.execute(_ENDS) if of is None else db.execute(f"{_ENDS} WHERE run = ?", (of,))
    ):
        end = ChainEnd(*values)
        if checksum(*end) != expected:
            raise ValueError(f"the number of rows of run {end.run} was changed")
        ends[end.run] = end

    return ends


def put_ends(db: sqlite3.Connection | sqlite3.Cursor, ends: Iterable[ChainEnd]) -> None:
    """Writes the new ends of chains."""
    db.executemany(_PUT_END, [(*end, checksum(*end)) for end in ends])


def put_final(
    db: sqlite3.Connection | sqlite3.Cursor,
    table: str,
    entries: Iterable[tuple[ChainEnd, tuple[str, str]]],
) -> None:
    """Writes what follows from the rows of ended runs up to the ends of their chains."""
    values = ((end.run, end.rows, end.link, FINAL_FORMAT, *texts) for end, texts in entries)
    db.executemany(
        # A table of ours.
        f"INSERT OR REPLACE INTO {table} (run, last_row, link, format, content, lines, checksum)"  # noqa: S608
        " VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*of_run, checksum(*of_run)) for of_run in values],
    )


def final(
    db: sqlite3.Connection, table: str, ends: Mapping[str, ChainEnd]
) -> dict[str, tuple[str, str]]:
    """The entries of a table for ended runs that have had no row since, if this version wrote
    them."""
    known = dict[str, tuple[str, str]]()
    for *values, expected in db.execute(
        f"SELECT run, last_row, link, format, content, lines, checksum FROM {table}"  # noqa: S608
    ):
        run, last_row, link, made, content, lines = values
        end = ends.get(run)
        is_of_end = end is not None and (last_row, link, made) == (end.rows, end.link, FINAL_FORMAT)
        if is_of_end and checksum(*values) == expected:
            known[run] = content, lines

    return known


# -- logs of earlier versions ----------------------------------------------------------------------


def must_be_upgraded(db: sqlite3.Connection | sqlite3.Cursor) -> bool:
    """Whether a log has rows without a number, or no room for numbers."""
    if not has_chains(db) or "NULL" in added_columns(db):
        return True
    return db.execute("SELECT 1 FROM events WHERE number IS NULL LIMIT 1").fetchone() is not None


def upgrade(db: sqlite3.Cursor, *, numbers: bool) -> bool:
    """Makes room for checksums in a log of a very early version, whose rows have none; and, with
    `numbers`, numbers and chains rows that have no number. All within the transaction that is going
    on. Returns whether it has read and numbered all rows of the log.

    A log that lacks rows, or whose rows or ends of chains were changed, is left as it is: a repair
    writes it again.
    """
    if not any(
        column[1] == "checksum" for column in db.execute("PRAGMA table_info(events)").fetchall()
    ):
        db.execute("ALTER TABLE events ADD COLUMN checksum INTEGER")

    if not numbers or not _has_all(db):
        return False

    is_new = not has_chains(db)
    ends = {} if is_new else chain_ends(db.connection)
    db.execute("SAVEPOINT numbering")
    if is_new:
        for name in ("number", "link"):
            db.execute(f"ALTER TABLE events ADD COLUMN {name} INTEGER")
        db.execute("DROP TRIGGER IF EXISTS no_update")

    for portion in _unnumbered(db):
        if first_changed(portion) is not None:
            db.execute("ROLLBACK TO numbering")
            return False
        db.executemany(
            "UPDATE events SET number = ?, link = ? WHERE id = ?", _numbered(portion, ends)
        )

    if is_new:
        for statement in (_TRIGGER, *_ADDED):
            db.execute(statement)

    put_ends(db, ends.values())
    return is_new


def _numbered(
    portion: Iterable[StoredRow], ends: dict[str, ChainEnd]
) -> Iterator[tuple[int, int, int]]:
    """The number, link and position of each of some rows, which are added to the ends of chains."""
    for run, rows in groupby(sorted(portion, key=itemgetter(1)), itemgetter(1)):
        end = ends.get(run, ChainEnd(run))
        number = end.rows
        link = end.link
        for position, _, at, kind, body, stored, *_ in rows:
            content = checksum(run, at, kind, body) if stored is None else stored
            if not number:
                end = end.with_row(position, kind, body, content)
            number += 1
            link = link_of(link, number, content)
            yield number, link, position
        ends[run] = end._replace(rows=number, link=link)


def _has_all(db: sqlite3.Cursor) -> bool:
    """Whether no row is lost, and no end of a chain was changed."""
    try:
        if has_chains(db):
            chain_ends(db.connection)
    except ValueError:
        return False
    counts = db.execute("SELECT count(*), coalesce(max(id), 0) FROM events").fetchone()
    written = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone() or (0,)
    return set(counts) == set(written)


def _unnumbered(db: sqlite3.Cursor) -> Iterator[list[StoredRow]]:
    """The rows without a number, in portions, which may get one while they are read."""
    chosen = "number IS NULL AND id > ?" if has_chains(db) else "id > ?"
    columns = f"{COLUMNS}, {added_columns(db)}"
    statement = (
        # Of constants.
        f"SELECT {columns} FROM events NOT INDEXED WHERE {chosen} ORDER BY id LIMIT {PORTION}"  # noqa: S608
    )
    last = 0
    while portion := db.execute(statement, (last,)).fetchall():
        last = portion[-1][0]
        yield portion
