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
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute(_VIEW.format(paths=f"[{paths}]"))
        try:
            result = connection.execute(sql)
            return Answer(tuple(column[0] for column in result.description or ()), result.fetchall())
        except duckdb.Error as error:
            raise BadInput(f"query: {' '.join(str(error).split())}") from error
