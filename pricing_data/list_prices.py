"""Dated tables of public list prices other than machines: egress, disks, addresses, savings of spot
machines.

Each row has the date it was read, the page it is from, and whether it is the list's own figure
(`list`) or close to it (`approximate`). A new price is a new row with a later date; old rows stay,
because past runs are billed by them.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import pairwise
from math import isfinite
from typing import Literal, NamedTuple

from pricing_data.errors import BadInput, UnknownPrice
from pricing_data.known_clouds import cloud_names, is_cloud, markets_of, shipped_lines
from pricing_data.market import NO_ZONE, Market, api_region
from pricing_data.units import EARLIEST, MAX_USD_PER_HOUR, parse_time

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
    """A row of a table. `where` is the origin of egress, an area or `*`; or the regions of the
    others, as globs.

    `what` is the target of egress, the kind of a disk, or how the machine of an address is bought.
    `step` is the GB above which a tier of egress begins, or the GiB up to which a disk has this
    price; 0 means any size.
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
        place = names[1:4]
        cloud, where, what = (cells[name].strip() for name in place)
        step = 0.0
        if len(names) > 5:
            step = _number(cells[names[4]].strip() or "0", names[4])
        certainty = cells.get("certainty", "").strip() or _LIST

        real_clouds = (name for name in cloud_names() if not markets_of(name).is_synthetic)
        clouds = tuple(real_clouds)
        purchases = (("purchase", what, ("spot", "on-demand")),) if table == ADDRESSES else ()
        for name, value, allowed in (
            ("cloud", cloud, clouds),
            ("certainty", certainty, (_LIST, _APPROXIMATE)),
            *purchases,
        ):
            if value not in allowed:
                raise BadInput(f"{name} {value!r} is not one of {', '.join(allowed)}")

        for name, value in zip(names[2:4], (where, what), strict=True):
            if not value or not value.isprintable():
                raise BadInput(f"{name} {value!r} is not a name")

        written = cells[names[-1]]
        usd = _number(written, names[-1])
        if table != EGRESS and usd == 0:
            raise BadInput(f"{names[-1]} is 0")

        source = cells.get("source", "").strip() or "imported list"
        as_of = parse_time(cells["asof"])
        return cls(table, as_of, cloud, where, what, step, usd, certainty, source)

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
        by_key = {row.key: row for row in (*self.rows, *newer.rows)}.values()
        return ListPrices(tuple(by_key))

    def current(
        self, table: str, at: int | None, rank: Callable[[ListPrice], float | None], what: str
    ) -> list[ListPrice]:
        """The rows in force at a moment for which `rank` has a number, the highest first, and among
        equals the smaller step. In force is the newest list not after `at`, else the oldest. Raises
        `UnknownPrice` if there is none.
        """
        ranked = [
            (order, row)
            for row in self.rows
            if row.table == table and (order := rank(row)) is not None
        ]

        if not ranked:
            raise UnknownPrice(f"no list price is known for {what} (spotctl prices import TABLE)")

        dates = sorted({row.as_of for _, row in ranked})
        past = (date for date in dates if at is None or date <= at)
        date = max(past, default=dates[0])
        valid = [(order, row) for order, row in ranked if row.as_of == date]
        in_order = sorted(
            valid, key=lambda ranked: (-ranked[0], ranked[1].step, ranked[1].certainty != _LIST)
        )
        return [row for _, row in in_order]

    def newest(self, table: str, cloud: str, region: str, kind: str, what: str) -> list[ListPrice]:
        """The rows in force now of a kind of disk or address in a region, whose globs name the
        region most closely first (see `current`)."""

        def rank(row: ListPrice) -> float | None:
            if (row.cloud, row.what) == (cloud, kind):
                return closeness(cloud, region, row.where)
            return None

        return self.current(table, None, rank, what)


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0

    is_amount = isfinite(number) and number >= 0
    if not is_amount or (name.startswith("usd") and number > MAX_USD_PER_HOUR):
        raise BadInput(f"{name} {text[:40]!r} is not a plausible number of at least 0")
    return number


@cache
def shipped() -> ListPrices:
    """The rows that come with the clouds."""
    every_row = (ListPrice.of_row(table, row) for table in COLUMNS for row in rows_of(table))
    return ListPrices(tuple(every_row))


@cache
def rows_of(table: str) -> tuple[CsvRow, ...]:
    """The rows of a table that the clouds ship."""
    rows = (row for lines in shipped_lines(table) for row in csv.DictReader(lines))
    return tuple(rows)


def closeness(cloud: str, region: str, regions: str) -> float | None:
    """How closely globs, separated by spaces, name a region; None if none matches."""
    spelled = api_region(cloud, region)
    matching = [glob for glob in regions.split() if fnmatchcase(spelled, glob)]
    return max(
        (len(glob) + (1000.0 if "*" not in glob else 0.0) for glob in matching), default=None
    )


@cache
def saving_of(cloud: str, instance_type: str) -> tuple[float, int] | None:
    """How far at least spot prices are below the list price, and the date of that statement; None
    if unknown.
    """
    for row in rows_of("savings"):
        if row["cloud"] == cloud and fnmatchcase(instance_type, row["types"]):
            return float(row["saving"]), parse_time(row["asof"])
    return None


@cache
def area_of(cloud: str, region: str) -> str:
    """The part of the world whose prices apply to a region, in the cloud's own division; empty if
    unknown.
    """
    for row in rows_of("areas"):
        if row["cloud"] == cloud and closeness(cloud, region, row["regions"]) is not None:
            return row["area"]
    return ""


_ENDLESS = float("inf")


class Location(NamedTuple):
    """Where data is: a region of a cloud and, if known, a zone."""

    cloud: str
    region: str
    zone: str = NO_ZONE

    @classmethod
    def of(cls, market: Market) -> Location:
        return cls(market.cloud, market.region, market.zone)

    @classmethod
    def parse(cls, text: str) -> Location:
        """The place of a text such as `aws/us-east-1` or `aws/us-east-1/us-east-1a`."""
        parts = text.strip().split("/")
        odd = len(parts) not in (2, 3)
        if odd or not is_cloud(parts[0]):
            raise BadInput(
                f"place {text!r} is not cloud/region or cloud/region/zone (write aws/us-east-1)"
            )
        return cls(*parts)


@dataclass(frozen=True, slots=True)
class EgressPrice:
    """Dollars per GB in tiers: `(above this many GB in a month, dollars per GB)`, ascending from 0.

    A first tier of 0 dollars is an account's monthly allowance. `approximate` is true where the
    figure is close to the public list but not read from it.
    """

    tiers: tuple[tuple[float, float], ...]
    as_of: int
    source: str
    approximate: bool = False

    @property
    def usd_per_gb(self) -> float:
        """The price of a GB beyond the free allowance, in the first tier that costs something."""
        return next((usd for _, usd in self.tiers if usd), 0.0)

    def usd(self, gigabytes: float, after_gb: float = 0.0) -> float:
        """Dollars for sending this much after `after_gb` in the same month."""
        if not (0 <= gigabytes < _ENDLESS and 0 <= after_gb < _ENDLESS):
            raise BadInput(
                f"egress of {gigabytes:g} GB after {after_gb:g} GB: both must be at least 0"
            )
        total = 0.0
        for (above, usd), (until, _) in pairwise((*self.tiers, (_ENDLESS, 0.0))):
            begin = max(after_gb, above)
            end = min(after_gb + gigabytes, until) - begin
            total += max(0.0, end) * usd
        return total


FREE = EgressPrice(((0.0, 0.0),), EARLIEST, "no data leaves the zone")
LOCAL = EgressPrice(((0.0, 0.02),), EARLIEST, "between regions of the local market")


def egress(
    origin: Location,
    target: Location | None,
    at: int | None = None,
    lists: ListPrices | None = None,
) -> EgressPrice:
    """The price of sending data from one place to another; a `target` of None is the internet.

    The newest list that is not after `at` applies, of `lists` or else of those that are shipped.
    Two zones of a region count as one if either is unknown. Raises `UnknownPrice` where the tables
    have no figure.
    """
    if not is_cloud(origin.cloud):
        raise BadInput(f"egress from {origin.cloud}: not one of {', '.join(cloud_names())}")

    kinds = _kinds(origin, target)
    if not kinds or (origin.cloud == "local" and "region" not in kinds):
        return FREE
    if origin.cloud == "local":
        return LOCAL

    region = api_region(origin.cloud, origin.region)
    area = area_of(origin.cloud, origin.region)
    origins = (region, area, "*")

    def rank(row: ListPrice) -> float | None:
        if row.cloud != origin.cloud or row.where not in origins or row.what not in kinds:
            return None
        origin_place = origins.index(row.where)
        kind_place = kinds.index(row.what)
        place = len(kinds) * origin_place + kind_place
        return -float(place)

    where = "the internet"
    if target is not None:
        where = f"{target.cloud}/{target.region}"
    what = f"egress from {origin.cloud}/{origin.region} to {where}"
    current = (lists or shipped()).current(EGRESS, at, rank, what)
    rows = [row for row in current if (row.where, row.what) == (current[0].where, current[0].what)]
    tiers_of_rows = ((row.step, row.usd) for row in rows)
    first, *others = sorted(tiers_of_rows)

    # A list that begins above 0 GB does not say that what is below is free, and a run must not fail
    # because of it.
    tiers = ((0.0, first[1]), *others)
    approximate = any(row.certainty != _LIST for row in rows)
    return EgressPrice(tiers, rows[0].as_of, rows[0].source, approximate)


def _kinds(origin: Location, target: Location | None) -> tuple[str, ...]:
    """The targets in the table that describe a route, the closest first; none if nothing leaves the
    zone.
    """
    if target is None or target.cloud != origin.cloud:
        return ("internet",)
    region = api_region(target.cloud, target.region)
    if region != api_region(origin.cloud, origin.region):
        return (region, area_of(target.cloud, region), "region")
    if NO_ZONE in (origin.zone, target.zone) or origin.zone == target.zone:
        return ()
    return ("zone",)


# All three clouds bill a month of a disk as 730 hours.
_HOURS_PER_MONTH = 730


def disk(cloud: str, region: str, kind: str, gib: float, lists: ListPrices | None = None) -> float:
    """The price of a disk such as `gp3`, `pd-balanced` or `StandardSSD_LRS`, by the newest list.

    Where a cloud sells fixed sizes, the next larger one is billed.
    """
    if not gib > 0:
        raise BadInput(f"disk of {gib:g} GiB: it must be above 0")

    what = f"a {kind} disk of {gib:g} GiB in {cloud}/{region}"
    lists_known = lists or shipped()
    current = lists_known.newest(DISKS, cloud, region, kind, what)
    sized = [row for row in current if not row.step or gib <= row.step]
    if not sized:
        raise UnknownPrice(f"no list price is known for {what}")

    units = 1 if sized[0].step else gib
    monthly = sized[0].usd * units
    return monthly / _HOURS_PER_MONTH


def address(
    cloud: str, region: str, purchase: Literal["spot", "on-demand"], lists: ListPrices | None = None
) -> float:
    """The price of a public IPv4 address that a machine uses, by the newest list."""
    what = f"a public address in {cloud}/{region}"
    known = lists or shipped()
    cheapest = known.newest(ADDRESSES, cloud, region, purchase, what)[0]
    return cheapest.usd
