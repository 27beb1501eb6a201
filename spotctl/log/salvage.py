"""Reads a damaged event log as far as possible (rows, runs and damage), and repairs it.

Commands that return machines fall back on this module when the log cannot be read normally.
"""

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agileml.runtime.ground import move
from pricing_data.units import counted
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import schema, store
from spotctl.log.event_json import from_json
from spotctl.log.events import RowsLost, RunBegan
from spotctl.log.folding import fold
from spotctl.log.jobs import is_running
from spotctl.log.loss import (
    Loss,
    RawLog,
    RawRow,
    foreign_rows,
    left,
    losses_of,
    misnumbered_runs,
    repaired,
)
from spotctl.log.outcomes import AlreadyRunning, BrokenLog, LogFailed
from spotctl.log.schema import StoredRow, checksum
from spotctl.log.state import LogRow, RunState
from spotctl.log.store import EventLog

_KEPT = ".damaged-"


@dataclass(frozen=True, slots=True)
class Damage:
    """A row that cannot be used, or something that concerns the whole file (`row` and `run` are
    empty).
    """

    what: str
    """The problem."""
    row: int | None = None
    """Number of the row; null if the whole file is concerned."""
    run: str = ""
    """Run of the row; empty if the whole file is concerned."""

    def __str__(self) -> str:
        place = "" if self.row is None else f"row {self.row} (run {self.run}): "
        return f"{place}{self.what}"


@dataclass(frozen=True, slots=True)
class Salvaged:
    """The usable rows of a log, the runs that follow from them, what is damaged, what that loses,
    what earlier repairs have dropped, and which runs have lost their beginning."""

    rows: tuple[RawRow, ...] = ()
    runs: tuple[RunState, ...] = ()
    damage: tuple[Damage, ...] = ()
    losses: tuple[Loss, ...] = ()
    dropped: tuple[tuple[str, RowsLost], ...] = ()
    headless: frozenset[str] = frozenset()

    @property
    def began(self) -> tuple[RunBegan, ...]:
        return tuple(
            run.began for run in self.runs if run.began is not None and run.run not in self.headless
        )

    @property
    def latest(self) -> tuple[RunState, ...]:
        """The newest run of each job, of those that have their beginning."""
        return tuple({run.job: run for run in self.runs if run.run not in self.headless}.values())


def salvage(path: Path) -> Salvaged:
    """Reads what can be read. A sound log has no damage."""
    raw = _read(path)
    damage = [Damage(raw.failure)] if raw.failure else []
    if not raw.rows and store.begun_marker(path).exists():
        damage.append(Damage("the log had rows, and has none now"))
    runs = dict[str, RunState]()
    dropped = list[tuple[str, RowsLost]]()
    usable = list[RawRow]()
    unusable = list[RawRow]()
    foreign = foreign_rows(raw)

    for stored in raw.rows:
        try:
            if stored.id in foreign:
                raise BrokenLog("the row is not the one that the run wrote")
            row = _checked(stored)
            runs[row.run] = fold([row], runs.get(row.run))
            usable.append(stored)
        except BrokenLog as error:
            unusable.append(stored)
            damage.append(Damage(str(error), stored.id, stored.run))
        else:
            dropped += [(row.run, row.event)] if isinstance(row.event, RowsLost) else []

    losses = losses_of(raw, unusable)
    damage += _missing(losses, {row.id: row.run for row in unusable})
    if not raw.failure:
        changed = misnumbered_runs(raw, usable).difference(flaw.run for flaw in damage)
        why = "the numbers of the run's rows were changed"
        damage += [Damage(why, None, run) for run in sorted(changed)]

    newest = raw.rows[-1].id if raw.rows else raw.last
    if not losses and raw.last != newest:
        damage.append(Damage(f"the number of the last row is {newest}, and not {raw.last}"))

    headless = [run for run, state in runs.items() if run and state.began is None]
    why = "the row with which the run began is lost"
    damage += [Damage(why, None, run) for run in headless]

    # The state of a run that has lost rows is the one that it has after a repair, so that all
    # commands say the same.
    whole = left(usable, losses, wall_us())
    of_repair = [row.run for row in whole if not row.id]
    of_losses = [loss.run for loss in losses if loss.run]
    lossy = {run: list[LogRow]() for run in (*headless, *of_repair, *of_losses)}
    for kept in whole:
        if kept.run in lossy:
            lossy[kept.run].append(_checked(kept))

    lost = frozenset([*headless, *(run for run in lossy if run not in runs)])
    runs |= {run: fold(rows) for run, rows in lossy.items()}
    in_order = dict.fromkeys(row.run for row in whole)
    runs = {run: runs[run] for run in in_order if run}
    return Salvaged(
        tuple(usable), tuple(runs.values()), tuple(damage), tuple(losses), tuple(dropped), lost
    )


def _checked(stored: RawRow) -> LogRow:
    if not stored.sound:
        raise BrokenLog("the row says something else than its checksum")
    return LogRow(stored.id, stored.run, stored.at, from_json(stored.kind, stored.body))


def _missing(losses: Iterable[Loss], seen: Mapping[int, str]) -> Iterator[Damage]:
    """The rows that cannot be read; those that can be read and not used are named one by one."""
    for loss in losses:
        whose = {loss.run} if loss.run else {*seen.values()}
        gone = [position for position in loss.positions if seen.get(position) not in whose]
        if gone and loss.run:
            yield Damage(f"{counted(len(gone), 'row')} of the run missing", gone[0], loss.run)
        elif gone:
            yield Damage(f"{counted(len(gone), 'row')} missing from row {gone[0]} on")


def lossy_runs(path: Path) -> dict[str, list[StoredRow]] | None:
    """The rows that are left of each damaged run, with marks of what it has lost; None if the
    damage may concern others."""
    salvaged = salvage(path)
    runs = {flaw.run for flaw in salvaged.damage}
    if not runs or "" in runs:
        return None

    of_run = dict[str, list[StoredRow]]()
    rows = left(salvaged.rows, salvaged.losses, wall_us())
    for number, row in enumerate(rows, 1):
        if row.run in runs:
            stored = (number, row.run, row.at, row.kind, row.body, None, None, None)
            of_run.setdefault(row.run, []).append(stored)

    return of_run


def repair(paths: Paths) -> tuple[Salvaged, Path | None]:
    """Replaces a damaged log by one with its usable rows, and marks of what is lost; returns where
    the damaged one is kept.

    A run that lost rows, and has not ended, is not resumed, except to return its machines.
    AlreadyRunning: a process writes to the log.
    """
    for lock in paths.locks.glob("*.lock"):
        job = lock.stem
        if is_running(paths.locks, job):
            raise AlreadyRunning(
                f"job {job} is running and writes to the log; 'spotctl stop {job}' stops it"
            )

    salvaged = salvage(paths.log)
    if not salvaged.damage:
        return salvaged, None

    new = paths.log.with_name(f"{paths.log.name}.new")
    # With a marker of its own, a new log would be one that has lost its rows.
    store.begun_marker(new).unlink(missing_ok=True)
    for end in ("", "-wal", "-shm"):
        new.with_name(new.name + end).unlink(missing_ok=True)

    rows = repaired(salvaged.rows, salvaged.losses, wall_us())
    with closing(EventLog(new)) as log:
        log.restore((row.run, row.at, row.kind, row.body) for row in rows)

    # What was kept of a run belongs to the last link of its rows, and so stays right where none of
    # them is lost.
    with (
        suppress(sqlite3.Error, ValueError, LogFailed),
        closing(store.connect(paths.log, "ro")) as damaged,
        EventLog(new) as log,
    ):
        ends = log.ends()
        for table in ("final_costs", "final_views"):
            final = schema.final(damaged, table, ends)
            log.keep(table, [(ends[run], texts) for run, texts in final.items()])

    kept = paths.log.with_name(f"{paths.log.name}{_KEPT}{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    for end in ("", "-wal", "-shm"):
        part = paths.log.with_name(paths.log.name + end)
        if part.exists():
            move(part, kept.with_name(kept.name + end))

    # An empty file shows that there was a log, even if the log itself was removed.
    kept.touch()
    move(new, paths.log)
    store.begun_marker(new).unlink(missing_ok=True)
    return salvaged, kept


def no_runs(paths: Paths) -> str:
    """Why a log has no runs: none was launched, or a repair could not read any."""
    kept = sorted(paths.log.parent.glob(f"{paths.log.name}{_KEPT}*Z"))
    if not kept:
        return "no jobs yet (start one with: spotctl launch FILE)"
    return (
        "the event log lost all its runs, and no run has started since; the damaged log is kept "
        f"as {kept[-1]}"
    )


def _read(path: Path) -> RawLog:
    raw = raw_log(path) if path.exists() else RawLog(failure="the file does not exist")
    if raw.failure and not raw.rows and path.exists() and path.stat().st_size > FIRST_PAGE:
        with tempfile.TemporaryDirectory() as folder:
            # A copy gets the first page that every log of this version has.
            model = Path(folder) / "model.sqlite"
            EventLog(model).close()
            content = model.read_bytes()[:FIRST_PAGE] + path.read_bytes()[FIRST_PAGE:]
            pages = len(content) // FIRST_PAGE
            copy = Path(folder) / "log.sqlite"
            copy.write_bytes(content[:28] + pages.to_bytes(4, "big") + content[32:])
            wal = path.with_name(f"{path.name}-wal")
            if wal.exists():
                copy.with_name(f"{copy.name}-wal").write_bytes(wal.read_bytes())
            again = raw_log(copy)
        if again.rows:
            return replace(again, failure=f"{raw.failure}; its first page was restored")
        return raw

    return raw


FIRST_PAGE = 4096
"""Bytes of the page with SQLite's header and the names of tables."""


_INDEX_SCANS = (
    "SELECT id, CAST(run AS BLOB) FROM events INDEXED BY events_of_run ORDER BY run, id",
    "SELECT id, CAST(run AS BLOB) FROM events INDEXED BY events_of_run ORDER BY run DESC, id DESC",
)
_LAST = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"
_MIN_BYTES_OF_ROW = 16


def raw_log(path: Path) -> RawLog:
    """The readable part of a log. Changes nothing."""
    failures = list[str]()
    rows = dict[int, RawRow]()
    run_of = dict[int, str]()
    last = 0
    ends = dict[str, int]()
    wal = path.with_name(f"{path.name}-wal")

    # More rows than a log of this size can have. Where pages are damaged, a position can be any
    # number.
    size = path.stat().st_size
    if wal.exists():
        size += wal.stat().st_size
    most = size // _MIN_BYTES_OF_ROW
    try:
        with closing(store.connect(path, "ro")) as db:
            # All reads see the log as of one moment, while a run goes on writing.
            db.execute("BEGIN")
            for row in map(_row, _scanned(db, _scans(db), failures)):
                rows[row.id] = row
            for id_, run in _scanned(db, _INDEX_SCANS, []):
                if isinstance(id_, int) and id_ <= most:
                    run_of[id_] = _text(run)
            verdicts = _scanned(db, ["PRAGMA integrity_check(1)"], [])
            failures += [verdict for (verdict,) in verdicts if verdict != "ok"]
            with suppress(sqlite3.Error, ValueError):
                newest = db.execute(_LAST).fetchone()
                last = int(newest[0]) if newest else 0
            if schema.has_chains(db):
                for run, end in schema.chain_ends(db).items():
                    ends[run] = min(end.rows, most)
    except (sqlite3.Error, ValueError) as error:
        failures.append(str(error))

    if last > most or any(id_ > most for id_ in rows):
        failures.append(f"rows have numbers above {most}, and a log of this size has fewer rows")
    failure = " ".join(failures[0].split()) if failures else ""
    readable = tuple(rows[id_] for id_ in sorted(rows) if id_ <= most)
    return RawLog(readable, run_of, last if last <= most else 0, failure, ends)


def _scans(db: sqlite3.Connection) -> list[str]:
    added = "checksum, number, link"
    with suppress(sqlite3.Error, ValueError):
        added = schema.added_columns(db)
    # Of constants.
    scan = (
        f"SELECT id, CAST(run AS BLOB), at_us, CAST(kind AS BLOB), CAST(body AS BLOB), {added} "  # noqa: S608
        "FROM events NOT INDEXED"
    )
    return [f"{scan} ORDER BY id", f"{scan} ORDER BY id DESC"]


def _scanned(
    db: sqlite3.Connection, scans: Iterable[str], failures: list[str]
) -> Iterator[tuple[Any, ...]]:
    """The rows of scans from both ends: a page that cannot be read stops each."""
    for scan in scans:
        try:
            yield from db.execute(scan)
        except (sqlite3.Error, ValueError) as error:
            failures.append(str(error))
        else:
            return


def _row(stored: tuple[Any, ...]) -> RawRow:
    id_, run, at, kind, body, expected, number, link = stored
    at_us = at if isinstance(at, int) else 0
    content = (_text(run), at_us, _text(kind), _text(body))
    is_sound = expected is None or expected == checksum(*content)
    if not isinstance(number, int) or not isinstance(link, int):
        number = None
        link = None
    return RawRow(id_, *content, is_sound, number, link)


def _text(stored: bytes | None) -> str:
    return (stored or b"").decode(errors="replace")
