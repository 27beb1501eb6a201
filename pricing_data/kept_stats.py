"""Statistics that are stored next to the prices, so that showing statistics need not read every price."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path

import pyarrow as pa

from pricing_data.catalog import Catalog
from pricing_data.errors import StoreError
from pricing_data.market import Market
from pricing_data.stats import MarketStats, describe, on_demand_of
from pricing_data.store import PriceStore
from pricing_data.store.parquet import read_rows, write_rows
from pricing_data.store.segments import market_of

_KIND = "stats"
"""Changes when the definition of a figure does, so that files of the old kind are not read any more."""
_TYPES: dict[object, pa.DataType] = {float: pa.float64(), float | None: pa.float64(), int: pa.int64()}
_COLUMNS = [field.name for field in fields(MarketStats) if field.name not in ("market", "on_demand")]
_SCHEMA = pa.schema(
    [
        ("market", pa.string()),
        ("on_demand", pa.int64()),
        *((field.name, _TYPES[field.type]) for field in fields(MarketStats) if field.name in _COLUMNS),
    ]
)
_figures = attrgetter(*_COLUMNS)


def keep(store: PriceStore, catalog: Catalog) -> None:
    """Stores the statistics of all markets. If that fails, on a full disk, statistics are computed when needed."""
    with suppress(StoreError):
        store.derive(
            _KIND,
            lambda path, description: _write(
                path, store.each(store.markets(), lambda series: describe(series, catalog)), description
            ),
        )


def statistics(store: PriceStore, markets: Iterable[Market], catalog: Catalog) -> list[MarketStats]:
    """The statistics of these markets, in the order of their text: as stored, unless a price has changed since."""
    names = {str(market) for market in markets}
    by_name = store.derived(_KIND, lambda path: _read(path, names, catalog)) or {}
    missing = [market_of(name) for name in names - by_name.keys()]
    computed = store.each(missing, lambda series: describe(series, catalog)) if missing else []
    by_name |= {str(stats.market): stats for stats in computed}
    return [by_name[name] for name in sorted(by_name)]


def _write(path: Path, described: Iterable[MarketStats], description: bytes) -> None:
    rows = [
        (str(stats.market), stats.on_demand.price if stats.on_demand else None, *_figures(stats)) for stats in described
    ]
    write_rows(path, _SCHEMA, rows, description)


def _read(path: Path, names: Collection[str], catalog: Catalog) -> dict[str, MarketStats]:
    """The stored statistics; those compared with another on-demand price, of an earlier catalog, are left out."""
    current = {}
    for name, price, *figures in read_rows(path):
        if name in names:
            stats = MarketStats(market_of(name), on_demand=None, **dict(zip(_COLUMNS, figures, strict=True)))
            listed = on_demand_of(stats.market, stats.last, catalog)
            if (listed.price if listed else None) == price:
                current[name] = replace(stats, on_demand=listed)
    return current
