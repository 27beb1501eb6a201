"""Exports price history as CSV that `prices import` reads, or as Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from pricing_data.atomic_write import atomic_write
from pricing_data.catalog import Catalog
from pricing_data.errors import BadInput
from pricing_data.market import LINUX, NO_ZONE, Market
from pricing_data.stats import MarketStats
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, SECOND, to_datetime, to_usd

if TYPE_CHECKING:
    import pandas as pd


SUFFIXES = (".csv", ".csv.gz", ".parquet")


def export(table: PriceTable, path: Path) -> None:
    """Writes histories to a file in the format of its suffix: `.csv`, `.csv.gz` or `.parquet`."""
    if not path.name.endswith(SUFFIXES):
        raise BadInput(f"export to {path}: the name must end with one of {', '.join(SUFFIXES)}")
    with atomic_write(path) as out:
        if path.name.endswith(".parquet"):
            pq.write_table(_rows(table), out, compression="zstd")
            return
        with pa.output_stream(str(out), compression="gzip" if path.name.endswith(".gz") else None) as stream:
            write_csv(table, stream)


def write_csv(table: PriceTable, out: IO[bytes] | pa.NativeFile) -> None:
    options = arrow_csv.WriteOptions(quoting_style="needed", batch_size=1 << 16)
    arrow_csv.write_csv(_rows(table), out, options)


def objects(table: PriceTable) -> list[dict[str, str | float]]:
    """The rows of the CSV, with prices as numbers."""
    return [{**row, "spot_price": float(row["spot_price"])} for row in _rows(table).to_pylist()]


def _rows(table: PriceTable) -> pa.Table:
    names = {
        "cloud": [market.cloud for market in table.markets],
        "region": [market.region for market in table.markets],
        "zone": ["" if market.zone == NO_ZONE else market.zone for market in table.markets],
        "instance_type": [market.instance_type for market in table.markets],
        "product": ["Linux/UNIX" if market.os == LINUX else market.os for market in table.markets],
    }
    codes = table.codes()
    spelled = {name: pa.array(values, pa.string()).take(pa.array(codes)) for name, values in names.items()}
    # Fractions of a second only if any time has some.
    has_fractions = np.any(table.times % SECOND)
    times = pa.array(table.times).cast(pa.timestamp("us")) if has_fractions else pa.array(table.times // SECOND)
    timestamps = pc.strftime(times if has_fractions else times.cast(pa.timestamp("s")), format="%Y-%m-%dT%H:%M:%SZ")

    # In dollars, exact and without trailing zeros: nano-dollars are decimals with nine places.
    words = np.zeros((table.prices.size, 2), dtype="<i8")
    words[:, 0] = table.prices
    decimals = pa.Array.from_buffers(pa.decimal128(19, 9), len(words), [None, pa.py_buffer(words.tobytes())])
    dollars = pc.utf8_rtrim(pc.utf8_rtrim(decimals.cast(pa.string()), characters="0"), characters=".")
    return pa.table({"timestamp": timestamps, **spelled, "spot_price": dollars})


_PRICE_COLUMNS = {
    "market": "string",
    "cloud": "string",
    "region": "string",
    "zone": "string",
    "instance_type": "string",
    "os": "string",
    "vcpus": "Int64",
    "memory_gib": "float64",
    "gpu": "string",
    "gpus": "Int64",
    "price_now": "float64",
    "mean": "float64",
    "median": "float64",
    "lowest": "float64",
    "highest": "float64",
    "on_demand": "float64",
    "on_demand_as_of": "datetime64[us, UTC]",
    "discount": "float64",
    "hours_above_on_demand": "float64",
    "changes_per_day": "float64",
    "spikes_per_day": "float64",
    "events": "int64",
    "outliers": "int64",
    "first": "datetime64[us, UTC]",
    "last": "datetime64[us, UTC]",
    "coverage": "float64",
    "observed_hours": "float64",
    "synthetic": "bool",
}


def history_frame(table: PriceTable) -> pd.DataFrame:
    """Price histories, a row for each price change, sorted by market and time.

    The columns are those of `prices sql`: market, cloud, region, zone, instance_type, os, time, usd_per_hour. A price
    holds until the market's next row.
    """
    import pandas as pd

    codes = table.codes()
    names = _name_columns(table.markets)
    times = pd.DatetimeIndex(table.times.view("datetime64[us]")).tz_localize("UTC")
    return pd.DataFrame(
        {
            **{column: pd.array(values, dtype="string").take(codes) for column, values in names.items()},
            "time": times,
            "usd_per_hour": table.prices / NANOS_PER_DOLLAR,
        }
    )


def prices_frame(statistics: Iterable[MarketStats], catalog: Catalog) -> pd.DataFrame:
    """Prices, statistics and machines, a row for each market.

    The columns have the names and meanings of `prices ls --stats --json`, besides the parts of a market's name and the
    hardware of its machine. Figures that are not known (no on-demand price, an instance type that the catalog does not
    describe) are missing values.
    """
    import pandas as pd

    rows = []
    for stats in statistics:
        row: dict[str, object] = {column: name for column, [name] in _name_columns([stats.market]).items()}
        if catalog.knows(stats.market.cloud, stats.market.instance_type):
            machine = catalog.instance_type(stats.market.cloud, stats.market.instance_type)
            row |= {"vcpus": machine.vcpus, "memory_gib": machine.memory_gib}
            row |= {"gpu": machine.accelerator, "gpus": machine.accelerators}
        if stats.on_demand:
            row |= {"on_demand": to_usd(stats.on_demand.price), "on_demand_as_of": to_datetime(stats.on_demand.as_of)}
        row |= {
            "price_now": to_usd(stats.price_now),
            "mean": to_usd(stats.mean),
            "median": to_usd(stats.median),
            "lowest": to_usd(stats.lowest),
            "highest": to_usd(stats.highest),
            "discount": stats.discount,
            "first": to_datetime(stats.first),
            "last": to_datetime(stats.last),
            "events": stats.events,
            "outliers": stats.outliers,
            "changes_per_day": stats.changes_per_day,
            "spikes_per_day": stats.spikes_per_day,
            "hours_above_on_demand": stats.hours_above_on_demand,
            "coverage": stats.coverage,
            "observed_hours": stats.observed / HOUR,
            "synthetic": stats.market.is_synthetic,
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=list(_PRICE_COLUMNS)).astype(_PRICE_COLUMNS)


def _name_columns(markets: Sequence[Market]) -> dict[str, list[str]]:
    return {
        "market": [str(market) for market in markets],
        "cloud": [market.cloud for market in markets],
        "region": [market.region for market in markets],
        "zone": [market.zone for market in markets],
        "instance_type": [market.instance_type for market in markets],
        "os": [market.os for market in markets],
    }
