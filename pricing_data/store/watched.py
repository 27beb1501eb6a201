"""The store's table of when markets were watched: one row per market and span, in one Parquet file."""

from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa

from pricing_data.market import Market
from pricing_data.observed import WatchRecord
from pricing_data.store.parquet import read_rows, write_rows
from pricing_data.units import Span

NAME = "watched"
_SCHEMA = pa.schema([("market", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("complete", pa.bool_())])


def write(path: Path, watched: Mapping[Market, WatchRecord], description: bytes) -> None:
    """Writes the table as a new file."""
    rows = (
        (str(market), span.start, span.end, complete)
        for market, record in sorted(watched.items(), key=lambda item: str(item[0]))
        for complete, spans in ((True, record.complete), (False, record.recorded))
        for span in spans
    )
    write_rows(path, _SCHEMA, rows, description)


def read(path: Path, names: Collection[str] | None = None) -> dict[Market, WatchRecord]:
    """The table of a file, optionally of these markets only."""
    spans: dict[str, tuple[list[Span], list[Span]]] = {}
    for name, start, end, complete in read_rows(path):
        if names is None or name in names:
            spans.setdefault(name, ([], []))[not complete].append(Span(start, end))
    return {Market.parse(name): WatchRecord(tuple(whole), tuple(parts)) for name, (whole, parts) in spans.items()}
