"""Dated tables of public list prices other than machines: egress, disks, addresses, savings of spot machines.

Each row has the date it was read, the page it is from, and whether it is the list's own figure (`list`) or close to it
(`approximate`). A new price is a new row with a later date; old rows stay, because past runs are billed by them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from math import isfinite

from pricing_data.errors import BadInput, UnknownPrice
from pricing_data.known_clouds import cloud_names, markets_of, shipped_lines
from pricing_data.market import api_region
from pricing_data.units import MOST_USD_PER_HOUR, parse_time

CsvRow = Mapping[str, str]
"""The cells of a row by the names of the columns."""

EGRESS, DISKS, ADDRESSES = "egress", "disks", "addresses"
COLUMNS: Mapping[str, tuple[str, ...]] = {
    EGRESS: ("asof", "cloud", "origin", "target", "above_gb", "usd_per_gb"),
    DISKS: ("asof", "cloud", "regions", "kind", "up_to_gib", "usd_per_month"),
    ADDRESSES: ("asof", "cloud", "regions", "purchase", "usd_per_hour"),
}
"""The columns of each table that can be imported."""
_APPROXIMATE, _LIST = "approximate", "list"


@dataclass(frozen=True, slots=True, order=True)
class ListPrice:
    """A row of a table. `where` is the origin of egress, an area or `*`; or the regions of the others, as globs.

    `what` is the target of egress, the kind of a disk, or how the machine of an address is bought. `step` is the GB
    above which a tier of egress begins, or the GiB up to which a disk has this price; 0 means any size.
    """

    table: str
    as_of: int
    cloud: str
    where: str
    what: str
    step: float
    usd: float
    certainty: str
    source: str

    @classmethod
    def of_row(cls, table: str, cells: CsvRow) -> ListPrice:
        """Parses a row of a table; raises `BadInput` if it has an unusable cell."""
        names = COLUMNS[table]
        cloud, where, what = (cells[name].strip() for name in names[1:4])
        step = _number(cells[names[4]].strip() or "0", names[4]) if len(names) > 5 else 0.0
        certainty = cells.get("certainty", "").strip() or _LIST
        for name, value, allowed in (
            ("cloud", cloud, tuple(name for name in cloud_names() if not markets_of(name).is_synthetic)),
            ("certainty", certainty, (_LIST, _APPROXIMATE)),
            *((("purchase", what, ("spot", "on-demand")),) if table == ADDRESSES else ()),
        ):
            if value not in allowed:
                raise BadInput(f"{name} {value!r} is not one of {', '.join(allowed)}")
        for name, value in zip(names[2:4], (where, what), strict=True):
            if not value or not value.isprintable():
                raise BadInput(f"{name} {value!r} is not a name")
        usd = _number(cells[names[-1]], names[-1])
        if table != EGRESS and usd == 0:
            raise BadInput(f"{names[-1]} is 0")
        source = cells.get("source", "").strip() or "imported list"
        return cls(table, parse_time(cells["asof"]), cloud, where, what, step, usd, certainty, source)

    @property
    def is_approximate(self) -> bool:
        return self.certainty != _LIST

    @property
    def key(self) -> tuple[str, int, str, str, str, float]:
        """Identifies the row: a newer one with the same key replaces it."""
        return self.table, self.as_of, self.cloud, self.where, self.what, self.step


@dataclass(frozen=True)
class ListPrices:
    """All rows that are known: the shipped ones, and those that were imported."""

    rows: tuple[ListPrice, ...] = ()

    def merged(self, newer: ListPrices) -> ListPrices:
        """All rows of both; `newer` wins where both have the same row."""
        return ListPrices(tuple({row.key: row for row in (*self.rows, *newer.rows)}.values()))

    def current(
        self, table: str, at: int | None, rank: Callable[[ListPrice], float | None], what: str
    ) -> list[ListPrice]:
        """The rows in force at a moment for which `rank` has a number, the highest first, and among equals the smaller
        step. In force is the newest list not after `at`, else the oldest. Raises `UnknownPrice` if there is none.
        """
        ranked = [(order, row) for row in self.rows if row.table == table and (order := rank(row)) is not None]
        if not ranked:
            raise UnknownPrice(f"no list price is known for {what} (spotctl prices import TABLE)")
        dates = sorted({row.as_of for _, row in ranked})
        date = max((date for date in dates if at is None or date <= at), default=dates[0])
        valid = [(order, row) for order, row in ranked if row.as_of == date]
        return [
            row for _, row in sorted(valid, key=lambda ranked: (-ranked[0], ranked[1].step, ranked[1].is_approximate))
        ]


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (isfinite(number) and number >= 0) or (name.startswith("usd") and number > MOST_USD_PER_HOUR):
        raise BadInput(f"{name} {text[:40]!r} is not a plausible number of at least 0")
    return number


@cache
def shipped() -> ListPrices:
    """The rows that come with the clouds."""
    return ListPrices(tuple(ListPrice.of_row(table, row) for table in COLUMNS for row in rows_of(table)))


@cache
def rows_of(table: str) -> tuple[CsvRow, ...]:
    """The rows of a table that the clouds ship."""
    return tuple(row for lines in shipped_lines(table) for row in csv.DictReader(lines))


def closeness(cloud: str, region: str, regions: str) -> float | None:
    """How closely globs, separated by spaces, name a region; None if none matches."""
    spelled = api_region(cloud, region)
    matching = [glob for glob in regions.split() if fnmatchcase(spelled, glob)]
    return max((len(glob) + (1000.0 if "*" not in glob else 0.0) for glob in matching), default=None)


@cache
def saving_of(cloud: str, instance_type: str) -> tuple[float, int] | None:
    """How far at least spot prices are below the list price, and the date of that statement; None if unknown."""
    for row in rows_of("savings"):
        if row["cloud"] == cloud and fnmatchcase(instance_type, row["types"]):
            return float(row["saving"]), parse_time(row["asof"])
    return None


@cache
def area_of(cloud: str, region: str) -> str:
    """The part of the world whose prices apply to a region, in the cloud's own division; empty if unknown."""
    fitting = (row["area"] for row in rows_of("areas") if row["cloud"] == cloud and _is_in(cloud, region, row))
    return next(fitting, "")


def _is_in(cloud: str, region: str, row: CsvRow) -> bool:
    return closeness(cloud, region, row["regions"]) is not None
