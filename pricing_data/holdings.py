"""Prices of what a machine holds besides itself: its disk and its public address."""

from dataclasses import dataclass
from typing import Literal

from pricing_data.errors import BadInput, UnknownPrice
from pricing_data.list_prices import ADDRESSES, DISKS, ListPrice, ListPrices, closeness, shipped

# All three clouds bill a month of a disk as 730 hours.
_HOURS_PER_MONTH = 730


@dataclass(frozen=True, slots=True)
class HoldingPrice:
    """Dollars per hour. `approximate` is true where the figure is close to the public list but not read from it."""

    usd_per_hour: float
    as_of: int
    source: str
    approximate: bool = False


def disk(
    cloud: str, region: str, kind: str, gib: float, at: int | None = None, lists: ListPrices | None = None
) -> HoldingPrice:
    """The price of a disk such as `gp3`, `pd-balanced` or `StandardSSD_LRS`, by the newest list not after `at`.

    Where a cloud sells fixed sizes, the next larger one is billed.
    """
    if not gib > 0:
        raise BadInput(f"disk of {gib:g} GiB: it must be above 0")
    what = f"a {kind} disk of {gib:g} GiB in {cloud}/{region}"
    current = (lists or shipped()).current(DISKS, at, lambda row: _rank(row, cloud, region, kind), what)
    sized = [row for row in current if not row.step or gib <= row.step]
    if not sized:
        raise UnknownPrice(f"no list price is known for {what}")
    monthly = sized[0].usd * (1 if sized[0].step else gib)
    return _price(sized[0], monthly / _HOURS_PER_MONTH)


def address(
    cloud: str,
    region: str,
    purchase: Literal["spot", "on-demand"],
    at: int | None = None,
    lists: ListPrices | None = None,
) -> HoldingPrice:
    """The price of a public IPv4 address that a machine uses, by the newest list not after `at`."""
    what = f"a public address in {cloud}/{region}"
    current = (lists or shipped()).current(ADDRESSES, at, lambda row: _rank(row, cloud, region, purchase), what)
    return _price(current[0], current[0].usd)


def _rank(row: ListPrice, cloud: str, region: str, what: str) -> float | None:
    return closeness(cloud, region, row.where) if (row.cloud, row.what) == (cloud, what) else None


def _price(row: ListPrice, usd_per_hour: float) -> HoldingPrice:
    return HoldingPrice(usd_per_hour, row.as_of, row.source, row.is_approximate)
