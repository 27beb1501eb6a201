"""Exports price history as CSV that `prices import` reads, or as Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from pricing_data.atomic_write import atomic_write
from pricing_data.errors import BadInput
from pricing_data.market import LINUX, NO_ZONE
from pricing_data.store.table import PriceTable
from pricing_data.units import SECOND

SUFFIXES = (".csv", ".csv.gz", ".parquet")


def export(table: PriceTable, path: Path) -> None:
    """Writes histories to a file in the format of its suffix: `.csv`, `.csv.gz` or `.parquet`."""
    if not path.name.endswith(SUFFIXES):
        raise BadInput(f"export to {path}: the name must end with one of {', '.join(SUFFIXES)}")
    with atomic_write(path) as out:
        if path.name.endswith(".parquet"):
            pq.write_table(_rows(table), out, compression="zstd")
            return
        compression = "gzip" if path.name.endswith(".gz") else None
        with pa.output_stream(str(out), compression=compression) as stream:
            write_csv(table, stream)


def write_csv(table: PriceTable, out: IO[bytes] | pa.NativeFile) -> None:
    options = arrow_csv.WriteOptions(quoting_style="needed", batch_size=1 << 16)
    arrow_csv.write_csv(_rows(table), out, options)


def objects(table: PriceTable) -> list[dict[str, str | float]]:
    """The rows of the CSV, with prices as numbers."""
    rows = _rows(table).to_pylist()
    return [{**row, "spot_price": float(row["spot_price"])} for row in rows]


def _rows(table: PriceTable) -> pa.Table:
    clouds = [market.cloud for market in table.markets]
    regions = [market.region for market in table.markets]
    zones = ["" if market.zone == NO_ZONE else market.zone for market in table.markets]
    types = [market.instance_type for market in table.markets]
    products = ["Linux/UNIX" if market.os == LINUX else market.os for market in table.markets]
    names = {
        "cloud": clouds,
        "region": regions,
        "zone": zones,
        "instance_type": types,
        "product": products,
    }

    codes = table.codes()
    spelled = {
        name: pa.array(values, pa.string()).take(pa.array(codes)) for name, values in names.items()
    }

    # Fractions of a second only if any time has some.
    has_fractions = np.any(table.times % SECOND)
    times = (
        pa.array(table.times).cast(pa.timestamp("us"))
        if has_fractions
        else pa.array(table.times // SECOND)
    )

    spelled_times = times if has_fractions else times.cast(pa.timestamp("s"))
    timestamps = pc.strftime(spelled_times, format="%Y-%m-%dT%H:%M:%SZ")

    # In dollars, exact and without trailing zeros: nano-dollars are decimals with nine places.
    words = np.zeros((table.prices.size, 2), dtype="<i8")
    words[:, 0] = table.prices
    nine_decimals = pa.decimal128(19, 9)
    buffer = pa.py_buffer(words.tobytes())
    decimals = pa.Array.from_buffers(nine_decimals, len(words), [None, buffer])
    texts = decimals.cast(pa.string())
    without_zeros = pc.utf8_rtrim(texts, characters="0")
    dollars = pc.utf8_rtrim(without_zeros, characters=".")

    return pa.table({"timestamp": timestamps, **spelled, "spot_price": dollars})
