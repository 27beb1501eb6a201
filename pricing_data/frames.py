"""Prices as pandas DataFrames: times are UTC timestamps, prices are US dollars per hour.

pandas is imported on first use, because its import takes longer than most commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pricing_data.catalog import Catalog
from pricing_data.market import Market
from pricing_data.stats import MarketStats
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, to_datetime, to_usd

if TYPE_CHECKING:
    import pandas as pd

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

    The columns have the names and meanings of `prices stats --json`, besides the parts of a market's name and the
    hardware of its machine. Figures that are not known (no on-demand price, an instance type that the catalog does not
    describe) are missing values.
    """
    import pandas as pd

    rows = [_price_row(stats, catalog) for stats in statistics]
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


def _price_row(stats: MarketStats, catalog: Catalog) -> dict[str, object]:
    row: dict[str, object] = {column: name for column, [name] in _name_columns([stats.market]).items()}
    if catalog.knows(stats.market.cloud, stats.market.instance_type):
        machine = catalog.instance_type(stats.market.cloud, stats.market.instance_type)
        row |= {"vcpus": machine.vcpus, "memory_gib": machine.memory_gib}
        row |= {"gpu": machine.accelerator, "gpus": machine.accelerators}
    if stats.on_demand:
        row |= {"on_demand": to_usd(stats.on_demand.price), "on_demand_as_of": to_datetime(stats.on_demand.as_of)}
    return row | {
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
