"""Dated tables of public list prices other than machines: egress, disks, addresses, savings of spot machines.

Each row has the date it was read, the page it is from, and whether it is the list's own figure (`list`) or close to it
(`approximate`). A new price is a new row with a later date; old rows stay, because past runs are billed by them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

from pricing_data.errors import UnknownPrice
from pricing_data.market import api_region
from pricing_data.units import parse_time

Row = dict[str, str]


@cache
def rows_of(table: str) -> tuple[Row, ...]:
    """The rows of a shipped table, in its order: more specific rows come first."""
    lines = (files(__package__) / f"{table}.csv").read_text(encoding="utf-8").splitlines()
    return tuple(csv.DictReader(lines))


def is_in(cloud: str, region: str, regions: str) -> bool:
    """Whether a region matches one of several globs, separated by spaces."""
    spelled = api_region(cloud, region)
    return any(fnmatchcase(spelled, glob) for glob in regions.split())


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
    fitting = (
        row["area"] for row in rows_of("areas") if row["cloud"] == cloud and is_in(cloud, region, row["regions"])
    )
    return next(fitting, "")


def dated(rows: Iterable[Row], at: int | None, what: str) -> list[Row]:
    """The rows of the list dated nearest to `at`, or of the newest list; raises `UnknownPrice` if there are none."""
    by_date: dict[str, list[Row]] = {}
    for row in rows:
        by_date.setdefault(row["asof"], []).append(row)
    if not by_date:
        raise UnknownPrice(f"no list price of {what} is known")
    if at is None:
        return by_date[max(by_date)]
    return by_date[min(by_date, key=lambda asof: abs(parse_time(asof) - at))]
