"""Segments: immutable Parquet files of price events.

Rows are sorted by market and time, so that delta encoding compresses both columns; times and prices
are stored in the largest units that fit all rows (mostly seconds and hundredths of a cent), which
makes the deltas small. The footer says which rows belong to which market, so that one market's
history can be read without the others.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from sys import intern
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pricing_data.errors import StoreError
from pricing_data.market import Market
from pricing_data.series import Ints
from pricing_data.store.manifest import damaged
from pricing_data.store.sealed import BlockSums, seal_of
from pricing_data.store.table import NO_ROWS, PriceTable
from pricing_data.units import SECOND

# Small enough to read one market in a few milliseconds, large enough for dictionary encoding to pay
# off.
_ROW_GROUP = 1 << 16
PRICES = "prices"
"""The kind of these files, with which their names begin."""
_INDEX = b"spotctl.index"
# Segments of an earlier version, whose units are microseconds and nano-dollars.
_OLD_INDEX = b"spotctl.markets"
_SCAN_SHARE = 16
"""Scan all names when more than 1 in this many markets is requested; else search for each."""

market_of = lru_cache(maxsize=1 << 17)(Market.parse)
"""Parses a market's name; cached, because names are read when listing markets and again with their
rows."""

_SCHEMA = pa.schema(
    [
        ("market", pa.dictionary(pa.int32(), pa.string())),
        ("time", pa.int64()),
        ("price", pa.int64()),
    ],
)
_TIME_UNITS = (SECOND, 1)
_PRICE_UNITS = (100_000, 10_000, 1_000, 100, 10, 1)
# How many rows are in memory at once: when reading, and when merging, which holds those that it
# writes, too.
_READ_ROWS = 1 << 19
MERGED_ROWS = 1 << 18


class StoredUnits(NamedTuple):
    """The size of a step of the stored integers, in microseconds and nano-dollars."""

    time: int = 1
    price: int = 1

    @classmethod
    def of(cls, table: PriceTable) -> StoredUnits:
        """The largest units that fit all rows."""
        return cls(_fitting(table.times, _TIME_UNITS), _fitting(table.prices, _PRICE_UNITS))


def _fitting(values: Ints, units: Iterable[int]) -> int:
    fitting = (unit for unit in units if not np.any(values % unit))
    return next(fitting)


class SegmentWriter(AbstractContextManager["SegmentWriter"]):
    """Writes a segment in parts, whose markets must come in order. The file is complete when the
    block ends.

    A segment of a store is described and sealed; files for others are not.
    """

    def __init__(
        self, path: Path, units: StoredUnits, corrections: int = 0, description: bytes | None = None
    ) -> None:
        self._units = units
        self._corrections = corrections
        self._description = description
        self._file = BlockSums(path)
        self._writer = pq.ParquetWriter(
            self._file,
            _SCHEMA,
            compression="zstd",
            use_dictionary=["market"],
            column_encoding={"time": "DELTA_BINARY_PACKED", "price": "DELTA_BINARY_PACKED"},
            write_statistics=["market"],
            write_page_checksum=True,
        )

        self._names: list[str] = []
        self._rows: list[int] = []
        self._pending: list[PriceTable] = []
        self._waiting = 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._file:
            if kind is None:
                self._flush(last=True)
                about = {"names": self._names, "rows": self._rows, **self._units._asdict()}
                about["corrections"] = self._corrections
                # With a checksum, because Parquet has none for its footer.
                index = json.dumps(about).encode()
                checksum = b"%08x" % crc32(index)
                checked = checksum + index
                self._writer.add_key_value_metadata({_INDEX: checked})
                if self._description is not None:
                    self._writer.add_key_value_metadata(self._file.seal(self._description))
            self._writer.close()

    def add(self, table: PriceTable) -> None:
        """Adds the rows of further markets."""
        self._names += map(str, table.markets)
        self._rows += np.diff(table.starts).tolist()
        self._pending.append(table)
        self._waiting += len(table)
        if self._waiting >= _ROW_GROUP:
            self._flush(last=False)

    def note(self, key: bytes, value: bytes) -> None:
        """Adds an entry to the file's metadata."""
        self._writer.add_key_value_metadata({key: value})

    def resolve(self, corrections: int) -> None:
        """Takes note that this many corrections and the rows which they replace are one row now."""
        self._corrections -= corrections

    def _flush(self, *, last: bool) -> None:
        """Writes whole row groups, which must all have the same size, and at the end the rest."""
        names = [str(market) for table in self._pending for market in table.markets]
        if not names:
            return

        numbers = np.arange(len(names))
        lengths = np.concatenate([np.diff(table.starts) for table in self._pending])
        codes = np.repeat(numbers, lengths)
        times = np.concatenate([table.times for table in self._pending])
        prices = np.concatenate([table.prices for table in self._pending])
        end = times.size if last else times.size // _ROW_GROUP * _ROW_GROUP

        for start in range(0, end, _ROW_GROUP):
            part = slice(start, min(start + _ROW_GROUP, end))
            first = int(codes[start])
            final = int(codes[part.stop - 1])
            present_names = names[first : final + 1]
            present = pa.array(present_names, pa.string())
            own_codes = (codes[part] - first).astype(np.int32)
            own_times = times[part] // self._units.time
            own_prices = prices[part] // self._units.price
            columns = [
                pa.DictionaryArray.from_arrays(pa.array(own_codes), present),
                pa.array(own_times),
                pa.array(own_prices),
            ]
            rows = pa.Table.from_arrays(columns, schema=_SCHEMA)
            self._writer.write_table(rows, row_group_size=_ROW_GROUP)

        # Copies, because a part of an array keeps all of it in memory.
        times, prices = (column[end:].copy() for column in (times, prices))
        names_left = names[codes[end] :] if times.size else ()
        kept = tuple(market_of(name) for name in names_left)
        left = (
            np.bincount(codes[end:] - codes[end], minlength=len(kept))
            if kept
            else np.zeros(0, dtype=np.int64)
        )

        starts = np.concatenate(([0], np.cumsum(left)))
        rest = PriceTable(kept, starts.astype(np.int64), times, prices)
        self._pending = [rest] if kept else []
        self._waiting = len(rest)


def _index(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    if _INDEX not in metadata:
        old: dict[str, Any] = json.loads(metadata[_OLD_INDEX])
        return {**old, **StoredUnits()._asdict(), "corrections": 0}
    seal = metadata[_INDEX][:8]
    text = metadata[_INDEX][8:]
    if seal != b"%08x" % crc32(text):
        raise ValueError("the index does not match its checksum")
    index: dict[str, Any] = json.loads(text)
    return index


def write_segment(
    path: Path, table: PriceTable, corrections: int = 0, description: bytes | None = None
) -> None:
    """Writes a table as a new segment file. `corrections` of its rows replace lower prices in other
    segments.
    """
    with SegmentWriter(path, StoredUnits.of(table), corrections, description) as writer:
        writer.add(table)


def merge_segments(
    path: Path, sources: Iterable[Path], corrections: int, description: bytes
) -> int:
    """Writes the rows of several segments as one, a few markets at a time; returns the number of
    rows.

    Of two prices of one market and time, the higher one stays. `corrections` are those of the
    sources.
    """
    with ExitStack() as stack:
        segments = [stack.enter_context(SegmentFile(source)) for source in sources]
        time_units = (s.units.time for s in segments)
        time_unit = min(time_units)
        price_units = (s.units.price for s in segments)
        price_unit = min(price_units)
        units = StoredUnits(time_unit, price_unit)
        before = sum(segment.rows for segment in segments)
        written = 0
        with SegmentWriter(path, units, corrections, description) as writer:
            for table in tables_of(segments, rows=MERGED_ROWS):
                written += len(table)
                writer.add(table)
                del table  # or it stays in memory while the next one is read
            writer.resolve(before - written)
        pa.default_memory_pool().release_unused()
        return written


def tables_of(
    segments: Sequence[SegmentFile], chosen: Collection[str] | None = None, rows: int = _READ_ROWS
) -> Iterator[PriceTable]:
    """The rows of these markets, or of all, a few markets at a time: less memory, and getting
    memory takes longer than filling it."""
    rows_of: Counter[str] = Counter()
    for segment in segments:
        rows_of.update(segment.rows_of)
    portions = list[list[str]]()
    total = rows + 1

    for name in sorted(rows_of if chosen is None else rows_of.keys() & set(chosen)):
        total += rows_of[name]
        if total > rows:
            portions.append([])
            total = rows_of[name]
        portions[-1].append(name)

    for names in portions:
        yield PriceTable.merged(segment.read(names) for segment in segments)


class SegmentFile(AbstractContextManager["SegmentFile"]):
    """An open segment file."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = pq.ParquetFile(path, page_checksum_verification=True)
            metadata: dict[bytes, bytes] = self._file.metadata.metadata
            self._seal = seal_of(path, metadata)
            index = _index(metadata)
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise StoreError(damaged(path, error)) from error

        self._path = path
        # Many segments are open at a time, and most have the same markets.
        interned = map(intern, index["names"])
        self.names: list[str] = list(interned)
        self.notes = {key: value for key, value in metadata.items() if key != _INDEX}
        self.units = StoredUnits(index["time"], index["price"])
        self.corrections: int = index["corrections"]
        self._starts = np.cumsum([0, *index["rows"]], dtype=np.int64)
        self._group = self._file.metadata.row_group(0).num_rows

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self._starts[-1])

    @property
    def rows_of(self) -> dict[str, int]:
        """The number of rows of each market."""
        lengths = np.diff(self._starts)
        counts = zip(self.names, lengths.tolist(), strict=True)
        return dict(counts)

    def check_bytes(self) -> None:
        """Raises StoreError if any byte differs from what was written; a file of an earlier version
        cannot tell.
        """
        if self._seal:
            self._seal.check()

    def check(self) -> None:
        """Raises StoreError if any byte differs from what was written, ValueError if rows are not
        in order.
        """
        self.check_bytes()
        for series in self.read():
            _ = series.first

    def read(self, names: Collection[str] | None = None) -> PriceTable:
        """The rows of these markets, or of all markets."""
        if names is None:
            return self._table(range(len(self.names)))
        if len(names) * _SCAN_SHARE > len(self.names):
            chosen = frozenset(names)
            wanted = [i for i, name in enumerate(self.names) if name in chosen]
            return self._table(wanted)

        positions = []
        for name in names:
            at = bisect_left(self.names, name)
            if at < len(self.names) and self.names[at] == name:
                positions.append(at)

        return self._table(sorted(positions))

    def _table(self, wanted: Collection[int]) -> PriceTable:
        if not wanted:
            return NO_ROWS

        first = np.fromiter(wanted, dtype=np.int64, count=len(wanted))
        starts = self._starts[first].tolist()
        ends = self._starts[first + 1].tolist()
        extents = list(zip(starts, ends, strict=True))
        times, prices = self._rows(extents)
        lengths = [end - start for start, end in extents]

        markets = tuple(market_of(self.names[i]) for i in wanted)
        bounds = np.array([0, *accumulate(lengths)], dtype=np.int64)
        return PriceTable(markets, bounds, times, prices)

    def _rows(self, extents: list[tuple[int, int]]) -> tuple[Ints, Ints]:
        """Times and prices of row ranges; decodes only the row groups that contain them."""
        size = self._group
        numbers = {g for start, end in extents for g in range(start // size, (end - 1) // size + 1)}
        groups = sorted(numbers)

        if self._seal:
            for group in groups:
                # Where the times and prices of the row group begin and end in the file.
                columns = [self._file.metadata.row_group(group).column(i) for i in (1, 2)]
                starts = [
                    column.dictionary_page_offset or column.data_page_offset for column in columns
                ]
                pairs = zip(starts, columns, strict=True)
                ends = [at + column.total_compressed_size for at, column in pairs]
                self._seal.check(min(starts), max(ends))

        try:
            rows = self._file.read_row_groups(groups, columns=["time", "price"])
        except (pa.ArrowException, OSError) as error:
            raise StoreError(damaged(self._path, error)) from error

        skipped = {group: (group - i) * size for i, group in enumerate(groups)}
        ranges = []
        for start, end in extents:
            before = skipped[start // size]
            ranges.append(slice(start - before, end - skipped[start // size]))

        times = _picked(rows.column("time"), ranges, self.units.time)
        prices = _picked(rows.column("price"), ranges, self.units.price)
        return times, prices


# Pyarrow is untyped.
def _picked(column: Any, ranges: list[slice], unit: int) -> Ints:  # noqa: ANN401
    # Not by to_numpy, which loads pandas; and into one array: getting fresh memory takes longer
    # than filling it.
    values = np.empty(len(column), dtype=np.int64)
    at = 0
    for chunk in column.chunks:
        numbers = np.from_dlpack(chunk)
        place = values[at : at + len(chunk)]
        np.multiply(numbers, unit, out=place)
        at += len(chunk)

    follows = (part.stop == following.start for part, following in pairwise(ranges))
    if all(follows):
        last_range = ranges[-1]
        part = values[ranges[0].start : last_range.stop]
        # A part of an array keeps all of it in memory.
        if part.size * 2 > values.size:
            return part
        return part.copy()
    return np.concatenate([values[part] for part in ranges])
