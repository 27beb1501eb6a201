"""Logs as the version before numbered rows wrote them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

FORMER = (
    "DROP TABLE runs",
    "DROP TABLE final_costs",
    "DROP TABLE final_views",
    "DROP TABLE checks",
    "DROP INDEX unnumbered_events",
    "DROP TRIGGER no_update",
    "ALTER TABLE events DROP COLUMN number",
    "ALTER TABLE events DROP COLUMN link",
    "CREATE TRIGGER no_update BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'events are never "
    "changed'); END",
)


def to_old_form(log: Path) -> None:
    """Turns a log into one that an earlier version wrote."""
    with closing(sqlite3.connect(log)) as db, db:
        for statement in FORMER:
            db.execute(statement)


def numbered(log: Path) -> list[tuple[int | None, int | None]] | None:
    """The numbers and links of all rows; None in a log without room for them."""
    with closing(sqlite3.connect(log)) as db:
        if not any(column[1] == "number" for column in db.execute("PRAGMA table_info(events)")):
            return None
        return db.execute("SELECT number, link FROM events ORDER BY id").fetchall()
