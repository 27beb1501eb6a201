"""Prices of what a machine holds besides itself, its disk and its public address, in dollars per hour."""

from typing import Literal

from pricing_data.errors import BadInput, UnknownPrice
from pricing_data.list_prices import ADDRESSES, DISKS, ListPrice, ListPrices, closeness, shipped

# All three clouds bill a month of a disk as 730 hours.
_HOURS_PER_MONTH = 730


def disk(cloud: str, region: str, kind: str, gib: float, lists: ListPrices | None = None) -> float:
    """The price of a disk such as `gp3`, `pd-balanced` or `StandardSSD_LRS`, by the newest list.

    Where a cloud sells fixed sizes, the next larger one is billed.
    """
    if not gib > 0:
        raise BadInput(f"disk of {gib:g} GiB: it must be above 0")
    what = f"a {kind} disk of {gib:g} GiB in {cloud}/{region}"
    current = (lists or shipped()).current(DISKS, None, lambda row: _rank(row, cloud, region, kind), what)
    sized = [row for row in current if not row.step or gib <= row.step]
    if not sized:
        raise UnknownPrice(f"no list price is known for {what}")
    monthly = sized[0].usd * (1 if sized[0].step else gib)
    return monthly / _HOURS_PER_MONTH


def address(cloud: str, region: str, purchase: Literal["spot", "on-demand"], lists: ListPrices | None = None) -> float:
    """The price of a public IPv4 address that a machine uses, by the newest list."""
    what = f"a public address in {cloud}/{region}"
    current = (lists or shipped()).current(ADDRESSES, None, lambda row: _rank(row, cloud, region, purchase), what)
    return current[0].usd


def _rank(row: ListPrice, cloud: str, region: str, what: str) -> float | None:
    return closeness(cloud, region, row.where) if (row.cloud, row.what) == (cloud, what) else None
