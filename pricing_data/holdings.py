"""Prices of what a machine holds besides itself: its disk and its public address."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pricing_data.errors import BadInput, UnknownPrice
from pricing_data.list_prices import Row, dated, is_in, rows_of
from pricing_data.units import parse_time

# All three clouds bill a month of a disk as 730 hours.
_HOURS_PER_MONTH = 730


@dataclass(frozen=True, slots=True)
class HoldingPrice:
    """Dollars per hour. `approximate` is true where the figure is close to the public list but not read from it."""

    usd_per_hour: float
    as_of: int
    source: str
    approximate: bool = False


def disk(cloud: str, region: str, kind: str, gib: float, at: int | None = None) -> HoldingPrice:
    """The price of a disk such as `gp3`, `pd-balanced` or `StandardSSD_LRS`, by the list dated nearest to `at`.

    Where a cloud sells fixed sizes, the next larger one is billed.
    """
    if not gib > 0:
        raise BadInput(f"disk of {gib:g} GiB: it must be above 0")
    what = f"a {kind} disk of {gib:g} GiB in {cloud}/{region}"
    fitting = [row for row in rows_of("disks") if row["kind"] == kind and _applies(row, cloud, region)]
    current = dated(fitting, at, what)
    sized = [row for row in current if not row["up_to_gib"] or gib <= float(row["up_to_gib"])]
    if not sized:
        raise UnknownPrice(f"no list price of {what} is known")
    monthly = float(sized[0]["usd_per_month"]) * (1 if sized[0]["up_to_gib"] else gib)
    return _price(sized[0], monthly / _HOURS_PER_MONTH)


def address(cloud: str, region: str, purchase: Literal["spot", "on-demand"], at: int | None = None) -> HoldingPrice:
    """The price of a public IPv4 address that a machine uses, by the list dated nearest to `at`."""
    fitting = [row for row in rows_of("addresses") if row["purchase"] == purchase and _applies(row, cloud, region)]
    row = dated(fitting, at, f"a public address in {cloud}/{region}")[0]
    return _price(row, float(row["usd_per_hour"]))


def _applies(row: Row, cloud: str, region: str) -> bool:
    return row["cloud"] == cloud and is_in(cloud, region, row["regions"])


def _price(row: Row, usd_per_hour: float) -> HoldingPrice:
    return HoldingPrice(usd_per_hour, parse_time(row["asof"]), row["source"], row["certainty"] != "list")
