"""Statistics that are stored with the prices from which they follow, so that showing them need not read every price."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from pricing_data.errors import StoreError
from pricing_data.stats import MarketStats, describe, on_demand_of
from pricing_data.store.parquet import read_rows, write_rows
from pricing_data.store.segments import market_of

if TYPE_CHECKING:
    from pathlib import Path

    from pricing_data.catalog import Catalog
    from pricing_data.market import Market
    from pricing_data.store import PriceStore

_KIND = "stats"
"""Takes another name when the definition of a figure changes: files of the old name are not read any more."""
_TYPES = {"float": pa.float64(), "float | None": pa.float64(), "int": pa.int64()}
_COLUMNS = [one.name for one in fields(MarketStats) if one.name not in ("market", "on_demand")]
_SCHEMA = pa.schema(
    [
        ("market", pa.string()),
        ("on_demand", pa.int64()),
        *((one.name, _TYPES[str(one.type)]) for one in fields(MarketStats) if one.name in _COLUMNS),
    ]
)
_figures = attrgetter(*_COLUMNS)


def keep(store: PriceStore, catalog: Catalog) -> None:
    """Stores the statistics of all markets. Without room for them, they will be computed when they are needed."""
    with suppress(StoreError):
        store.derive(
            _KIND, lambda path: _write(path, store.each(store.markets(), lambda series: describe(series, catalog)))
        )


def statistics(store: PriceStore, markets: Iterable[Market], catalog: Catalog) -> list[MarketStats]:
    """The statistics of these markets, in the order of their text: as stored, unless a price has changed since."""
    names = {str(market) for market in markets}
    found = store.derived(_KIND, lambda path: _read(path, names, catalog)) or {}
    missing = [market_of(name) for name in names - found.keys()]
    computed = store.each(missing, lambda series: describe(series, catalog)) if missing else []
    found |= {str(one.market): one for one in computed}
    return [found[name] for name in sorted(found)]


def _write(path: Path, described: Iterable[MarketStats]) -> None:
    rows = [(str(one.market), one.on_demand.price if one.on_demand else None, *_figures(one)) for one in described]
    write_rows(path, _SCHEMA, rows)


def _read(path: Path, names: Collection[str], catalog: Catalog) -> dict[str, MarketStats]:
    """Without those that were compared with another on-demand price, from the catalog of an earlier version."""
    found = {}
    for name, price, *figures in read_rows(path):
        if name in names:
            one = MarketStats(market_of(name), on_demand=None, **dict(zip(_COLUMNS, figures, strict=True)))
            listed = on_demand_of(one.market, one.last, catalog)
            if (listed.price if listed else None) == price:
                found[name] = replace(one, on_demand=listed)
    return found
