"""Prices for other programs: answers to SQL queries with DuckDB, which no other module imports, and
files of price history, as CSV that `prices import` reads, or as Parquet.

A query reads the stored prices and nothing else. Prices are written exactly: nano-dollars are
decimals with nine places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv as arrow_csv

from pricing_data.atomic_write import atomic_write
from pricing_data.errors import BadInput, OverLimit
from pricing_data.interruptible import interruptible, uninterrupted
from pricing_data.market import LINUX, NO_ZONE
from pricing_data.store.segments import SegmentFile
from pricing_data.store.table import CorrectedPrices, PriceTable
from pricing_data.units import SECOND, age

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_VIEW = """
create view prices as
select market,
       split_part(market, '/', 1) as cloud,
       split_part(market, '/', 2) as region,
       split_part(market, '/', 3) as zone,
       split_part(market, '/', 4) as instance_type,
       coalesce(nullif(split_part(market, '/', 5), ''), 'linux') as os,
       make_timestamp(time) as time,
       price / 1e9 as usd_per_hour
from ({rows})
"""
_ROWS = (
    "select market, time * {units.time} as time, price * {units.price} as price from "
    "read_parquet('{path}')"
)
_CORRECTED = """
select * from ({rows}) as stored where not exists (
    select 1 from ({corrections}) as newer
    where newer.market = stored.market and newer.time = stored.time and newer.price > stored.price
)
"""
_REPAIRED = """
select stored.market, stored.time, coalesce(correction.price, stored.price) as price
from ({rows}) as stored
left join (values {corrections}) as correction(market, time, price, withdrawn)
    on correction.market = stored.market and correction.time = stored.time
where not coalesce(correction.withdrawn, false)
"""
_WRITE = "write one select ... from prices"
_NARROW = "ask for less (where, limit, group by)"
_PORTION = 10_000
"""Rows that are fetched before looking whether to stop."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """The most memory and time that a query may use."""

    memory_bytes: int = 10**9
    seconds: float = 300.0

    def too_large(self) -> OverLimit:
        """The error of a query that needs more memory."""
        return OverLimit(
            f"query: it needs more than {self.memory_bytes / 1e9:g} GB of memory; {_NARROW}, or "
            "allow more: --memory"
        )


DEFAULT_LIMITS = QueryLimits()


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The rows of a query, and their column names."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


def query(
    segments: Sequence[Path],
    corrected: CorrectedPrices,
    sql: str,
    limits: QueryLimits = DEFAULT_LIMITS,
) -> QueryResult:
    """Runs SQL on the view `prices`: market, cloud, region, zone, instance_type, os, time (UTC),
    usd_per_hour.
    """
    with uninterrupted():
        import duckdb

    connection = _restricted(segments, limits)
    stopped = Event()

    def stop() -> None:
        stopped.set()
        connection.interrupt()

    def answer() -> QueryResult:
        with connection:
            connection.execute(_VIEW.format(rows=_rows(segments, corrected)))
            return _answer(connection, sql, stopped)

    try:
        return interruptible(answer, stop, limits.seconds)
    except TimeoutError:
        raise OverLimit(
            f"query: not finished after {age(limits.seconds)}; {_NARROW}, or allow more: --timeout"
        ) from None
    except (duckdb.OutOfMemoryException, MemoryError):
        raise limits.too_large() from None
    except duckdb.Error as error:
        # If a writer has replaced a segment, DuckDB reports that like any other error.
        for path in segments:
            if not path.exists():
                raise FileNotFoundError(path) from error
        raise BadInput(f"query: {' '.join(str(error).split())}") from error


def _restricted(segments: Sequence[Path], limits: QueryLimits) -> DuckDBPyConnection:
    """A connection on which a query may read the prices and nothing else: no other file, no
    extension from the network, no variable of this process, and no more memory than allowed, with
    no disk in its place.
    """
    import duckdb

    # A path that may be read may also be written, so the kind of statement is checked as well.
    quoted = []
    for path in segments:
        doubled = str(path).replace("'", "''")
        quoted.append("'" + doubled + "'")
    paths = ", ".join(quoted)
    connection = duckdb.connect()
    for setting in (
        f"memory_limit = '{limits.memory_bytes}B'",
        "temp_directory = ''",
        f"allowed_paths = [{paths}]",
        "enable_external_access = false",
        "python_enable_replacements = false",
        "lock_configuration = true",
    ):
        connection.execute(f"set {setting}")

    return connection


def _answer(connection: DuckDBPyConnection, sql: str, stopped: Event) -> QueryResult:
    from duckdb import StatementType

    # Only a statement that cannot do more than read. EXPLAIN is refused with the others, because
    # EXPLAIN ANALYZE runs what it explains.
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise BadInput(f"query: one statement is expected, not {len(statements)}; {_WRITE}")
    kind = statements[0].type
    if kind == StatementType.MULTI:
        raise BadInput(
            "query: a pivot must list its columns (pivot ... on region in ('us-east-1', "
            "'us-west-2'))"
        )
    if kind != StatementType.SELECT:
        raise BadInput(
            f"query: {kind.name} is not allowed, because prices sql only reads; {_WRITE}"
        )

    result = connection.execute(statements[0])
    columns = tuple(column[0] for column in result.description or ()) if result else ()
    if not columns:
        raise BadInput(f"query: it returns no rows; {_WRITE}")

    repeats = {column for column in columns if columns.count(column) > 1}
    repeated = sorted(repeats)
    if repeated:
        raise BadInput(
            f"query: two columns are named {repeated[0]}; rename one (select a as one, b as other)"
        )

    rows: list[tuple[object, ...]] = []
    while not stopped.is_set() and (portion := result.fetchmany(_PORTION)):
        rows += portion
    return QueryResult(columns, rows)


def _rows(segments: Sequence[Path], corrected: CorrectedPrices) -> str:
    """SQL for the rows of all segments as they were corrected, without those that rows of other
    segments replace.
    """
    parts = []
    replacing = []
    for path in segments:
        with SegmentFile(path) as segment:
            # DuckDB reads the file by itself, and knows nothing of our checksums.
            segment.check_bytes()
            doubled = str(path).replace("'", "''")
            parts.append(_ROWS.format(units=segment.units, path=doubled))
            if segment.corrections:
                replacing.append(parts[-1])

    rows = " union all ".join(parts)
    if replacing:
        rows = _CORRECTED.format(rows=rows, corrections=" union all ".join(replacing))
    values = ", ".join(
        f"('{market}', {time}, {'null::bigint' if price is None else price}, {price is None})"
        for market, prices in corrected.items()
        for time, price in prices.items()
    )

    if values:
        return _REPAIRED.format(rows=rows, corrections=values)
    return rows


SUFFIXES = (".csv", ".csv.gz", ".parquet")


def export(table: PriceTable, path: Path) -> None:
    """Writes histories to a file in the format of its suffix: `.csv`, `.csv.gz` or `.parquet`."""
    if not path.name.endswith(SUFFIXES):
        raise BadInput(f"export to {path}: the name must end with one of {', '.join(SUFFIXES)}")
    with atomic_write(path) as out:
        if path.name.endswith(".parquet"):
            pq.write_table(_spelled_rows(table), out, compression="zstd")
            return
        compression = "gzip" if path.name.endswith(".gz") else None
        with pa.output_stream(str(out), compression=compression) as stream:
            write_csv(table, stream)


def write_csv(table: PriceTable, out: IO[bytes] | pa.NativeFile) -> None:
    options = arrow_csv.WriteOptions(quoting_style="needed", batch_size=1 << 16)
    arrow_csv.write_csv(_spelled_rows(table), out, options)


def objects(table: PriceTable) -> list[dict[str, str | float]]:
    """The rows of the CSV, with prices as numbers."""
    rows = _spelled_rows(table).to_pylist()
    return [{**row, "spot_price": float(row["spot_price"])} for row in rows]


def _spelled_rows(table: PriceTable) -> pa.Table:
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
