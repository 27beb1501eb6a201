"""`PriceStore`: the market data on this machine. One writer at a time, any number of readers."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

from pricing_data.catalog import Catalog
from pricing_data.errors import StoreError, UnknownMarket
from pricing_data.fetched_rows import FetchedRows, covered_by
from pricing_data.interruptions import Interruption
from pricing_data.list_prices import ListPrices
from pricing_data.market import Market
from pricing_data.observed import WatchRecord, joined
from pricing_data.series import PriceSeries
from pricing_data.store import manifest as manifests, watched as watched_table
from pricing_data.store.facts import INTERRUPTIONS, LIST_PRICES, ON_DEMAND, TYPES, F, FactTable
from pricing_data.store.manifest import Manifest, SegmentEntry
from pricing_data.store.segments import SegmentFile, market_of, merge_segments, tables_of, write_segment
from pricing_data.store.table import NO_ROWS, PriceTable, novelty
from pricing_data.units import Span

# A commit only adds a segment, which is fast; with more segments than this, reading gets slow.
_MAX_SEGMENTS = 24

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Committed:
    """Counts of a commit's rows: added, known before, or in conflict with a known price."""

    added: int = 0
    known: int = 0
    conflicts: int = 0

    def __add__(self, other: Committed) -> Committed:
        return Committed(self.added + other.added, self.known + other.known, self.conflicts + other.conflicts)


class PriceStore:
    """Price history, instance types, on-demand prices and interruption figures in one folder.

    The first commit creates the folder. `on_wait` is called if another process is writing and this one has to wait.
    """

    def __init__(self, root: Path, on_wait: Callable[[], None] = lambda: None) -> None:
        self.root = root
        self._on_wait = on_wait

    # --- reading: each call sees one consistent state ---

    @property
    def covered(self) -> dict[str, Span]:
        """The complete span of each history."""
        return manifests.load(self.root).covered

    def size(self) -> tuple[int, int]:
        """The number of stored price events, and of bytes on disk."""
        manifest = manifests.load(self.root)
        rows = sum(entry.rows - entry.corrections for entry in manifest.segments)
        return rows, sum(_file_size(self.root / name) for name in manifest.files)

    def over_segments(self, read: Callable[[list[Path]], R]) -> R:
        """Calls `read` with the Parquet files that contain the prices, and returns its result.

        If it raises FileNotFoundError because a writer replaced a file, it is called again with the current files.
        """
        return self._snapshot(lambda manifest: read([self.root / entry.name for entry in manifest.segments]))

    def markets(self) -> list[Market]:
        """Every market with at least one event, in the order of their text."""
        return [market_of(name) for name in self._snapshot(self._names)]

    def series(self, market: Market) -> PriceSeries:
        table = self.table([market])
        if not table.markets:
            raise UnknownMarket(f"no price history of {market} is stored (spotctl prices ls lists the stored markets)")
        return next(iter(table))

    def table(self, markets: Iterable[Market] | None = None) -> PriceTable:
        """The history of these markets, or of all markets; a market without history is left out."""
        names = None if markets is None else {str(market) for market in markets}

        def read(manifest: Manifest) -> PriceTable:
            return replace(self._rows(manifest, names), watched=self._watched(manifest, names))

        return self._snapshot(read)

    def each(self, markets: Iterable[Market], compute: Callable[[PriceSeries], R]) -> list[R]:
        """Calls `compute` with the history of each market, few of them in memory at a time, and returns the results."""
        names = {str(market) for market in markets}

        def read(manifest: Manifest) -> list[R]:
            watched = self._watched(manifest, names)
            with ExitStack() as stack:
                segments = [stack.enter_context(SegmentFile(self.root / entry.name)) for entry in manifest.segments]
                tables = tables_of(segments, names)
                return [compute(series) for table in tables for series in replace(table, watched=watched)]

        return self._snapshot(read)

    def catalog(self, cloud: str | None = None) -> Catalog:
        """The instance types and list prices that were imported or fetched."""
        lists = ListPrices(tuple(self._facts(LIST_PRICES, None)))
        return Catalog(tuple(self._facts(TYPES, cloud)), tuple(self._facts(ON_DEMAND, cloud)), lists)

    def interruptions(self, cloud: str | None = None) -> list[Interruption]:
        """The interruption figures that clouds published, optionally of one cloud only."""
        return self._facts(INTERRUPTIONS, cloud)

    def derived(self, kind: str, read: Callable[[Path], R]) -> R | None:
        """Calls `read` with the file that `derive` wrote; None without that file, or if the store has changed since."""

        def current(manifest: Manifest) -> R | None:
            name = manifest.derived_name(kind)
            return read(self.root / name) if manifest.facts.get(kind) == name else None

        return self._snapshot(current)

    # --- writing: all rows of a commit, or none ---

    def commit(self, fetched: FetchedRows) -> Committed:
        """Adds the rows that are not stored yet.

        When it returns, all of them are durable; if the process dies before, the store is unchanged.
        """
        table, contradicted = PriceTable.counted(fetched.prices)
        repeated = len(fetched.prices) - len(table) - contradicted
        done = Committed()

        def change(manifest: Manifest) -> Manifest:
            nonlocal done
            manifest, done = self._with_prices(manifest, table)
            manifest = self._with_facts(manifest, fetched)
            manifest = self._with_watched(manifest, fetched.watched)
            manifest = replace(manifest, covered=covered_by([manifest.covered, fetched.covered]))
            return self._compacted(manifest) if len(manifest.segments) > _MAX_SEGMENTS else manifest

        self._change(change)
        return done + Committed(known=repeated, conflicts=contradicted)

    def compact(self) -> None:
        """Merges small segments, so that reading opens few files. The content stays the same."""
        if len(manifests.load(self.root).segments) > 1:
            self._change(self._compacted)

    def derive(self, kind: str, write: Callable[[Path], None]) -> None:
        """Lets `write` make a file of figures that follow from the stored rows, unless there is such a file."""

        def change(manifest: Manifest) -> Manifest:
            path = self.root / manifest.derived_name(kind)
            if manifest.facts.get(kind) == path.name or not manifest.segments:
                return manifest
            write(path)
            manifests.sync(path)
            return manifest.with_fact(kind, path.name)

        self._change(change)

    # --- internal ---

    def _snapshot(self, read: Callable[[Manifest], R]) -> R:
        """Reads with one manifest, and again with the next one if a writer deleted a file in between."""
        for _ in range(5):
            try:
                return read(manifests.load(self.root))
            except FileNotFoundError as error:
                missing = error
        raise StoreError(_missing(self.root, missing))

    def _names(self, manifest: Manifest) -> list[str]:
        names: set[str] = set()
        for entry in manifest.segments:
            with SegmentFile(self.root / entry.name) as segment:
                names.update(segment.names)
        return sorted(names)

    def _rows(self, manifest: Manifest, names: set[str] | None = None, span: Span | None = None) -> PriceTable:
        tables = []
        for entry in manifest.segments:
            if span is not None and (entry.last < span.start or entry.first > span.end):
                continue
            with SegmentFile(self.root / entry.name) as segment:
                tables.append(segment.read(names))
        return PriceTable.merged(tables)

    def _facts(self, kind: FactTable[F], cloud: str | None) -> list[F]:
        def read(manifest: Manifest) -> list[F]:
            name = manifest.facts.get(kind.name)
            return kind.read(self.root / name, cloud) if name else []

        return self._snapshot(read)

    def _change(self, change: Callable[[Manifest], Manifest]) -> None:
        """Replaces the manifest by the one that `change` returns, under the write lock."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with manifests.exclusively(self.root, self._on_wait):
                before = manifests.load(self.root)
                try:
                    after = change(before)
                    if after != before:
                        manifests.save(self.root, after)
                finally:
                    # Whatever happened, files that the current manifest does not list are useless: those that were
                    # replaced, those of a writer that died, and those of this one if it failed.
                    manifests.remove_strays(self.root, manifests.load(self.root))
        except FileNotFoundError as error:
            raise StoreError(_missing(self.root, error)) from error
        except OSError as error:
            raise StoreError(_os_message(self.root, error)) from error

    def _with_prices(self, manifest: Manifest, table: PriceTable) -> tuple[Manifest, Committed]:
        if not len(table):
            return manifest, Committed()
        span = Span(int(table.times.min()), int(table.times.max()))
        stored = self._rows(manifest, {str(market) for market in table.markets}, span) if manifest.segments else NO_ROWS
        news = novelty(table, stored)
        done = Committed(len(news.fresh), news.known, len(news.higher) + news.lower)
        rows = PriceTable.merged([news.fresh, news.higher]) if len(news.higher) else news.fresh
        if not len(rows):
            return manifest, done
        # Readers take the higher of two prices of one time, so a correction need not rewrite the lower one.
        return replace(manifest, segments=(*manifest.segments, self._write(rows, len(news.higher)))), done

    def _with_facts(self, manifest: Manifest, fetched: FetchedRows) -> Manifest:
        manifest = self._with_fact(manifest, TYPES, fetched.types)
        manifest = self._with_fact(manifest, ON_DEMAND, fetched.on_demand)
        manifest = self._with_fact(manifest, LIST_PRICES, fetched.list_prices)
        return self._with_fact(manifest, INTERRUPTIONS, fetched.interruptions)

    def _with_fact(self, manifest: Manifest, kind: FactTable[F], newer: tuple[F, ...]) -> Manifest:
        if not newer:
            return manifest
        name = manifest.facts.get(kind.name)
        known = kind.read(self.root / name) if name else []
        facts = kind.merged(known, newer)
        if facts == known:
            return manifest
        path = self._new_path(kind.name)
        kind.write(path, facts)
        manifests.sync(path)
        return manifest.with_fact(kind.name, path.name)

    def _watched(self, manifest: Manifest, names: Collection[str] | None = None) -> dict[Market, WatchRecord]:
        name = manifest.facts.get(watched_table.NAME)
        return watched_table.read(self.root / name, names) if name else {}

    def _with_watched(self, manifest: Manifest, newer: Mapping[Market, WatchRecord]) -> Manifest:
        if not newer:
            return manifest
        known = self._watched(manifest)
        watched = joined([known, newer])
        if watched == known:
            return manifest
        path = self._new_path(watched_table.NAME)
        watched_table.write(path, watched)
        manifests.sync(path)
        return manifest.with_fact(watched_table.NAME, path.name)

    def _compacted(self, manifest: Manifest) -> Manifest:
        """Merges segments until each is at least twice as large as all smaller ones together.

        This keeps their number small, and rewrites each row a logarithmic number of times.
        """
        by_size = sorted(manifest.segments, key=lambda entry: entry.rows)
        totals = accumulate(entry.rows for entry in by_size)
        crowded = [
            i for i, (entry, total) in enumerate(zip(by_size, totals, strict=True)) if entry.rows * 3 < total * 2
        ]
        if not crowded:
            return manifest
        few, rest = by_size[: crowded[-1] + 1], by_size[crowded[-1] + 1 :]
        path = self._new_path("prices")
        corrections = sum(entry.corrections for entry in few)
        rows = merge_segments(path, [self.root / entry.name for entry in few], corrections)
        corrections -= sum(entry.rows for entry in few) - rows
        span = Span(min(entry.first for entry in few), max(entry.last for entry in few))
        return replace(manifest, segments=(*rest, self._entry(path, rows, span, corrections)))

    def _write(self, table: PriceTable, corrections: int) -> SegmentEntry:
        path = self._new_path("prices")
        write_segment(path, table, corrections)
        return self._entry(path, len(table), Span(int(table.times.min()), int(table.times.max())), corrections)

    def _entry(self, path: Path, rows: int, span: Span, corrections: int) -> SegmentEntry:
        """The manifest's entry of a segment file, which is flushed to disk."""
        manifests.sync(path)
        return SegmentEntry(path.name, rows, path.stat().st_size, *span, corrections)

    def _new_path(self, kind: str) -> Path:
        return self.root / f"{kind}-{uuid.uuid4().hex}.parquet"


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _missing(root: Path, error: FileNotFoundError) -> str:
    return (
        f"price store: a file is missing ({error.filename or error}); restore it, or move {root} away and import again"
    )


def _os_message(root: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"price store: the disk under {root} is full; free some space and try again; the stored data is intact"
    return f"price store: cannot write {root}: {os.strerror(error.errno) if error.errno else error}"
