"""Segments: immutable Parquet files of price events.

Rows are sorted by market and time, so that delta encoding compresses the times; the footer says which rows belong to
which market, so that one market's history can be read without the others.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection
from functools import lru_cache
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pricing_data.errors import StoreError
from pricing_data.market import Market
from pricing_data.series import Ints
from pricing_data.store.manifest import damaged
from pricing_data.store.table import NO_ROWS, PriceTable

# Small enough to read one market in a few milliseconds, large enough for dictionary encoding to pay off.
_ROW_GROUP = 1 << 16
_INDEX = b"spotctl.markets"
_SCAN_SHARE = 16
"""Scan all names when more than 1 in this many markets is requested; else search for each."""

market_of = lru_cache(maxsize=1 << 17)(Market.parse)
"""Parses a market's name; cached, because names are read when listing markets and again with their rows."""

_SCHEMA = pa.schema(
    [("market", pa.dictionary(pa.int32(), pa.string())), ("time", pa.int64()), ("price", pa.int64())],
)


def write_segment(path: Path, table: PriceTable) -> None:
    """Writes a table as a new segment file."""
    names = [str(market) for market in table.markets]
    index = {"names": names, "rows": np.diff(table.starts).tolist()}
    codes = pa.array(table.codes().astype(np.int32))
    columns = [pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())), table.times, table.prices]
    rows = pa.Table.from_arrays([pa.array(column) for column in columns], schema=_SCHEMA)
    pq.write_table(
        rows.replace_schema_metadata({_INDEX: json.dumps(index).encode()}),
        path,
        row_group_size=_ROW_GROUP,
        compression="zstd",
        use_dictionary=["market", "price"],
        column_encoding={"time": "DELTA_BINARY_PACKED"},
        write_statistics=["market"],
        write_page_checksum=True,
    )


class SegmentFile:
    """An open segment file."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = pq.ParquetFile(path, page_checksum_verification=True)
            index = json.loads(self._file.schema_arrow.metadata[_INDEX])
        except FileNotFoundError:
            raise
        except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
            raise StoreError(damaged(path, error)) from error
        self._path = path
        self.names: list[str] = index["names"]
        self._starts = [0, *accumulate(index["rows"])]
        self._group = self._file.metadata.row_group(0).num_rows

    def __enter__(self) -> SegmentFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def read(self, names: Collection[str] | None = None) -> PriceTable:
        """The rows of these markets, or of all markets."""
        if names is None:
            return self._table(range(len(self.names)))
        if len(names) * _SCAN_SHARE > len(self.names):
            chosen = frozenset(names)
            return self._table([i for i, name in enumerate(self.names) if name in chosen])
        positions = sorted(i for i in map(self._position, names) if i is not None)
        return self._table(positions)

    def _position(self, name: str) -> int | None:
        at = bisect_left(self.names, name)
        return at if at < len(self.names) and self.names[at] == name else None

    def _table(self, wanted: Collection[int]) -> PriceTable:
        if not wanted:
            return NO_ROWS
        extents = [(self._starts[i], self._starts[i + 1]) for i in wanted]
        times, prices = self._rows(extents)
        lengths = [end - start for start, end in extents]
        return PriceTable(
            tuple(market_of(self.names[i]) for i in wanted),
            np.array([0, *accumulate(lengths)], dtype=np.int64),
            times,
            prices,
        )

    def _rows(self, extents: list[tuple[int, int]]) -> tuple[Ints, Ints]:
        """Times and prices of row ranges; decodes only the row groups that contain them."""
        size = self._group
        groups = sorted({g for start, end in extents for g in range(start // size, (end - 1) // size + 1)})
        try:
            rows = self._file.read_row_groups(groups, columns=["time", "price"])
        except (pa.ArrowException, OSError) as error:
            raise StoreError(damaged(self._path, error)) from error
        skipped = {group: (group - i) * size for i, group in enumerate(groups)}
        ranges = [slice(start - skipped[start // size], end - skipped[start // size]) for start, end in extents]
        return _picked(rows.column("time"), ranges), _picked(rows.column("price"), ranges)


def _picked(column: Any, ranges: list[slice]) -> Ints:  # noqa: ANN401  # pyarrow is untyped
    values: Ints = column.to_numpy()
    if all(one.stop == following.start for one, following in pairwise(ranges)):
        return values[ranges[0].start : ranges[-1].stop].copy()
    return np.concatenate([values[part] for part in ranges])
