"""The views of the latest runs of all jobs. Those of ended runs are kept in a file next to the log.

A log of years need not be read to show them: what is kept counts while the log goes on where it ended when that was
written. Then only new rows are read, and the rows of runs that have not ended. Damage to other rows changes no answer;
so that it is noticed all the same, the whole file is checked once a day.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import cast

from pricing_data.units import DAY
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.home.wall_clock import wall_us
from spotctl.log import store
from spotctl.log.errors import BrokenLog, LogFailed
from spotctl.log.events import RowsLost
from spotctl.log.kept_file import keep, read_kept
from spotctl.log.log_reader import LogDigests, LogReader, OtherRows, digest_of, digests_at
from spotctl.log.log_row import StoredRow
from spotctl.show.runs.run_view import RunView

_MANY_NEW_ROWS = 1000
"""Only fewer new rows are read again by the next command."""

_MOST_NEW_ROWS = 50_000
"""With more new rows, the file as a whole is checked: SQLite does so faster than we check each row."""


@dataclass(frozen=True, slots=True)
class LatestRuns:
    """The latest run of each job, and why that may not be all: what is damaged, and what a repair has dropped that may
    be of any run."""

    runs: Sequence[RunView] = ()
    damage: tuple[str, ...] = ()
    lost: tuple[RowsLost, ...] = ()


@dataclass(frozen=True, slots=True)
class _Latest:
    """The latest run of a job, and its view, if that follows from the log alone and can be kept."""

    run: str
    view: RunView | None = None


@dataclass(frozen=True, slots=True)
class _Kept:
    """The latest run of each job, digests of those runs whose views are not kept, and when the whole log was
    checked, by this computer's clock."""

    digests: LogDigests = field(default_factory=LogDigests)
    latest: dict[str, _Latest] = field(default_factory=dict)
    checked: int = 0


@dataclass(frozen=True, slots=True)
class _LogNow:
    """The latest run of each job as the log has it now, up to its last row; `rows_of` reads a run."""

    latest: dict[str, _Latest]
    last: int
    checked: int
    rows_of: Callable[[str], Sequence[StoredRow]]


def latest_views(settings: Settings, elsewhere: Collection[str] = ()) -> LatestRuns:
    """The latest run of each job; to those `elsewhere`, a runner on another computer attends."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return LatestRuns()
    before = read_kept(paths.standings, _Kept) or _Kept()
    try:
        with store.EventLog(paths.log) as log, log.snapshot():
            now, shown, lost = _read(log, before, settings, elsewhere)
    except (BrokenLog, LogFailed):
        return _salvaged(settings, elsewhere)
    is_other = (now.latest, now.checked) != (before.latest, before.checked)
    if is_other or now.digests.last > before.digests.last + _MANY_NEW_ROWS:
        keep(paths.standings, now)
    return LatestRuns(shown, (), lost)


def _salvaged(settings: Settings, elsewhere: Collection[str]) -> LatestRuns:
    from spotctl.log.statuses import read_log
    from spotctl.show.runs.reading import RunViews

    read, views = read_log(settings), RunViews(settings)
    return LatestRuns([views.listed(state, elsewhere) for state in read.latest], read.damage, read.lost)


def _read(
    log: store.EventLog, before: _Kept, settings: Settings, elsewhere: Collection[str]
) -> tuple[_Kept, list[RunView], tuple[RowsLost, ...]]:
    present, latest = _log_now(log, before), dict[str, _Latest]()
    shown, unknown = list[RunView](), dict[str, str]()
    for job, known in present.latest.items():
        view, is_final = known.view, True
        if view is None:
            rows = present.rows_of(known.run)
            view, is_final = _view(rows, settings, elsewhere)
            if not is_final:
                unknown[known.run] = digest_of(rows)
        latest[job] = _Latest(known.run, view if is_final else None)
        shown.append(view)
    lost = present.rows_of("")
    digests = digests_at(log, present.last, {**unknown, "": digest_of(lost)})
    return _Kept(digests, latest, present.checked), shown, _marks(lost)


def _log_now(log: store.EventLog, before: _Kept) -> _LogNow:
    reader, now = LogReader(log, before.digests), wall_us()
    is_checked = before.checked <= now < before.checked + DAY
    if reader.goes_on and is_checked and log.last() - before.digests.last <= _MOST_NEW_ROWS:
        with suppress(OtherRows):
            return _continued(reader, before)
    from spotctl.log.events import RunBegan

    log.verify()
    last = log.last()
    latest = {row.event.job: _Latest(row.run) for row in log.beginnings() if isinstance(row.event, RunBegan)}
    return _LogNow(latest, last, now, lambda run: log.stored_rows_of(run, last))


def _continued(reader: LogReader, before: _Kept) -> _LogNow:
    """The log as far as it was known, with its new rows."""
    latest, changed = dict(before.latest), dict(reader.changed())
    for run, rows in sorted(changed.items(), key=lambda of_run: of_run[1][0][0]):
        if run:
            from spotctl.log.event_json import job_of

            latest[job_of(rows)] = _Latest(run)
    last = reader.digests().last
    return _LogNow(latest, last, before.checked, lambda run: changed[run] if run in changed else reader.rows_of(run))


def _view(rows: Sequence[StoredRow], settings: Settings, elsewhere: Collection[str]) -> tuple[RunView, bool]:
    """The view of a run, and whether it follows from the log alone."""
    from spotctl.log.event_json import log_rows
    from spotctl.log.folding import fold
    from spotctl.log.ledger.project import is_settled
    from spotctl.show.runs.reading import RunViews

    state = fold(log_rows(rows))
    is_final = state.ended is not None and ("spent" in state.ended.facts or is_settled(state))
    return RunViews(settings).listed(state, elsewhere), is_final


def _marks(rows: Sequence[StoredRow]) -> tuple[RowsLost, ...]:
    if not rows:
        return ()
    from spotctl.log.event_json import log_rows

    return tuple(cast("RowsLost", row.event) for row in log_rows(rows))
