"""Ingest: files into the store, portion by portion, with an account of every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pricing_data.errors import BadInput, StoreError
from pricing_data.fetched_rows import FetchedRows
from pricing_data.sources.files import BadRow, Portion, read
from pricing_data.store import Committed, PriceStore

# All bad rows are counted; this many are named, which is enough to see the pattern.
NAMED_BAD_ROWS = 20


@dataclass(slots=True)
class FileReport:
    """What became of a file's rows. `failure` says why the file as a whole was refused or broke off.

    `broken` is what the store could not do; what was committed before is kept and counted.
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

    def count(self, portion: Portion) -> None:
        """Takes a portion into the account."""
        self.layout = portion.layout
        self.rows += portion.rows
        self.skipped += len(portion.bad)
        self.bad += portion.bad[: NAMED_BAD_ROWS - len(self.bad)]
        self.unused = portion.unused


def ingest(
    store: PriceStore,
    path: Path,
    *,
    strict: bool = False,
    layout: str | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> FileReport:
    """Brings a file into the store. Bad rows are counted and skipped; `strict` refuses a file that has any.

    Each portion is committed by itself, so that a long import that is killed keeps what it had, and done again adds
    the rest. A strict one is committed whole or not at all. `layout` is the kind of table the file has to be.
    """
    report = FileReport(path)
    held: list[FetchedRows] = []
    try:
        for portion in _of_layout(read(path), layout):
            report.count(portion)
            if strict:
                held.append(portion.harvest)
            else:
                _commit(store, portion.harvest, report)
            on_progress(portion.position)
    except BadInput as error:
        report.failure = str(error)
    except StoreError as error:
        report.broken = error
    if strict and report.failure is None and report.skipped:
        report.failure = f"was refused: {report.skipped} bad rows, the first in {report.bad[0]}"
    if strict and report.failure is None and report.broken is None:
        try:
            _commit(store, FetchedRows.joined(held), report)
        except StoreError as error:
            report.broken = error
    return report


def _of_layout(portions: Iterator[Portion], layout: str | None) -> Iterator[Portion]:
    for portion in portions:
        if layout is not None and portion.layout != layout:
            raise BadInput(f"holds {portion.layout}, not {layout}")
        yield portion


def _commit(store: PriceStore, harvest: FetchedRows, report: FileReport) -> None:
    report.committed += store.commit(harvest)
    report.facts += len(harvest) - len(harvest.prices)
