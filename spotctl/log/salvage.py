"""Reads a damaged event log as far as possible (rows, runs and damage), and repairs it.

Commands that return machines fall back on this module when the log cannot be read normally.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pricing_data.units import counted
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.errors import AlreadyRunning, BrokenLog
from spotctl.log.event_json import from_json
from spotctl.log.events import RowsLost, RunBegan
from spotctl.log.folding import after
from spotctl.log.log_row import LogRow
from spotctl.log.loss import Loss, losses_of, repaired
from spotctl.log.raw_log import FIRST_PAGE, RawLog, RawRow, raw_log, restore_first_page, write_rows
from spotctl.log.state import RunState

_KEPT = ".damaged-"


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
    """The usable rows of a log, the runs that follow from them, what is damaged, what that loses, and what earlier
    repairs have dropped."""

    rows: tuple[RawRow, ...] = ()
    runs: tuple[RunState, ...] = ()
    damage: tuple[Damage, ...] = ()
    losses: tuple[Loss, ...] = ()
    dropped: tuple[tuple[str, RowsLost], ...] = ()

    @property
    def began(self) -> tuple[RunBegan, ...]:
        return tuple(run.began for run in self.runs if run.began is not None)

    @property
    def latest(self) -> tuple[RunState, ...]:
        """The newest run of each job."""
        return tuple({run.began.job: run for run in self.runs if run.began is not None}.values())


def salvage(path: Path) -> Salvaged:
    """Reads what can be read. A sound log has no damage."""
    raw = _read(path)
    damage = [Damage(raw.failure)] if raw.failure else []
    if not raw.rows and store.begun_marker(path).exists():
        damage.append(Damage("the log had rows, and has none now"))
    runs, usable, unusable, dropped = (
        dict[str, RunState](),
        list[RawRow](),
        list[RawRow](),
        list[tuple[str, RowsLost]](),
    )
    for stored in raw.rows:
        try:
            row = _checked(stored)
            runs[row.run] = after(runs.get(row.run, RunState()), row)
            usable.append(stored)
        except BrokenLog as error:
            unusable.append(stored)
            damage.append(Damage(str(error), stored.id, stored.run))
        else:
            dropped += [(row.run, row.event)] if isinstance(row.event, RowsLost) else []
    losses = losses_of(raw, unusable)
    damage += _missing(losses, unusable)
    if not losses and raw.rows and raw.last != raw.rows[-1].id:
        damage.append(Damage(f"the number of the last row is {raw.rows[-1].id}, and not {raw.last}"))
    runs.pop("", None)
    damage += [Damage("the row with which the run began is lost", None, run) for run in _without_begin(usable)]
    return Salvaged(tuple(usable), tuple(runs.values()), tuple(damage), tuple(losses), tuple(dropped))


def _checked(stored: RawRow) -> LogRow:
    if not stored.sound:
        raise BrokenLog("the row says something else than its checksum")
    return LogRow(stored.id, stored.run, stored.at, from_json(stored.kind, stored.body))


def _missing(losses: Iterable[Loss], unusable: Sequence[RawRow]) -> Iterator[Damage]:
    """The rows that cannot be read; those that can be read and not used are named one by one."""
    seen = Counter(loss.run for loss in losses for row in unusable if loss.first <= row.id <= loss.last)
    for loss in losses:
        if not loss.run and not loss.kinds and not any(loss.first <= row.id <= loss.last for row in unusable):
            yield Damage(f"{counted(loss.rows, 'row')} missing from row {loss.first} on")
        elif loss.run and loss.rows > seen[loss.run]:
            yield Damage(f"{counted(loss.rows - seen[loss.run], 'row')} of the run missing", None, loss.run)


def repair(paths: Paths) -> tuple[Salvaged, Path | None]:
    """Replaces a damaged log by one with its usable rows, and marks of what is lost; returns where the damaged one is
    kept.

    A run that lost rows, and has not ended, is not resumed, except to return its machines. AlreadyRunning: a process
    writes to the log.
    """
    running = [lock.stem for lock in paths.locks.glob("*.lock") if store.is_running(paths.locks, lock.stem)]
    if running:
        raise AlreadyRunning(f"job {running[0]} is running and writes to the log; 'spotctl stop {running[0]}' stops it")
    salvaged = salvage(paths.log)
    if not salvaged.damage:
        return salvaged, None
    new = paths.log.with_name(f"{paths.log.name}.new")
    for end in ("", "-wal", "-shm"):
        new.with_name(new.name + end).unlink(missing_ok=True)
    write_rows(new, repaired(salvaged.rows, salvaged.losses, wall_us()))
    kept = paths.log.with_name(f"{paths.log.name}{_KEPT}{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    for end in ("", "-wal", "-shm"):
        part = paths.log.with_name(paths.log.name + end)
        if part.exists():
            part.rename(kept.with_name(kept.name + end))
    # An empty file shows that there was a log, even if the log itself was removed.
    kept.touch()
    new.rename(paths.log)
    return salvaged, kept


def no_runs(paths: Paths) -> str:
    """Why a log has no runs: none was launched, or a repair could not read any."""
    kept = sorted(paths.log.parent.glob(f"{paths.log.name}{_KEPT}*Z"))
    if not kept:
        return "no jobs yet (start one with: spotctl launch FILE)"
    return f"the event log lost all its runs, and no run has started since; the damaged log is kept as {kept[-1]}"


def _read(path: Path) -> RawLog:
    raw = raw_log(path) if path.exists() else RawLog(failure="the file does not exist")
    if raw.failure and not raw.rows and path.exists() and path.stat().st_size > FIRST_PAGE:
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "log.sqlite"
            restore_first_page(path, copy)
            again = raw_log(copy)
        return replace(again, failure=f"{raw.failure}; its first page was restored") if again.rows else raw
    return raw


def _without_begin(usable: Iterable[RawRow]) -> list[str]:
    first = dict[str, str]()
    for row in usable:
        first.setdefault(row.run, row.kind)
    return [run for run, kind in first.items() if run and kind != RunBegan.__name__]
