"""Imports files into the store, batch by batch, and counts every row."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pricing_data.errors import BadInput, StoreError
from pricing_data.fetched_rows import FetchedRows
from pricing_data.observed import Recording
from pricing_data.sources.files import BadRow, FileBatch, read
from pricing_data.store import Committed, PriceStore
from pricing_data.units import DAY, counted

# All bad rows are counted; each is named, up to a number that still fits into memory.
MOST_NAMED = 100_000


@dataclass(slots=True)
class FileReport:
    """Counts of a file's rows: used, skipped, bad. `failure` says why the file was rejected, or not read to its end.

    `broken` is the store's error; what was committed before it is kept and counted.
    """

    path: Path
    layout: str = ""
    rows: int = 0
    committed: Committed = field(default_factory=Committed)
    facts: int = 0
    skipped: int = 0
    bad: list[BadRow] = field(default_factory=list)
    unused: tuple[str, ...] = ()
    failure: str | None = None
    broken: StoreError | None = None

    @property
    def usable(self) -> int:
        """The number of rows that were used, even if the store knew them already."""
        done = self.committed
        return done.added + done.known + done.conflicts + self.facts

    def count(self, batch: FileBatch) -> None:
        self.layout = batch.layout
        self.rows += batch.rows
        self.skipped += len(batch.bad)
        self.bad += batch.bad[: MOST_NAMED - len(self.bad)]
        self.unused = batch.unused


def ingest(
    store: PriceStore,
    path: Path,
    *,
    strict: bool = False,
    layout: str | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> FileReport:
    """Imports a file into the store. Bad rows are counted and skipped; `strict` rejects a file that has any.

    Each batch is committed by itself: a long import that is killed keeps what it committed, and running it again adds
    the rest. A strict import is committed whole or not at all. `layout` is the kind of table the file must contain.
    """
    report = FileReport(path)
    waiting: list[FetchedRows] = []
    recording = Recording()
    try:
        for batch in _of_layout(read(path, time.time_ns() // 1000 + DAY), layout):
            report.count(batch)
            recording.add(batch.fetched.prices.markets, batch.fetched.prices.codes, batch.fetched.prices.times)
            if strict:
                waiting.append(batch.fetched)
            else:
                _commit(store, batch.fetched, report)
            on_progress(batch.position)
    except BadInput as error:
        report.failure = str(error)
    except StoreError as error:
        report.broken = error
    waiting.append(FetchedRows(watched=recording.watched()))
    if strict and report.failure is None and report.skipped:
        report.failure = f"was rejected: {counted(report.skipped, 'bad row')}, the first in {report.bad[0]}"
    if report.broken is None and not (strict and report.failure):
        try:
            _commit(store, FetchedRows.joined(waiting), report)
        except StoreError as error:
            report.broken = error
    if report.failure is None and report.broken is None and not report.usable:
        bad = counted(report.skipped, "bad row")
        report.failure = f"no row was imported: {bad}" if report.rows else "contains no rows"
    return report


def _of_layout(batches: Iterator[FileBatch], layout: str | None) -> Iterator[FileBatch]:
    for batch in batches:
        if layout is not None and batch.layout != layout:
            raise BadInput(f"contains {batch.layout}, not {layout}")
        yield batch


def _commit(store: PriceStore, fetched: FetchedRows, report: FileReport) -> None:
    if len(fetched) or fetched.watched:
        report.committed += store.commit(fetched)
    report.facts += len(fetched) - len(fetched.prices)
