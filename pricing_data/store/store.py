"""`PriceStore`: the market data on this machine. One writer at a time, any number of readers."""

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from pricing_data.atomic_write import locked
from pricing_data.catalog import Catalog
from pricing_data.errors import BadInput, StoreError, UnknownPrice
from pricing_data.fetched_rows import FetchedRows
from pricing_data.list_prices import ListPrices
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.store import manifest as manifests
from pricing_data.store.draft import Draft, facts_of, rows_of, watched_of
from pricing_data.store.facts import (
    CORRECTIONS,
    LIST_PRICES,
    ON_DEMAND,
    TYPES,
    F,
    FactTable,
    LostPrices,
)
from pricing_data.store.manifest import Manifest, ManifestLost, damaged
from pricing_data.store.sealed import Origin, read_rows
from pricing_data.store.segments import SegmentFile, market_of, tables_of
from pricing_data.store.table import NO_ROWS, CorrectedPrices, PriceCorrection, PriceTable, in_force
from pricing_data.store.upkeep import Inspection, copy, damaged_segments, inspect, rebuilt
from pricing_data.units import Span, counted, format_time

# A commit only adds a segment, which is fast; with more segments than this, reading gets slow.
_MAX_SEGMENTS = 24

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Committed:
    """Counts of a commit's rows: added, known before, or in conflict with a known price."""

    added: int = 0
    known: int = 0
    conflicts: int = 0

    def __add__(self, other: "Committed") -> "Committed":
        added = self.added + other.added
        known = self.known + other.known
        conflicts = self.conflicts + other.conflicts
        return Committed(added, known, conflicts)


class PriceStore:
    """Price history, instance types, on-demand prices and interruption figures in one folder.

    The first commit creates the folder. `on_wait` is called if another process is writing and this
    one has to wait, `on_repair` with a remark if the store had to be repaired to be read.
    """

    def __init__(
        self,
        root: Path,
        on_wait: Callable[[], None] = lambda: None,
        on_repair: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.root = root
        self._on_wait = on_wait
        self._on_repair = on_repair

    # --- reading: each call sees one consistent state ---

    @property
    def covered(self) -> dict[str, Span]:
        """The complete span of each history."""
        return self._manifest().covered

    def size(self) -> tuple[int, int]:
        """The number of stored price events, and of bytes on disk."""
        manifest = self._manifest()
        rows_of_segments = (entry.rows - entry.corrections for entry in manifest.segments)
        rows = sum(rows_of_segments)
        corrected = self._in_force(manifest).values()
        withdrawn = sum(price is None for prices in corrected for price in prices.values())

        size = 0
        for name in manifest.files:
            with suppress(FileNotFoundError):
                size += (self.root / name).stat().st_size
        return rows - withdrawn, size

    def over_segments(self, read: Callable[[list[Path], CorrectedPrices], R]) -> R:
        """Calls `read` with the Parquet files that contain the prices and the corrections, and
        returns its result.

        If it raises FileNotFoundError because a writer replaced a file, it is called again with the
        current files.
        """
        return self._snapshot(
            lambda manifest: read(
                [self.root / entry.name for entry in manifest.segments], self._in_force(manifest)
            )
        )

    def markets(self) -> list[Market]:
        """Every market with at least one event, in the order of their text."""
        return [market_of(name) for name in self._snapshot(self._names)]

    def corrections(self) -> list[PriceCorrection]:
        """All corrections of prices, also those that later ones replace, oldest first."""
        return sorted(self.facts(CORRECTIONS), key=lambda correction: correction.made)

    def table(self, markets: Iterable[Market] | None = None) -> PriceTable:
        """The history of these markets, or of all markets; a market without history is left out."""
        names = None
        if markets is not None:
            names = {str(market) for market in markets}

        def read(manifest: Manifest) -> PriceTable:
            rows_stored = rows_of(self.root, manifest, names)
            rows = rows_stored.corrected(self._in_force(manifest))
            return replace(rows, watched=watched_of(self.root, manifest, names))

        return self._snapshot(read)

    def each(self, markets: Iterable[Market], compute: Callable[[PriceSeries], R]) -> list[R]:
        """Calls `compute` with the history of each market, few of them in memory at a time, and
        returns the results.
        """
        names = {str(market) for market in markets}

        def read(manifest: Manifest) -> list[R]:
            watched = watched_of(self.root, manifest, names)
            in_force = self._in_force(manifest)
            with ExitStack() as stack:
                segments = []
                for entry in manifest.segments:
                    segment = SegmentFile(self.root / entry.name)
                    segments.append(stack.enter_context(segment))
                tables = (table.corrected(in_force) for table in tables_of(segments, names))
                return [
                    compute(series)
                    for table in tables
                    for series in replace(table, watched=watched)
                ]

        return self._snapshot(read)

    def catalog(self, cloud: str | None = None) -> Catalog:
        """The instance types and list prices that were imported or fetched."""
        lists = ListPrices(tuple(self.facts(LIST_PRICES)))
        types = tuple(self.facts(TYPES, cloud))
        prices = tuple(self.facts(ON_DEMAND, cloud))
        return Catalog(types, prices, lists)

    def derived(self, kind: str, read: Callable[[Path], R]) -> R | None:
        """Calls `read` with the file that `derive` wrote; None without it, or if the store has
        changed since.
        """
        name = self._manifest().derived(kind)
        if name is None:
            return None
        # What follows from other files is not worth an error: the caller computes it again.
        with suppress(FileNotFoundError, StoreError):
            return read(self.root / name)
        return None

    # --- writing: all rows of a commit, or none ---

    def commit(self, fetched: FetchedRows) -> Committed:
        """Adds the rows that are not stored yet.

        When it returns, all of them are durable; if the process dies before, the store is
        unchanged.
        """
        table, contradicted = PriceTable.counted(fetched.prices)
        repeated = len(fetched.prices) - len(table) - contradicted
        done = Committed()

        def change(draft: Draft) -> None:
            nonlocal done
            news = draft.add(fetched, table)
            conflicts = len(news.higher) + news.lower
            done = Committed(len(news.fresh), news.known, conflicts)

        if len(self._change(change).segments) > _MAX_SEGMENTS:
            self.compact()
        return done + Committed(known=repeated, conflicts=contradicted)

    def correct(self, correction: PriceCorrection) -> PriceCorrection:
        """Keeps a correction of a stored price, made at the given moment or just after all others;
        returns it.

        Raises UnknownPrice if no price change of the market is stored at its time.
        """
        kept = correction

        def change(draft: Draft) -> None:
            nonlocal kept
            stored = rows_of(self.root, draft.manifest, {str(correction.market)})
            times = stored.times
            if correction.time not in times:
                raise UnknownPrice(_no_price_at(correction, times))
            corrections = facts_of(self.root, draft.manifest, CORRECTIONS)
            before = [known.made for known in corrections]
            later = (made + 1 for made in before)
            latest = max([correction.made, *later])
            kept = replace(correction, made=latest)
            draft.add_facts(CORRECTIONS, (kept,))

        self._change(change)
        return kept

    def inspect(self) -> Inspection:
        """Reads every file while nothing is written, and says what is wrong."""
        if self.root.exists():
            return self._locked(lambda: inspect(self.root))
        return inspect(self.root)

    def set_aside(self) -> tuple[LostPrices, ...]:
        """Takes damaged and missing segments out of the store, so that the others can be read;
        keeps their files.
        """
        lost: tuple[LostPrices, ...] = ()

        def change(draft: Draft) -> None:
            nonlocal lost
            if damaged := damaged_segments(self.root, draft.manifest):
                lost = draft.set_aside(damaged)

        self._change(change)
        return lost

    def back_up(self, to: Path) -> Inspection:
        """Copies the store to a new folder while nothing is written, and checks the copy."""
        if not manifests.data_files(self.root):
            raise BadInput(f"backup: no prices are stored in {self.root}")
        return self._locked(lambda: copy(self.root, self._saved(), to))

    def compact(self) -> None:
        """Merges small segments, so that reading opens few files. The content stays the same."""
        if len(self._manifest().segments) > 1:
            self._change(Draft.compact)

    def derive(self, kind: str, write: Callable[[Path, bytes], None]) -> None:
        """Lets `write` make a file of figures that follow from the stored rows, unless there is
        such a file.
        """

        def change(draft: Draft) -> None:
            name = draft.manifest.derived(kind)
            if not draft.manifest.segments:
                return

            # A table that can be read stays.
            with suppress(FileNotFoundError, StoreError):
                if name is not None:
                    read_rows(self.root / name)
                    return

            draft.put_table(kind, write, draft.manifest.derived_kind(kind))

        self._change(change)

    # --- internal ---

    def _snapshot(self, read: Callable[[Manifest], R]) -> R:
        """Reads with one manifest, and again with the next one if a writer deleted a file in
        between.
        """
        for _ in range(5):
            try:
                return read(self._manifest())
            except FileNotFoundError as error:
                missing = error
        raise StoreError(_missing(self.root, missing.filename or missing))

    def _manifest(self) -> Manifest:
        """The current manifest, made again from the other files if it is lost."""
        try:
            return manifests.load(self.root)
        except ManifestLost as lost:
            manifest = rebuilt(self.root)
            if not manifest.files:
                raise
            why = str(lost).partition("; ")[0]
            for path in (self.root / entry.name for entry in manifest.segments if not entry.bytes):
                both = (
                    damaged(path, "the list of files is lost, too")
                    if path.exists()
                    else _missing(self.root, path)
                )
                raise StoreError(both) from lost
            files = counted(len(manifest.files), "file")
            self._on_repair(f"{why}; its content was taken from the {files} of the store")
            return manifest

    def _names(self, manifest: Manifest) -> list[str]:
        rows: Counter[str] = Counter()
        for entry in manifest.segments:
            with SegmentFile(self.root / entry.name) as segment:
                rows.update(segment.rows_of)

        in_force = self._in_force(manifest)
        # A market whose every event may be withdrawn needs a look at its rows.
        doubtful = {name for name in in_force if rows[name] and None in in_force[name].values()}
        rest = rows_of(self.root, manifest, doubtful).corrected(in_force) if doubtful else NO_ROWS
        of_rest = {str(market) for market in rest.markets}
        return sorted(rows.keys() - doubtful | of_rest)

    def _in_force(self, manifest: Manifest) -> CorrectedPrices:
        return in_force(facts_of(self.root, manifest, CORRECTIONS))

    def facts(self, kind: FactTable[F], cloud: str | None = None) -> list[F]:
        """The facts of a kind, optionally of one cloud only."""
        return self._snapshot(lambda manifest: facts_of(self.root, manifest, kind, cloud))

    def _change(self, change: Callable[[Draft], None]) -> Manifest:
        """Lets `change` make the next state of the store under the write lock, saves and returns
        it.
        """

        def changed() -> Manifest:
            manifest = self._saved()
            try:
                foreign = (Origin.of(name) is None for name in manifest.files)
                if any(foreign):
                    manifest = self._save(manifest, Draft.describe_files)
                return self._save(manifest, change)
            finally:
                manifests.remove_strays(self.root, manifests.load(self.root))

        return self._locked(changed)

    def _locked(self, act: Callable[[], R]) -> R:
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with locked(self.root / "lock", self._on_wait):
                return act()
        except FileNotFoundError as error:
            raise StoreError(_missing(self.root, error.filename or error)) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                why = "is full; free some space and try again; the stored data is intact"
                raise StoreError(f"price store: the disk under {self.root} {why}") from error
            why = os.strerror(error.errno) if error.errno else str(error)
            raise StoreError(f"price store: cannot write {self.root}: {why}") from error

    def _saved(self) -> Manifest:
        """The current manifest, which is on disk when this returns: a store with files has one from
        its beginning.
        """
        if (self.root / manifests.NAME).exists():
            with suppress(ManifestLost):
                return manifests.load(self.root)

        manifest = self._manifest()
        for name in manifest.files:
            if not (self.root / name).exists():
                raise StoreError(_missing(self.root, self.root / name))

        manifests.save(self.root, manifest)
        return manifest

    def _save(self, before: Manifest, change: Callable[[Draft], None]) -> Manifest:
        draft = Draft(self.root, before)
        change(draft)
        after = draft.manifest
        if after == replace(before, number=after.number):
            return before

        gone = before.files - after.files
        left = {name for name in before.replaced if (self.root / name).exists()}
        strays = (gone | left) - after.files
        after = replace(after, replaced=tuple(sorted(strays)))
        manifests.save(self.root, after)
        return after


def _no_price_at(correction: PriceCorrection, times: Ints) -> str:
    if not times.size:
        return (
            f"no price history of {correction.market} is stored (spotctl lab prices ls lists the "
            "stored markets)"
        )
    after = int(np.searchsorted(times, correction.time))
    around = times[max(after - 1, 0) : after + 1]
    texts = (format_time(int(time)) for time in around)
    near = " and ".join(texts)
    return (
        f"no price change of {correction.market} is stored at {format_time(correction.time)}; the "
        f"nearest: {near}"
    )


def _missing(root: Path, file: object) -> str:
    return (
        f"price store: a file is missing ({file}); restore it from a backup (spotctl lab prices ls "
        f"--check lists all that is missing), or move {root} away and import again"
    )
