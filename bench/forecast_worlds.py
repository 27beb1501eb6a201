"""The markets in which forecasts are checked: the shipped one, and each price and availability
record of a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from bidbrain.eviction.hazard import Evidence, Hazard, evidence_of_lives, hazard_of
from bidbrain.eviction.survival import AGELESS, AgeProfile, Exposure, exposure_of_lives
from bidbrain.replay.market import Capacity, Mortality
from bidbrain.strategies.known_spells import KnownSpells
from pricing_data.availability import AvailabilitySpan, AvailabilityTrace
from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.ingest import ingest
from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.sources.layouts import ON_DEMAND
from pricing_data.sources.observations import read_availability, read_lifetimes
from pricing_data.store.store import PriceStore
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, SECOND, parse_time
from spotctl.files.job.programs import Stop, Training
from spotctl.files.job.resources import Image, Reliable, Resources
from spotctl.files.job.spec import JobSpec, Range
from spotctl.home.cloud import rented_clouds
from spotctl.planning.facts import LEARNING_PERIOD

NO_RELIABLE = Reliable(0)
_SEED = 31
_EPOCH = parse_time("2023-01-01")


@dataclass(frozen=True)
class World:
    """A market with a known future. Starts are drawn between `begin` and `end`.

    `mortality` is how machines really die in the market, which no forecast sees; `evidence` is what
    was observed of it.
    """

    name: str
    table: PriceTable
    catalog: Catalog
    spec: JobSpec
    begin: int
    end: int
    mortality: Mapping[Market, Mortality] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()
    ages: AgeProfile = AGELESS
    capacities: Mapping[Market, Capacity] = field(default_factory=dict)

    def spells(self, at: int) -> dict[Market, KnownSpells]:
        """The spells that the recorded availability until a moment shows, by market."""
        return {
            market: KnownSpells.of(_spans(market, known, at), at)
            for market, known in self.capacities.items()
        }

    def hazard(self, market: Market) -> Hazard | None:
        """Hazard of a market by the evidence; None where its availability is recorded or only its
        price evicts.
        """
        return hazard_of(market, self.evidence, (), self.ages) if self.evidence else None


def job(
    cloud: str,
    types: tuple[str, ...],
    regions: tuple[str, ...] = (),
    strategy: str = "auto",
    reliable: Reliable = NO_RELIABLE,
) -> JobSpec:
    """A trainer on up to eight machines of some types, with an image that ran on these when prices
    were recorded.
    """
    resources = Resources((cloud,), Range(1, 8), reliable, types, regions=regions)
    images: dict[str, Any] = {cloud: "recorded"} if cloud in rented_clouds() else {}
    image = Image(**images)
    return JobSpec(
        "job", Training("mf", Stop(clocks=10**6)), resources, Path(), image=image, strategy=strategy
    )


def shipped(strategy: str = "auto") -> World:
    """The synthetic market in the wheel."""
    library = Library(PriceStore(Path("/nonexistent")))
    table = library.table(library.require(Selection(clouds=("local",))))
    begin, end = _span(table)
    spec = job("local", ("c4.2xlarge",), ("sim-east",), strategy, Reliable(1, "m3.medium"))
    name = "shipped market" if strategy == "auto" else f"shipped market, {strategy}"
    return World(name, table, library.catalog, spec, begin + LEARNING_PERIOD, end)


def price_records(folder: Path, work: Path) -> Iterator[World]:
    """Each recorded price file, with evictions that are drawn where prices do not evict."""
    prices, listed = folder / "prices", folder / "prices" / "aws_on_demand_linux.csv.gz"
    aws = {
        "aws_us-east-1_2016-02-24_2016-04-05": (("c4.*", "m4.*", "m3.*"), ()),
        "aws_gpu_2019-12_2020-03": (("p3.*",), ("us-west-2", "us-east-1")),
        "aws_sa-east-1_2019-12_2020-06": (("c4.*", "m4.*", "r4.*"), ()),
    }
    for number, (name, (types, regions)) in enumerate(aws.items()):
        library = imported(work / name, prices / f"{name}.csv.gz", listed)
        if "2016" in name:
            yield _bidding(name, library, types)
        else:
            yield _dying(name, library, job("aws", types, regions), number)
    google = imported(work / "gcp", prices / "gcp_2022-08_2024-12.csv.gz")
    spec = job("gcp", ("n2-*", "c2-*", "n1-*", "e2-*"), ("us-central1", "us-east1"))
    lives = folder / "availability" / "dime2020_gcp_lifetimes.csv"
    yield _by_lives("gcp_2022-08_2024-12", google, spec, lives)
    azure = imported(work / "azure", prices / "azure_gpu_2020-02_2020-03.csv.gz")
    yield _dying("azure_gpu_2020-02_2020-03", azure, job("azure", ()), 7, _with_list_prices(azure))


def availability_records(folder: Path) -> Iterator[World]:
    """Each availability trace as the capacity of a market with a price of 30% of on demand."""
    for path in sorted((folder / "availability").glob("*.json.gz")):
        trace = read_availability(path)
        if trace.preemptions:
            yield _traced(path.name.removesuffix(".json.gz"), trace)


def _traced(name: str, trace: AvailabilityTrace) -> World:
    market, listed = Market("aws", "us-west-2", "us-west-2a", "p3.2xlarge"), 3_060_000_000
    times = _EPOCH + np.arange(len(trace), dtype=np.int64) * trace.gap_seconds * SECOND
    kept = np.flatnonzero(np.diff(trace.up, prepend=-1))
    machines = trace.up * 8 // max(trace.wanted, 1)
    ends = np.array([times[0], times[-1]], dtype=np.int64)
    series = PriceSeries(market, ends, np.full(2, listed * 3 // 10, dtype=np.int64))
    catalog = Catalog(
        (InstanceType("aws", "p3.2xlarge", 8, 61.0, "V100", 1),),
        (OnDemandPrice("aws", "us-west-2", "p3.2xlarge", "linux", _EPOCH, listed, "a list"),),
    )
    capacity = Capacity(times[kept], machines[kept].astype(np.int64))
    learn = min(7 * DAY, (int(times[-1]) - _EPOCH) // 2)
    spec = job("aws", ("p3.2xlarge",))
    return World(
        name, _table([series]), catalog, spec, _EPOCH + learn, int(times[-1]),
        capacities={market: capacity},
    )  # fmt: skip


def _spans(market: Market, capacity: Capacity, at: int) -> Iterator[AvailabilitySpan]:
    times, opened = capacity.openings
    for since, until, up in zip(
        times.tolist(), [*times[1:].tolist(), at], opened.tolist(), strict=True
    ):
        if since < at:
            yield AvailabilitySpan(market, since, min(until, at), int(up), 1, "", "the record")


def _bidding(name: str, library: Library, types: tuple[str, ...]) -> World:
    """A market in which bids matter is billed as clouds did then: as the local market does."""
    known = [
        series
        for series in library.select(Selection(clouds=("aws",), types=types))
        if series.os == "linux"
    ]
    histories = library.table(known)
    local = [
        PriceSeries(replace(series.market, cloud="local"), series.times, series.prices)
        for series in histories
    ]
    listed = library.catalog
    catalog = Catalog(
        tuple(replace(type_, cloud="local") for type_ in listed.types if type_.cloud == "aws"),
        tuple(replace(price, cloud="local") for price in listed.prices if price.cloud == "aws"),
    )
    table = _table(local)
    begin, end = _span(table)
    spec = job("local", types, reliable=Reliable(1, "m3.medium"))
    return World(name, table, catalog, spec, begin + LEARNING_PERIOD, end)


def _dying(
    name: str, library: Library, spec: JobSpec, number: int, catalog: Catalog | None = None
) -> World:
    """Machines die at rates that differ by market; of each market some machines were observed."""
    table = library.table(library.select(Selection(clouds=spec.resources.clouds)))
    chance = np.random.default_rng([_SEED, number])
    rates = {market: float(chance.lognormal(np.log(0.06), 0.5)) for market in table.markets}
    hours = 100.0
    evidence = tuple(
        Evidence(market, Exposure(float(chance.poisson(rate * hours)), hours))
        for market, rate in rates.items()
    )
    begin, end = _span(table)
    mortality = {market: Mortality(rate) for market, rate in rates.items()}
    learn = min(LEARNING_PERIOD, (end - begin) // 2)
    return World(
        name, table, catalog or library.catalog, spec, begin + learn, end, mortality, evidence
    )


def _by_lives(name: str, library: Library, spec: JobSpec, path: Path) -> World:
    """Machines die as recorded ones did: half of the records are the evidence, and the others the
    truth.
    """
    table = library.table(library.select(Selection(clouds=spec.resources.clouds)))
    lives = read_lifetimes(path)
    bands = (0.0, 1.0, 6.0, 23.0)
    ages = AgeProfile.of(lives[::2], bands, 1.0)
    truth, profile = exposure_of_lives(lives[1::2]), AgeProfile.of(lives[1::2], bands, 1.0)
    rate = truth.evictions / truth.hours
    mortality = {market: Mortality(rate, profile) for market in table.markets}
    begin, end = _span(table)
    return World(
        name,
        table,
        library.catalog,
        spec,
        begin + 60 * DAY,
        end,
        mortality,
        tuple(evidence_of_lives(lives[::2], ages)),
        ages,
    )


def imported(folder: Path, *files: Path) -> Library:
    """A store of the rows of some files."""
    store = PriceStore(folder)
    for path in files:
        ingest(store, path, layout=ON_DEMAND.name if "on_demand" in path.name else None)
    return Library(store)


def _with_list_prices(library: Library) -> Catalog:
    """Machines of the record by its prices: no list price is recorded with it, so three times the
    first spot price.
    """
    table = library.table(library.select(Selection(clouds=("azure",))))
    known = {(series.market.region, series.market.instance_type): series for series in table}
    types = {
        name: InstanceType("azure", name, _azure_size(name), 56.0, "GPU", 1) for _, name in known
    }
    return Catalog(
        tuple(types.values()),
        tuple(
            OnDemandPrice(
                "azure", region, name, "linux", series.first, 3 * int(series.prices[0]), "assumed"
            )
            for (region, name), series in known.items()
        ),
    )


def _azure_size(name: str) -> int:
    """Standard_NC24rs_v2 has 24 vCPUs."""
    return int("".join(takewhile(str.isdigit, name.removeprefix("Standard_NC"))))


def _span(table: PriceTable) -> tuple[int, int]:
    return int(table.times.min()), int(table.times.max())


def _table(histories: Iterable[PriceSeries]) -> PriceTable:
    ordered = sorted(histories, key=lambda series: str(series.market))
    return PriceTable(
        tuple(series.market for series in ordered),
        np.cumsum([0, *(len(series) for series in ordered)], dtype=np.int64),
        np.concatenate([series.times for series in ordered]),
        np.concatenate([series.prices for series in ordered]),
    )
