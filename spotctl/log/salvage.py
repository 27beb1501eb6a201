"""Reads a damaged event log as far as possible (rows, runs and damage), and repairs it.

Commands that return machines fall back on this module when the log cannot be read normally.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from spotctl.home.paths import Paths
from spotctl.log import store
from spotctl.log.errors import AlreadyRunning, BrokenLog
from spotctl.log.event_json import from_json, to_json
from spotctl.log.events import RunBegan, StopRequested
from spotctl.log.folding import after
from spotctl.log.log_row import LogRow
from spotctl.log.outcomes import FAILED
from spotctl.log.state import RunState
from spotctl.log.store import RawRow

_KEPT = ".damaged-"
LOST = "rows of the run's event log were damaged and are lost"


@dataclass(frozen=True, slots=True)
class Damage:
    """A row that cannot be used, or something that concerns the whole file (`row` and `run` are empty)."""

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
    """The usable rows of a log, the runs that follow from them, and what is damaged."""

    rows: tuple[RawRow, ...]
    runs: tuple[RunState, ...]
    damage: tuple[Damage, ...]

    @property
    def began(self) -> tuple[RunBegan, ...]:
        return tuple(run.began for run in self.runs if run.began is not None)

    @property
    def latest(self) -> tuple[RunState, ...]:
        """The newest run of each job."""
        return tuple({run.began.job: run for run in self.runs if run.began is not None}.values())


def salvage(path: Path) -> Salvaged:
    """Reads what can be read. A sound log has no damage."""
    rows, failure = _read(path)
    damage = [Damage(failure)] if failure else []
    if not rows and store.begun_marker(path).exists():
        damage.append(Damage("the log had rows, and has none now"))
    damage += [Damage(f"{missing} rows are missing before row {row}") for missing, row in _gaps(rows)]
    runs, usable = dict[str, RunState](), list[RawRow]()
    for raw in rows:
        try:
            row = LogRow(raw.id, raw.run, raw.at, from_json(raw.kind, raw.body))
            runs[raw.run] = after(runs.get(raw.run, RunState()), row)
            usable.append(raw)
        except BrokenLog as error:
            damage.append(Damage(str(error), raw.id, raw.run))
    damage += [Damage("the row with which the run began is lost", None, run) for run in _without_begin(runs)]
    return Salvaged(tuple(usable), tuple(runs.values()), tuple(damage))


def repair(paths: Paths) -> tuple[Salvaged, Path | None]:
    """Replaces a damaged log by one with its usable rows; returns where the damaged one is kept.

    A run that lost rows, and has not ended, is not resumed, except to return its machines. AlreadyRunning: a process
    writes to the log.
    """
    running = [lock.stem for lock in paths.locks.glob("*.lock") if store.is_running(paths.locks, lock.stem)]
    if running:
        raise AlreadyRunning(f"job {running[0]} is running and writes to the log; 'spotctl down {running[0]}' stops it")
    salvaged = salvage(paths.log)
    if not salvaged.damage:
        return salvaged, None
    new = paths.log.with_name(f"{paths.log.name}.new")
    for end in ("", "-wal", "-shm"):
        new.with_name(new.name + end).unlink(missing_ok=True)
    store.write_rows(new, (*salvaged.rows, *_stops(salvaged)))
    kept = paths.log.with_name(f"{paths.log.name}{_KEPT}{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    for end in ("", "-wal", "-shm"):
        part = paths.log.with_name(paths.log.name + end)
        if part.exists():
            part.rename(kept.with_name(kept.name + end))
    # An empty file shows that there was a log, even if the log itself was removed.
    kept.touch()
    new.rename(paths.log)
    if not salvaged.rows:
        store.begun_marker(paths.log).unlink(missing_ok=True)
    return salvaged, kept


def no_runs(paths: Paths) -> str:
    """Why a log has no runs: none was launched, or a repair could not read any."""
    kept = sorted(paths.log.parent.glob(f"{paths.log.name}{_KEPT}*Z"))
    if not kept:
        return "no jobs yet (start one with: spotctl launch FILE)"
    return f"the event log lost all its runs, and no run has started since; the damaged log is kept as {kept[-1]}"


def _read(path: Path) -> tuple[list[RawRow], str]:
    rows, failure = store.raw_rows(path) if path.exists() else ([], "the file does not exist")
    if failure and not rows and path.exists() and path.stat().st_size > _HEADER:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "log.sqlite"
            store.restore_header(path, copy)
            rows, again = store.raw_rows(copy)
        failure = f"{failure}; its first {_HEADER} bytes were restored" if rows and not again else failure
    return rows, failure


_HEADER = 100


def _gaps(rows: Iterable[RawRow]) -> Iterator[tuple[int, int]]:
    """Rows are numbered without gaps."""
    before = 0
    for row in rows:
        if row.id != before + 1:
            yield row.id - before - 1, row.id
        before = row.id


def _without_begin(runs: dict[str, RunState]) -> list[str]:
    return [run for run, state in runs.items() if state.began is None]


def _stops(salvaged: Salvaged) -> Iterator[RawRow]:
    """Stop requests for runs that lost rows. Rows missing in a gap may belong to any run."""
    lost = {damage.run for damage in salvaged.damage if damage.run}
    anywhere = any(not damage.run for damage in salvaged.damage)
    number = salvaged.rows[-1].id if salvaged.rows else 0
    for run in salvaged.runs:
        if run.began is not None and run.ended is None and (anywhere or run.run in lost):
            number += 1
            stop = StopRequested(FAILED, LOST)
            yield RawRow(number, run.run, run.at, StopRequested.__name__, to_json(stop))
