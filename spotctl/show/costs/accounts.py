"""Accounts: each run with its timeline and its costs. Those of ended runs are kept in a file next to the log.

A kept account saves reading the events again, and its rows are decoded only where they are needed: most reports need
their sums. It is used only if the run's events, and the code that reads them, are unchanged. So a correction, a
repaired log or another version replaces the account, and the file can be deleted at any time.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, cast, overload

import msgspec

from pricing_data.market import Market
from spotctl.home.config import Settings
from spotctl.home.paths import Paths
from spotctl.log import store
from spotctl.log.kept_file import keep, read_kept
from spotctl.log.ledger.rows import ChargeKind, LedgerRow, Use
from spotctl.log.log_reader import LogDigests, LogReader, OtherRows
from spotctl.log.log_row import StoredRow
from spotctl.show.costs.cost import RunPart
from spotctl.show.costs.figures import Sums
from spotctl.show.costs.run_timeline import RunTimeline

if TYPE_CHECKING:
    from spotctl.log.events import RowsLost
    from spotctl.log.ledger_reader import RunRead


@dataclass(frozen=True, slots=True)
class Accounts:
    """Runs with their costs, and what repairs of the log have dropped that may be of any run."""

    runs: Sequence[RunPart] = ()
    lost: "tuple[RowsLost, ...]" = ()


def accounts(settings: Settings, jobs: Collection[str] = (), elsewhere: Collection[str] = ()) -> Accounts:
    """The runs of some jobs, or of all; active runs up to now. To those `elsewhere`, another computer attends."""
    paths = Paths(settings.home)
    if not store.exists(paths.log):
        return Accounts()
    with store.EventLog(paths.log) as log, log.snapshot():
        before = read_kept(paths.costs, _Kept)
        try:
            read = _read(log, before or _Kept(), settings, jobs, elsewhere)
        except OtherRows:
            if before is None:
                raise
            read = _read(log, replace(before, digests=LogDigests()), settings, jobs, elsewhere)
    is_elsewhere = before is not None and before.digests.place != read.digests.place
    if len(read.final) > read.kept or is_elsewhere:
        keep(paths.costs, _Kept(read.digests, {digest: _stored(part) for digest, part in read.final.items()}))
    return Accounts([part for part in read.parts if not jobs or part.run.job in jobs], read.lost)


@dataclass(frozen=True, slots=True)
class _AccountsRead:
    """The accounts of runs, those that are final by the digests of their events, and how many of these were kept."""

    parts: Sequence[RunPart]
    lost: "tuple[RowsLost, ...]"
    digests: LogDigests
    final: Mapping[str, RunPart]
    kept: int


def _read(
    log: store.EventLog, before: "_Kept", settings: Settings, jobs: Collection[str], elsewhere: Collection[str]
) -> _AccountsRead:
    reader = LogReader(log, before.digests)
    made = _from_events(_unknown(reader, before.runs, jobs), settings, elsewhere)
    digests = reader.digests()
    known = [digest for run, digest in digests.of_run.items() if digest in before.runs]
    final = {digest: _part(before.runs[digest]) for digest in known}
    parts = [*final.values(), *(part for part, _ in made)]
    final |= {digests.of_run[part.run.run]: part for part, is_final in made if is_final}
    return _AccountsRead(parts, _lost(reader), digests, final, len(known))


def _unknown(reader: LogReader, kept: Collection[str], jobs: Collection[str]) -> Iterator[Sequence[StoredRow]]:
    """The rows of each run of some jobs, or of all, without those whose accounts are kept."""
    changed = set[str]()
    for run, rows in reader.changed():
        changed.add(run)
        if run and reader.digest(run) not in kept and _is_wanted(rows, jobs):
            yield rows
    for run, digest in reader.digests().of_run.items():
        if run and run not in changed and digest not in kept and _is_wanted(rows := reader.rows_of(run), jobs):
            yield rows


def _is_wanted(rows: Sequence[StoredRow], jobs: Collection[str]) -> bool:
    from spotctl.log.event_json import job_of

    job = job_of(rows)
    return not jobs or job in jobs


def _lost(reader: LogReader) -> "tuple[RowsLost, ...]":
    if "" not in reader.digests().of_run:
        return ()
    from spotctl.log.event_json import log_rows

    return tuple(cast("RowsLost", row.event) for row in log_rows(reader.rows_of("")))


def _from_events(
    unknown: Iterator[Sequence[StoredRow]], settings: Settings, elsewhere: Collection[str]
) -> list[tuple[RunPart, bool]]:
    """The accounts of runs with these rows, and whether they follow from the log alone."""
    first = next(unknown, None)
    if first is None:
        # The import takes longer than a whole report on accounts that are kept.
        return []
    from spotctl.log.ledger_reader import read_from

    runs = read_from(chain([first], unknown), settings, elsewhere)
    return [(RunPart.whole(_timeline(run), run.ledger.rows), run.ledger.is_settled) for run in runs]


def _timeline(run: "RunRead") -> RunTimeline:
    from spotctl.show.costs.run_timeline import timeline_of

    return replace(timeline_of(run.events, run.state), is_least=run.ledger.is_least)


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Columns:
    """Rows by columns; a row names the position of its market, because most rows have the same few markets."""

    markets: list[Market]
    columns: dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class _KeptRows(Sequence[LedgerRow]):
    """Rows that are decoded each time they are read."""

    length: int
    content: msgspec.Raw

    def __iter__(self) -> Iterator[LedgerRow]:
        return _rows(msgspec.json.decode(self.content, type=_Columns))

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> LedgerRow: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[LedgerRow]: ...

    def __getitem__(self, index: int | slice) -> LedgerRow | Sequence[LedgerRow]:
        return tuple(self)[index]


@dataclass(frozen=True, slots=True)
class _Stored:
    """An account; its rows stay encoded."""

    timeline: RunTimeline
    sums: Sums
    length: int
    rows: msgspec.Raw


@dataclass(frozen=True, slots=True)
class _Kept:
    """The accounts of ended runs by the digests of their events, and the digests of all runs."""

    digests: LogDigests = field(default_factory=LogDigests)
    runs: dict[str, _Stored] = field(default_factory=dict)


def _part(stored: _Stored) -> RunPart:
    return RunPart(stored.timeline, _KeptRows(stored.length, stored.rows), stored.sums)


def _stored(part: RunPart) -> _Stored:
    rows = part.rows
    content = rows.content if isinstance(rows, _KeptRows) else msgspec.Raw(msgspec.json.encode(_columns(rows)))
    return _Stored(part.run, part.sums, len(rows), content)


def _columns(rows: Sequence[LedgerRow]) -> _Columns:
    columns = dict(zip(LedgerRow._fields, map(list, zip(*rows, strict=True)), strict=False))
    markets = list(dict.fromkeys(row.market for row in rows))
    number = {market: i for i, market in enumerate(markets)}
    return _Columns(markets, columns | {"market": [number[row.market] for row in rows]})


_KINDS, _USES = {kind.value: kind for kind in ChargeKind}, {use.value: use for use in Use}


def _rows(stored: _Columns) -> Iterator[LedgerRow]:
    columns: dict[str, Any] = dict(stored.columns)
    for name, values in (("market", stored.markets), ("kind", _KINDS), ("use", _USES)):
        columns[name] = [values[key] for key in columns.get(name, ())]
    return map(LedgerRow, *(columns.get(name, ()) for name in LedgerRow._fields))
