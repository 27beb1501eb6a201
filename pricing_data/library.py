"""`Library`: all available market data, both stored on this machine and shipped with the
package."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa

from pricing_data.availability import Interruption
from pricing_data.catalog import Catalog, completed, shipped_types
from pricing_data.errors import BadInput, StoreError, UnknownMarket
from pricing_data.known_clouds import cloud_names, is_cloud
from pricing_data.market import NO_ZONE, Market, api_region, closest
from pricing_data.samples import bundled_catalog, bundled_prices
from pricing_data.series import PriceSeries
from pricing_data.stats import MarketStats, describe, on_demand_of
from pricing_data.store import PriceStore
from pricing_data.store.facts import INTERRUPTIONS
from pricing_data.store.sealed import read_rows, write_rows
from pricing_data.store.segments import SegmentFile, market_of
from pricing_data.store.table import CorrectedPrices, PriceTable
from pricing_data.units import DAY

R = TypeVar("R")

_STATS = "stats"
"""Changes when the definition of a figure does, so that files of the old kind are not read any
more."""
_COLUMN_TYPES: dict[object, pa.DataType] = {
    float: pa.float64(),
    float | None: pa.float64(),
    int: pa.int64(),
}
_FIGURES = [
    field.name for field in fields(MarketStats) if field.name not in ("market", "on_demand")
]
_STATS_SCHEMA = pa.schema(
    [
        ("market", pa.string()),
        ("on_demand", pa.int64()),
        *(
            (field.name, _COLUMN_TYPES[field.type])
            for field in fields(MarketStats)
            if field.name in _FIGURES
        ),
    ]
)
_figures_of = attrgetter(*_FIGURES)


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter for markets; an empty field matches all. `vcpus` is a closed range.

    Clouds and regions may be in any common spelling (`AWS`, `us_east`).
    """

    pattern: str = ""
    clouds: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    accelerator: str = ""
    vcpus: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        unknown = [cloud for cloud in self.clouds if not is_cloud(cloud.lower())]
        if unknown:
            raise BadInput(f"cloud {unknown[0]!r} is not one of {', '.join(cloud_names())}")
        lowered = tuple(cloud.lower() for cloud in self.clouds)
        object.__setattr__(self, "clouds", lowered)

    def matches(self, market: Market, catalog: Catalog) -> bool:
        """Whether a market matches; no filter by size or accelerator matches a type the catalog
        does not describe.
        """
        if self.pattern and not market.matches(self.pattern):
            return False
        if self.clouds and market.cloud not in self.clouds:
            return False

        if self.regions and market.region not in {
            api_region(market.cloud, region) for region in self.regions
        }:
            return False
        if self.types and not any(market.matches(f"*/*/*/{glob}/*") for glob in self.types):
            return False

        return self._fits_machine(market, catalog)

    def _fits_machine(self, market: Market, catalog: Catalog) -> bool:
        if not self.accelerator and self.vcpus is None:
            return True
        if not catalog.knows(market.cloud, market.instance_type):
            return False
        machine = catalog.instance_type(market.cloud, market.instance_type)
        if self.accelerator and self.accelerator.lower() not in (machine.accelerator or "").lower():
            return False
        return self.vcpus is None or self.vcpus[0] <= machine.vcpus <= self.vcpus[1]

    @property
    def names_local(self) -> bool:
        """Whether the synthetic markets are requested by name."""
        return (
            self.pattern.startswith("local/") or self.pattern == "local" or "local" in self.clouds
        )


class Library:
    """The price store, supplemented by the shipped sample and catalog.

    The sample's markets (cloud `local`, synthetic) are included only if nothing else is stored, or
    if they are requested by name.
    """

    def __init__(self, store: PriceStore) -> None:
        self.store = store

    @cached_property
    def catalog(self) -> Catalog:
        """All instance types and on-demand prices; stored entries take precedence over shipped
        ones.
        """
        known = bundled_catalog().merged(self.store.catalog())
        machines = completed(known.types)
        return replace(known, types=(*shipped_types(), *machines))

    def select(self, selection: Selection) -> list[Market]:
        """The markets that match, in the order of their text."""
        stored = self.store.markets()
        if selection.names_local or not stored:
            with SegmentFile(bundled_prices()) as sample:
                synthetic = map(Market.parse, sample.names)
                every = {*stored, *synthetic}
                stored = sorted(every, key=str)
        return [market for market in stored if selection.matches(market, self.catalog)]

    def require(self, selection: Selection) -> list[Market]:
        """The markets that match; raises `UnknownMarket` if none does."""
        markets = self.select(selection)
        if not markets:
            description = selection.pattern or "these filters"
            raise UnknownMarket(
                f"no stored market matches {description!r}{self._hint(selection)} (spotctl lab "
                "prices ls lists the stored markets)"
            )
        return markets

    def _hint(self, selection: Selection) -> str:
        """The pattern that was probably meant, as a question; empty if none is close."""
        clouds = ("local",) if selection.names_local else selection.clouds
        wider = replace(selection, pattern="", clouds=clouds)
        markets = self.select(wider)

        parts = selection.pattern.split("/")
        parts_of_markets = (
            (market.cloud, market.region, market.zone, market.instance_type) for market in markets
        )
        known = zip(*parts_of_markets, strict=True)

        spelled = []
        for part, values in zip(parts, known, strict=False):
            names = set(values)
            # A part that matches a name, or is like none, stays as it is.
            matches = fnmatch.filter(names, part)
            spelled_part = part if matches else next(iter(closest(part, names)), part)
            spelled.append(spelled_part)

        rest = parts[len(spelled) :]
        better = "/".join([*spelled, *rest])
        has_markets = better != selection.pattern and self.select(
            replace(selection, pattern=better)
        )
        if has_markets:
            return f"; did you mean {better}?"
        return ""

    def interruptions(self, market: Market) -> list[Interruption]:
        """The published figures of a market, oldest first; those of its region hold for its
        zones."""
        places = (market, replace(market, zone=NO_ZONE))
        published = self.store.facts(INTERRUPTIONS, market.cloud)
        figures = (figure for figure in published if figure.market in places)
        return sorted(figures, key=lambda figure: figure.as_of)

    def table(self, markets: Iterable[Market]) -> PriceTable:
        selected = list(markets)
        stored = self.store.table(selected)
        synthetic = {str(market) for market in selected if market.is_synthetic}
        names_stored = {str(m) for m in stored.markets}
        missing = synthetic - names_stored
        if not missing:
            return stored
        with SegmentFile(bundled_prices()) as sample:
            return PriceTable.merged([stored, sample.read(missing)])

    def each(self, markets: Iterable[Market], compute: Callable[[PriceSeries], R]) -> list[R]:
        """Calls `compute` with the history of each market, in the order of their text, and returns
        the results.
        """
        selected = list(markets)
        if any(market.is_synthetic for market in selected):
            return [compute(series) for series in self.table(selected)]
        return self.store.each(selected, compute)

    def statistics(self, markets: Iterable[Market]) -> list[MarketStats]:
        """The statistics of these markets, in the order of their text."""
        selected = list(markets)
        described = partial(describe, catalog=self.catalog)
        if any(market.is_synthetic for market in selected):
            return self.each(selected, described)

        names = {str(market) for market in selected}
        by_name = (
            self.store.derived(_STATS, lambda path: _stored_statistics(path, names, self.catalog))
            or {}
        )
        missing = [market_of(name) for name in names - by_name.keys()]
        computed = self.store.each(missing, described) if missing else []
        by_name |= {str(stats.market): stats for stats in computed}

        return [by_name[name] for name in sorted(by_name)]

    def keep_statistics(self) -> None:
        """Stores the statistics of all markets next to the prices; called after prices were added.

        If that fails, on a full disk, statistics are computed when needed.
        """

        def write(path: Path, description: bytes) -> None:
            rows = []
            statistics = partial(describe, catalog=self.catalog)
            for stats in self.store.each(self.store.markets(), statistics):
                price = stats.on_demand.price if stats.on_demand else None
                rows.append((str(stats.market), price, *_figures_of(stats)))
            write_rows(path, _STATS_SCHEMA, rows, description)

        with suppress(StoreError):
            self.store.derive(_STATS, write)

    def over_segments(self, read: Callable[[list[Path], CorrectedPrices], R]) -> R:
        """Calls `read` with the Parquet files of the stored prices or, if there are none, of the
        shipped prices.

        The corrections of these prices are not in the files.
        """
        return self.store.over_segments(
            lambda paths, corrected: read(paths or [bundled_prices()], corrected)
        )

    def series(self, market: Market) -> PriceSeries:
        table = self.table([market])
        if not table.markets:
            raise UnknownMarket(
                f"no price history of {market} is stored{self._hint(Selection(str(market)))} "
                "(spotctl lab prices ls lists the stored markets)"
            )
        return next(iter(table))


def _stored_statistics(
    path: Path, names: Collection[str], catalog: Catalog
) -> dict[str, MarketStats]:
    """The statistics in a file; those compared with another on-demand price, of an earlier catalog,
    are left out.
    """
    current = {}
    for name, price, *figures in read_rows(path):
        if name in names:
            named_figures = zip(_FIGURES, figures, strict=True)
            stats = MarketStats(market_of(name), on_demand=None, **dict(named_figures))
            listed = on_demand_of(stats.market, stats.last, catalog)
            if (listed.price if listed else None) == price:
                current[name] = replace(stats, on_demand=listed)

    return current


STALE = 7 * DAY
"""Spot prices change daily; older ones say little about today's."""


@dataclass(frozen=True, slots=True)
class CloudPrices:
    """The moment of a cloud's newest stored price; None if no price is stored."""

    cloud: str
    newest: int | None

    def state(self, now: int) -> Literal["missing", "old", "fresh"]:
        """Whether the prices are of use."""
        if self.newest is None:
            return "missing"
        if now - self.newest > STALE:
            return "old"
        return "fresh"


def outdated(clouds: Iterable[CloudPrices], now: int) -> list[CloudPrices]:
    """The clouds whose prices are missing or old."""
    return [prices for prices in clouds if prices.state(now) != "fresh"]


def freshness_of(table: PriceTable, clouds: Iterable[str]) -> list[CloudPrices]:
    """How current the prices of a table are, for each of these clouds."""
    newest: dict[str, int] = {}
    ends = table.starts[1:]
    for market, end in zip(table.markets, ends.tolist(), strict=True):
        last = table.times[end - 1]
        before = newest.get(market.cloud, 0)
        newest[market.cloud] = max(int(last), before)
    return [CloudPrices(cloud, newest.get(cloud)) for cloud in clouds]


def freshness_of_stored(library: Library, markets: Iterable[Market]) -> list[CloudPrices]:
    """How current the prices of these markets are, for each of their clouds; synthetic ones have no
    age.
    """
    newest: dict[str, int] = {}
    stored = (market for market in markets if not market.is_synthetic)
    for stats in library.statistics(stored):
        newest[stats.market.cloud] = max(stats.last, newest.get(stats.market.cloud, 0))
    return [CloudPrices(cloud, moment) for cloud, moment in newest.items()]
