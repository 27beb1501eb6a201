"""The shipped data: a catalog of instance types with public on-demand prices, and a synthetic price
history.

`python -m bench.price_sample` generates the history.
"""

import csv
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path

from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.units import parse_time, parse_usd


@cache
def bundled_catalog() -> Catalog:
    """The shipped instance types and on-demand prices; each has the date of its list."""
    types = [
        InstanceType(
            cloud=row["cloud"],
            name=row["instance_type"],
            vcpus=int(row["vcpus"]),
            memory_gib=float(row["memory_gib"]),
            accelerator=row["accelerator"] or None,
            accelerators=int(row["accelerators"]),
            network_gbps=float(row["network_gbps"]) if row["network_gbps"] else None,
            as_of=parse_time(row["asof"]),
        )
        for row in _rows("catalog.csv")
    ]

    prices = []
    for row in _rows("on_demand.csv"):
        kind = "synthetic" if row["cloud"] == "local" else "public list"
        as_of = parse_time(row["asof"])
        nanos = parse_usd(row["on_demand_price"])
        price = OnDemandPrice(
            cloud=row["cloud"],
            region=row["region"],
            instance_type=row["instance_type"],
            os=row["os"],
            as_of=as_of,
            price=nanos,
            source=f"spotctl sample catalog, {kind} prices as of {row['asof']}",
        )
        prices.append(price)

    return Catalog(tuple(types), tuple(prices))


def bundled_prices() -> Path:
    """The shipped history of the synthetic cloud `local`, in the format of a store's segment."""
    return Path(__file__).with_name("prices.parquet")


def _rows(name: str) -> Iterator[dict[str, str]]:
    path = files(__package__) / name
    lines = path.read_text(encoding="utf-8").splitlines()
    yield from csv.DictReader(lines)
