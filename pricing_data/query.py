"""SQL over the stored prices: DuckDB in front of the segments. The only door to DuckDB."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pricing_data.errors import BadInput

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
from read_parquet({paths})
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows that a query gave, under their column names."""

    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


def query(segments: Sequence[Path], sql: str) -> Answer:
    """Runs SQL over the view `prices`: market, cloud, region, zone, instance_type, os, time (UTC), usd_per_hour."""
    import duckdb

    paths = ", ".join("'" + str(path).replace("'", "''") + "'" for path in segments)
    with duckdb.connect() as connection:
        # A query reads the prices and touches nothing else: no other file, no extension from the network.
        connection.execute(f"set allowed_paths = [{paths}]")
        connection.execute("set enable_external_access = false")
        try:
            connection.execute(_VIEW.format(paths=f"[{paths}]"))
            result = connection.execute(sql)
            columns = tuple(column[0] for column in result.description or ()) if result else ()
            rows = result.fetchall() if columns else []
        except duckdb.Error as error:
            _raise_if_missing(segments)
            raise BadInput(f"query: {' '.join(str(error).split())}") from error
    repeated = sorted({column for column in columns if columns.count(column) > 1})
    if repeated:
        raise BadInput(f"query: two columns are named {repeated[0]}; name them apart (select a as one, b as other)")
    if not columns:
        raise BadInput("query: gives no rows (write select ... from prices)")
    return Answer(columns, rows)


def _raise_if_missing(segments: Sequence[Path]) -> None:
    """A writer may have replaced a segment since its name was read; DuckDB reports that like any other failure."""
    for path in segments:
        if not path.exists():
            raise FileNotFoundError(path)
