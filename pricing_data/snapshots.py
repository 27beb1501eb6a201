"""Snapshots: one cloud's prices of one day in one file, to be shared on any web server or bucket.

A snapshot has the day's changes, the prices in force at its start, and when each market was watched
on that day. Importing it twice changes nothing, and days that were not shared stay unobserved. The
rules of the server or bucket say who may write there: signatures that earlier versions wrote are
not checked.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pricing_data.atomic_write import atomic_write
from pricing_data.errors import BadInput, StoreError
from pricing_data.market import Market
from pricing_data.series import WatchRecord, clipped, of_events
from pricing_data.store.segments import SegmentFile, SegmentWriter, StoredUnits
from pricing_data.store.table import NO_ROWS, PriceTable
from pricing_data.units import (
    DAY,
    EARLIEST,
    MAX_USD_PER_HOUR,
    NANOS_PER_DOLLAR,
    Span,
    format_time,
    parse_time,
)

_NOTE = b"spotctl.snapshot"
_MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class PriceSnapshot:
    """One cloud's prices of one day. `is_signed` means that an earlier version wrote it, with a
    signature.
    """

    cloud: str
    day: str
    table: PriceTable
    is_signed: bool = False

    @property
    def span(self) -> Span:
        start = parse_time(self.day)
        return Span(start, start + DAY)


def take(table: PriceTable, cloud: str, day: str) -> PriceSnapshot:
    """The part of a table that was observed on a day: only markets of the cloud that were watched
    on it.
    """
    try:
        span = PriceSnapshot(cloud, day, NO_ROWS).span
    except BadInput:
        raise BadInput(f"day {day!r} is not a date (write 2026-01-31)") from None

    rows: list[PriceTable] = []
    starts = table.starts[:-1]
    ends = table.starts[1:]
    for market, start, end in zip(table.markets, starts, ends, strict=True):
        times = table.times[start:end]
        prices = table.prices[start:end]
        if market.cloud != cloud or times[0] >= span.end:
            continue
        record = table.watched.get(market)
        seen = of_events(market, times, record)
        observed = clipped(seen, span.start, span.end)
        parts = (part for part in observed if part.end > part.start or part.start < span.end)
        watched = tuple(parts)
        if watched:
            after = int(np.searchsorted(times, watched[0].start, side="right"))
            first = max(after - 1, 0)
            last = int(np.searchsorted(times, span.end, side="left"))
            bounds = np.array([0, last - first], dtype=np.int64)
            records = {market: WatchRecord(complete=watched)}
            row = PriceTable((market,), bounds, times[first:last], prices[first:last], records)
            rows.append(row)

    return PriceSnapshot(cloud, day, PriceTable.merged(rows))


def write(snapshot: PriceSnapshot, folder: Path) -> Path:
    """Writes a snapshot as `CLOUD-DAY.parquet`; the same prices give the same file."""
    path = folder / f"{snapshot.cloud}-{snapshot.day}.parquet"
    table = snapshot.table
    if not table.markets:
        raise BadInput(f"snapshot: no prices of {snapshot.cloud} were recorded on {snapshot.day}")

    watched = [list(map(list, table.watched[market].complete)) for market in table.markets]
    note = {"cloud": snapshot.cloud, "day": snapshot.day, "watched": watched}

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"cannot create folder {folder}: {error.strerror}") from error

    with atomic_write(path) as out, SegmentWriter(out, StoredUnits.of(table)) as writer:
        writer.add(table)
        writer.note(_NOTE, json.dumps(note).encode())

    return path


def read(path: Path) -> PriceSnapshot:
    """The snapshot in a file, if a store may believe it."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise BadInput("is too large to be a snapshot")
        with SegmentFile(path) as file:
            return _checked(json.loads(file.notes[_NOTE]), file.read())
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror or error}") from error
    except (StoreError, KeyError, TypeError, ValueError, IndexError) as error:
        # The cure for a damaged store is none for a file from elsewhere.
        cause = error.__cause__ or error
        words = " ".join(str(cause).split())
        why = words[:200]
        raise BadInput(f"is not a snapshot ({why})") from error


def _checked(note: dict[str, Any], table: PriceTable) -> PriceSnapshot:
    """BadInput: the file has what no snapshot of this day and cloud can have."""
    spans = [tuple(Span(*map(int, span)) for span in spans) for spans in note["watched"]]
    pairs = zip(table.markets, spans, strict=True)
    watched = {market: WatchRecord(complete=whole) for market, whole in pairs}
    watched_table = replace(table, watched=watched)
    snapshot = PriceSnapshot(note["cloud"], note["day"], watched_table, "signature" in note)
    day = snapshot.span
    for market in table.markets:
        Market.of_row(market.cloud, market.region, market.zone, market.instance_type, market.os)
    outside = [
        span
        for whole in spans
        for span in whole
        if not day.start <= span.start <= span.end <= day.end
    ]

    if outside or any(market.cloud != snapshot.cloud for market in table.markets):
        raise BadInput(
            f"has rows or spans of another day or cloud than {snapshot.cloud} {snapshot.day}"
        )

    histories = list(table)  # each checks that its times increase and its prices are above 0
    if any(series.first < EARLIEST or series.last >= day.end for series in histories):
        raise BadInput(
            f"has prices after {format_time(day.end)}, or before there were spot markets"
        )
    if int(table.prices.max()) > MAX_USD_PER_HOUR * NANOS_PER_DOLLAR:
        raise BadInput(f"has a price above {MAX_USD_PER_HOUR} US dollars per hour")

    return snapshot
