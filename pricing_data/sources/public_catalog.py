"""Reads the files of the public SkyPilot catalog: what each machine type of a cloud costs now, on
demand and as spot, by region and zone. Pure.

A file is one look at the prices, not a record of their changes: what happened between two looks is
unknown, so markets are watched at the moment of a look only.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO, TextIOWrapper
from operator import itemgetter
from sys import intern
from typing import NamedTuple

import numpy as np

from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.errors import BadInput, NoAnswer, UnknownPrice
from pricing_data.fetched_rows import NO_SPOT, FetchedRows, PriceBatch
from pricing_data.market import LINUX, NO_ZONE, Market
from pricing_data.series import WatchRecord
from pricing_data.sources.base import FetchRequest
from pricing_data.units import MAX_USD_PER_HOUR, NANOS_PER_DOLLAR, Span, counted, format_time

NAME = "SkyPilot catalog"
FIRST_WITH_ZONE_IDS = 5
"""Zones of earlier versions have the names of the account that collected them, which mean other
zones in other accounts."""
_REQUIRED = ("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Region")
_PRICES = ("Price", "SpotPrice")
_ZONE = "AvailabilityZone"
_ZONE_ID = re.compile(r"(-|[a-z]+\d+-az\d+)?")
"""Ids of others, such as `use1-atl2-az1`, are of local zones, which an account has to enable first."""
_LEAST_OF_HIGHEST = 0.55
"""GPUs cost half as much in some regions as in others where the catalog has the price of Flex-start
in place of the one on demand; real prices differ by less."""
# The catalog has this in place of a price that its authors could not find.
_UNKNOWN_USD = 700.0
_RENAMED = {"H100-MEGA": "H100", "RTXPRO6000": "RTX-PRO-6000"}
_CURE = "fetch again later; spotctl prices best shows what is known without it"

NO_GPUS = ("", 0)
OwnGpus = Callable[[str], tuple[str, int] | None]
"""The GPUs of a machine type, which the catalog prices separately, by the catalog's name; None if it
has some, but it is unknown which."""


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """A cloud's file of one version of the catalog's format, as it was at a moment."""

    cloud: str
    version: int
    as_of: int
    content: bytes

    def __str__(self) -> str:
        return f"{NAME} v{self.version} of {format_time(self.as_of)}"


class _Row(NamedTuple):
    """A row; prices are nano-dollars per hour, 0 where they are unknown."""

    type: str
    accelerator: str
    accelerators: str
    vcpus: str
    memory: str
    region: str
    zone: str
    on_demand: int
    spot: int


@dataclass(slots=True)
class _Prices:
    """The prices of a file by what is sold. The higher one of a repeated row is in force, so that
    none is promised too low."""

    spot: dict[tuple[str, str, str], int] = field(default_factory=dict)
    on_demand: dict[tuple[str, str], int] = field(default_factory=dict)
    types: dict[str, InstanceType] = field(default_factory=dict)
    unsold: set[tuple[str, str, str]] = field(default_factory=set)
    """Where a file has no spot price of a machine."""
    left_out: int = 0

    def add(self, row: _Row, zone: str | None) -> None:
        """Adds a machine's row; its spot price only with a zone, which may be "-"."""
        if row.on_demand:
            place = row.region, row.type
            self.on_demand[place] = max(row.on_demand, self.on_demand.get(place, 0))
        if row.spot and zone is not None:
            market = row.region, zone, row.type
            self.spot[market] = max(row.spot, self.spot.get(market, 0))
        else:
            self.left_out += 1
            self.unsold |= {(row.region, zone, row.type)} if zone is not None else set()

    def markets(self) -> dict[tuple[str, str, str], int]:
        """The prices of all markets: machines that have no spot price in a region are sold on demand
        only."""
        as_spot = {(region, name) for region, _, name in self.spot}
        fixed = {
            (region, zone, name): price + NO_SPOT
            for region, zone, name in sorted(self.unsold)
            if (region, name) not in as_spot and (price := self.on_demand.get((region, name)))
        }
        return {**self.spot, **fixed}


def read_catalog(
    file: CatalogFile,
    request: FetchRequest,
    known: Catalog,
    *,
    by_zone: bool,
    gpus_of: OwnGpus | None = None,
) -> FetchedRows:
    """The spot prices of a file, and the on-demand prices and machine types that are news to the
    `known` ones.

    `by_zone` says that the cloud prices zones separately. `gpus_of` is for clouds whose rows of
    machines lack the price of their GPUs, which have rows of their own. Raises NoAnswer for a file
    that is cut off or has another format.
    """
    apart = {} if gpus_of is None else _gpus_apart(file)
    prices = _Prices()

    for row in _rows(file):
        is_in_region = not request.regions or row.region in request.regions
        if not row.type or not is_in_region or not request.wants_type(row.type):
            continue
        gpus = NO_GPUS if gpus_of is None else gpus_of(row.type)
        if gpus is None:
            prices.left_out += 1
            continue
        name, count = gpus
        whole = row if not name else _with_gpus(row, apart.get((name, str(count), row.zone)))
        if name:
            whole = whole._replace(accelerator=name, accelerators=str(count))

        zone: str | None = NO_ZONE
        if by_zone:
            has_id = file.version >= FIRST_WITH_ZONE_IDS and _ZONE_ID.fullmatch(row.zone)
            zone = row.zone or NO_ZONE if has_id else None
        prices.add(whole, zone)
        if row.type not in prices.types and not known.knows(file.cloud, row.type):
            with suppress(BadInput, ValueError):
                prices.types[row.type] = _machine(file.cloud, whole)

    return _fetched(file, prices, known)


def _gpus_apart(file: CatalogFile) -> dict[tuple[str, str, str], _Row]:
    """The rows of GPUs without a machine, by GPU, count and zone. A price on demand that is below
    the one of spot, or far below that of other regions, is none."""
    rows = [row for row in _rows(file) if not row.type]
    highest = dict[tuple[str, str], int]()
    for row in rows:
        sold = row.accelerator, row.accelerators
        highest[sold] = max(row.on_demand, highest.get(sold, 0))

    apart = {}
    for row in rows:
        sold = row.accelerator, row.accelerators
        least = max(float(row.spot), _LEAST_OF_HIGHEST * highest[sold])
        apart[*sold, row.zone] = row if row.on_demand >= least else row._replace(on_demand=0)
    return apart


def _with_gpus(row: _Row, gpus: _Row | None) -> _Row:
    """A machine with the price of its GPUs; without a price where that of either is unknown."""
    if gpus is None:
        return row._replace(on_demand=0, spot=0)
    on_demand = row.on_demand + gpus.on_demand if row.on_demand and gpus.on_demand else 0
    spot = row.spot + gpus.spot if row.spot and gpus.spot else 0
    return row._replace(on_demand=on_demand, spot=spot)


def _machine(cloud: str, row: _Row) -> InstanceType:
    """Raises ValueError for a share of a GPU, or for a row without vCPUs."""
    name = _RENAMED.get(row.accelerator, row.accelerator) or None
    count = float(row.accelerators or 0)
    if not count.is_integer():
        raise ValueError(f"{row.type} has {count:g} of a GPU")
    return InstanceType(cloud, row.type, int(float(row.vcpus)), float(row.memory), name, int(count))


def _fetched(file: CatalogFile, prices: _Prices, known: Catalog) -> FetchedRows:
    cloud, at = file.cloud, file.as_of
    spot = dict[Market, int]()
    for (region, zone, name), price in prices.markets().items():
        try:
            spot[Market(cloud, region, zone, name)] = price
        except BadInput:
            prices.left_out += 1

    markets, count = tuple(spot), len(spot)
    codes, times = np.arange(count, dtype=np.int64), np.full(count, at, dtype=np.int64)
    batch = PriceBatch(markets, codes, times, np.fromiter(spot.values(), np.int64, count))
    source = f"{NAME} v{file.version}"
    listed = []
    for (region, name), price in prices.on_demand.items():
        # These prices hardly ever change: each look would add as many rows again.
        with suppress(UnknownPrice, BadInput):
            if known.on_demand(Market(cloud, region, NO_ZONE, name)).price == price:
                continue
        listed.append(OnDemandPrice(cloud, region, name, LINUX, at, price, source))

    seen = WatchRecord((Span(at, at),))
    missing = f"; {counted(prices.left_out, 'row')} without a spot price" if prices.left_out else ""
    note = f"{cloud}: {file}: {counted(len(prices.spot), 'spot price')}{missing}"
    return FetchedRows(
        batch,
        types=tuple(prices.types.values()),
        on_demand=tuple(listed),
        watched=dict.fromkeys(markets, seen),
        notes=(note,),
    )


def _rows(file: CatalogFile) -> Iterator[_Row]:
    """The rows of a file; texts that are repeated are held once. A row that is broken is passed
    over."""
    if not file.content.endswith(b"\n"):
        raise NoAnswer(f"{file.cloud}: {file} is cut off: its last line has no end", _CURE)

    lines = csv.reader(TextIOWrapper(BytesIO(file.content), "utf-8", "replace", newline=""))
    names = next(lines)
    missing = [name for name in (*_REQUIRED, *_PRICES) if name not in names]
    if missing:
        columns = "a column" if len(missing) == 1 else "columns"
        raise NoAnswer(
            f"{file.cloud}: {file} has another format: it lacks {columns} {', '.join(missing)}",
            _CURE,
        )

    texts_of = itemgetter(*map(names.index, _REQUIRED))
    prices_of = itemgetter(*map(names.index, _PRICES))
    at_zone = names.index(_ZONE) if _ZONE in names else None
    for cells in lines:
        if len(cells) == len(names):
            type_, accelerator, count, vcpus, memory, region = map(intern, texts_of(cells))
            zone = "" if at_zone is None else intern(cells[at_zone])
            on_demand, spot = map(_nanos, prices_of(cells))
            yield _Row(type_, accelerator, count, vcpus, memory, region, zone, on_demand, spot)


@lru_cache(maxsize=1 << 15)
def _nanos(text: str) -> int:
    """A price in nano-dollars; 0 for what is none: empty, 0, not a number, the catalog's
    placeholder, or beyond any machine's."""
    try:
        usd = float(text or 0)
    except ValueError:
        return 0
    if 0 < usd <= MAX_USD_PER_HOUR and usd != _UNKNOWN_USD:
        return round(usd * NANOS_PER_DOLLAR)
    return 0
