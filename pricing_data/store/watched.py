"""The store's table of when markets were watched: one row per market and span, in one Parquet file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pricing_data.errors import StoreError
from pricing_data.market import Market
from pricing_data.observed import WatchRecord
from pricing_data.store.manifest import damaged
from pricing_data.units import Span

NAME = "watched"
_SCHEMA = pa.schema([("market", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("complete", pa.bool_())])


def write(path: Path, watched: Mapping[Market, WatchRecord]) -> None:
    """Writes the table as a new file."""
    rows = [
        (str(market), span.start, span.end, complete)
        for market, one in sorted(watched.items(), key=lambda item: str(item[0]))
        for complete, spans in ((True, one.complete), (False, one.recorded))
        for span in spans
    ]
    columns = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
    pq.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA), path, compression="zstd", write_page_checksum=True)


def read(path: Path, names: Collection[str] | None = None) -> dict[Market, WatchRecord]:
    """The table of a file, optionally of these markets only."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            columns = [column.to_pylist() for column in file.read().columns]
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise StoreError(damaged(path, error)) from error
    spans: dict[str, tuple[list[Span], list[Span]]] = {}
    for name, start, end, complete in zip(*columns, strict=True):
        if names is None or name in names:
            spans.setdefault(name, ([], []))[not complete].append(Span(start, end))
    return {Market.parse(name): WatchRecord(tuple(whole), tuple(parts)) for name, (whole, parts) in spans.items()}
