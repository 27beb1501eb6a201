"""`Draft`: the next state of a store. Its new files are unfinished until its manifest is saved."""

import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path

from pricing_data.atomic_write import move, sync
from pricing_data.fetched_rows import FetchedRows
from pricing_data.market import Market
from pricing_data.series import WatchRecord, joined
from pricing_data.store import manifest as manifests
from pricing_data.store.facts import (
    AVAILABILITY,
    INTERRUPTIONS,
    LIST_PRICES,
    LOST,
    ON_DEMAND,
    TYPES,
    WATCHED,
    F,
    FactTable,
    LostPrices,
    keep_file,
    read_watched,
    write_watched,
)
from pricing_data.store.manifest import Manifest, SegmentEntry
from pricing_data.store.sealed import Origin, copy_rows, name_of
from pricing_data.store.segments import (
    MERGED_ROWS,
    PRICES,
    SegmentFile,
    merge_segments,
    tables_of,
    write_segment,
)
from pricing_data.store.table import NO_ROWS, Novelty, PriceTable, novelty
from pricing_data.units import Span


def rows_of(
    root: Path, manifest: Manifest, names: Collection[str] | None = None, span: Span | None = None
) -> PriceTable:
    """The stored rows of these markets, or of all; with a span, only those in it."""
    tables: list[PriceTable] = []
    for entry in manifest.segments:
        if span is not None and (entry.last < span.start or entry.first > span.end):
            continue
        with SegmentFile(root / entry.name) as segment:
            # Most rows of a large segment may be outside of the span, so they are never held all
            # together.
            parts = (
                [segment.read(names)] if span is None else tables_of([segment], names, MERGED_ROWS)
            )
            tables += parts if span is None else [part.within(span) for part in parts]

    return PriceTable.merged(tables)


def facts_of(
    root: Path, manifest: Manifest, kind: FactTable[F], cloud: str | None = None
) -> list[F]:
    """The stored facts of a kind, optionally of one cloud only."""
    name = manifest.facts.get(kind.name)
    if name:
        return kind.read(root / name, cloud)
    return []


def watched_of(
    root: Path, manifest: Manifest, names: Collection[str] | None = None
) -> dict[Market, WatchRecord]:
    """When these markets were watched, or all."""
    name = manifest.facts.get(WATCHED)
    if name:
        return read_watched(root / name, names)
    return {}


class Draft:
    """The next state of a store: the current one, and what a commit changes. Making one takes the
    write lock.
    """

    def __init__(self, root: Path, before: Manifest) -> None:
        self._root = root
        self.manifest = replace(before, number=before.number + 1)

    def add(self, fetched: FetchedRows, table: PriceTable) -> Novelty:
        """Adds rows; `table` has their prices. Returns how the prices compare with the stored
        ones."""
        covered = [self.manifest.covered, fetched.covered]
        self.manifest = replace(self.manifest, covered=joined(covered))
        stored = NO_ROWS

        if len(table) and self.manifest.segments:
            first = int(table.times.min())
            last = int(table.times.max())
            span = Span(first, last)
            names = {str(market) for market in table.markets}
            stored = rows_of(self._root, self.manifest, names, span)

        news = novelty(table, stored)
        rows = PriceTable.merged([news.fresh, news.higher]) if len(news.higher) else news.fresh
        if len(rows):
            # Readers take the higher of two prices of one time, so that the segment of the lower
            # one stays as it is.
            path = self._unfinished(PRICES)
            fresh_first = int(rows.times.min())
            fresh_last = int(rows.times.max())
            span = Span(fresh_first, fresh_last)
            about = self.manifest.described((), first=span.start, last=span.end)
            write_segment(path, rows, len(news.higher), about)
            entry = self._entry(path, len(rows), span, len(news.higher))
            self.manifest = replace(self.manifest, segments=(*self.manifest.segments, entry))

        self.add_facts(TYPES, fetched.types)
        self.add_facts(ON_DEMAND, fetched.on_demand)
        self.add_facts(LIST_PRICES, fetched.list_prices)
        self.add_facts(INTERRUPTIONS, fetched.interruptions)
        self.add_facts(AVAILABILITY, fetched.availability)

        if fetched.watched:
            known = watched_of(self._root, self.manifest)
            watched = joined([known, fetched.watched])
            if watched != known:
                self.put_table(WATCHED, lambda path, about: write_watched(path, watched, about))

        return news

    def add_facts(
        self, kind: FactTable[F], newer: tuple[F, ...], replaced: Collection[str] = ()
    ) -> None:
        """Adds facts; a newer one replaces a known one with the same key. For `replaced` see
        `put_table`.
        """
        if not newer:
            return
        known = facts_of(self._root, self.manifest, kind)
        facts = kind.merged(known, newer)
        if facts != known:
            self.put_table(
                kind.name, lambda path, about: kind.write(path, facts, about), replaced=replaced
            )

    def set_aside(self, damaged: Collection[SegmentEntry]) -> tuple[LostPrices, ...]:
        """Takes segments out of the store, and notes what is lost with them. Fetches then bring
        again what they can.
        """
        prices_lost = (
            LostPrices(entry.name, entry.rows, entry.first, entry.last) for entry in damaged
        )
        lost = tuple(prices_lost)
        for prices in lost:
            keep_file(self._root, prices.file)
        kept = (entry for entry in self.manifest.segments if entry not in damaged)
        rest = tuple(kept)
        self.manifest = replace(self.manifest, segments=rest, covered={})
        self.add_facts(LOST, lost, replaced={prices.file for prices in lost})

        return lost

    def put_table(
        self,
        kind: str,
        write: Callable[[Path, bytes], None],
        named: str = "",
        replaced: Collection[str] = (),
    ) -> None:
        """Replaces the file of a table, and others that hold nothing any more, by the one that
        `write` makes.
        """
        old = {self.manifest.facts[kind]} if kind in self.manifest.facts else set()
        path = self._unfinished(kind)
        write(path, self.manifest.described(old | set(replaced)))
        finished = self._finished(path, named or kind)
        facts = {**self.manifest.facts, kind: finished}
        self.manifest = replace(self.manifest, facts=facts)

    def compact(self) -> None:
        """Merges segments until each is at least twice as large as all smaller ones together.

        This keeps their number small, and rewrites each row a logarithmic number of times.
        """
        by_size = sorted(self.manifest.segments, key=lambda entry: entry.rows)
        totals = accumulate(entry.rows for entry in by_size)
        pairs = zip(by_size, totals, strict=True)
        crowded = [i for i, (entry, total) in enumerate(pairs) if entry.rows * 3 < total * 2]

        if crowded:
            crowded_entries = by_size[: crowded[-1] + 1]
            self._merge(tuple(crowded_entries))

    def describe_files(self) -> None:
        """Writes files of an earlier version again, as files that describe themselves."""
        for entry in self.manifest.segments:
            if Origin.of(entry.name) is None:
                self._merge((entry,))
        for kind, name in self.manifest.facts.items():
            if Origin.of(name) is None:
                self.put_table(kind, partial(copy_rows, self._root / name))

    def _merge(self, few: tuple[SegmentEntry, ...]) -> None:
        path = self._unfinished(PRICES)
        corrections = sum(entry.corrections for entry in few)
        first = min(entry.first for entry in few)
        last = max(entry.last for entry in few)
        span = Span(first, last)
        merged = {entry.name for entry in few}
        about = self.manifest.described(merged, first=span.start, last=span.end)
        paths = [self._root / entry.name for entry in few]
        rows = merge_segments(path, paths, corrections, about)
        corrections -= sum(entry.rows for entry in few) - rows
        others = (entry for entry in self.manifest.segments if entry not in few)
        rest = tuple(others)
        self.manifest = replace(
            self.manifest, segments=(*rest, self._entry(path, rows, span, corrections))
        )

    def _entry(self, path: Path, rows: int, span: Span, corrections: int) -> SegmentEntry:
        size = path.stat().st_size
        return SegmentEntry(self._finished(path, PRICES), rows, size, *span, corrections)

    def _unfinished(self, kind: str) -> Path:
        return self._root / f"{kind}-{uuid.uuid4().hex}.parquet{manifests.UNFINISHED}"

    def _finished(self, path: Path, kind: str) -> str:
        """The name that a new file gets when the manifest is saved; the file is flushed to disk."""
        sync(path)
        name = name_of(kind, self.manifest.number, path)
        move(path, self._root / (name + manifests.UNFINISHED))
        return name
