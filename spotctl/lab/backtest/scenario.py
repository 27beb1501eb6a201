"""`SCENARIO.yaml`: its schema, its errors, and the prices that it names, read into a `Scenario`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field

from bidbrain.billing import billing_rule
from bidbrain.eviction.hazard import evidence_of_lives, hazard_of
from bidbrain.eviction.survival import AgeProfile
from bidbrain.lab.backtest.scenario import (
    PRICE_ALONE,
    ByAvailability,
    ByHazard,
    EvictionModel,
    Scenario,
    deal,
)
from bidbrain.replay.market import Mortality
from bidbrain.strategies.base import Checkpointing, Offer, Overheads, Rent
from pricing_data.availability import AvailabilityTrace
from pricing_data.catalog import Catalog, InstanceType
from pricing_data.errors import BadInput, UnknownInstanceType, UnknownPrice
from pricing_data.fetched_rows import FetchedRows
from pricing_data.library import Library, Selection
from pricing_data.market import LINUX, NO_ZONE, Market
from pricing_data.series import PriceSeries
from pricing_data.sources.files import read
from pricing_data.sources.observations import read_availability, read_lifetimes
from pricing_data.store.table import PriceTable
from pricing_data.units import SECOND, Span, parse_time
from spotctl.home.errors import BadRequest
from spotctl.lab.option_values import found_at, parsed


def _micros(written: object) -> int:
    try:
        return parse_time(str(written))
    except BadInput as error:
        raise ValueError(str(error)) from None


WrittenMoment = Annotated[int, BeforeValidator(_micros)]


_WAYS = (
    "price, {availability: {traces: GLOB}}, {hazard: {per_hour: RATE}} or {hazard: {lifetimes: "
    "[FILE]}}"
)
# Lower ends of age bands in hours, and the weight of the mean rate in each band, in evictions.
_AGE_BANDS = (0.0, 0.25, 1.0, 3.0, 12.0, 23.0)
_AGE_WEIGHT = 1.0

HourlyRate = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _one_way(written: object) -> object:
    """`price`, or a mapping with one other model."""
    if written == "price":
        return {}
    if not isinstance(written, dict) or len(written) != 1 or None in written.values():
        raise ValueError(f"expected one of {_WAYS}")
    return written


def _one_source(written: object) -> object:
    if isinstance(written, dict) and len({"per_hour", "lifetimes"} & set(written)) != 1:
        raise ValueError("needs either per_hour (a rate, or rates by market) or lifetimes (files)")
    return written


def _for_all(written: object) -> object:
    """A single rate applies to every market."""
    if written is None or isinstance(written, dict):
        return written
    return {"*": written}


class Availability(BaseModel, extra="forbid"):
    """Trace files by glob; which market uses which trace, if names do not tell; and the machines of
    a full trace.
    """

    traces: str
    markets: dict[str, str] = {}
    machines: Annotated[int, Field(gt=0)] | None = None


class Hazards(BaseModel, extra="forbid"):
    """Evictions per machine-hour: one rate, rates by market glob (the first match counts), or files
    of lifetimes.
    """

    per_hour: Annotated[dict[str, HourlyRate] | None, BeforeValidator(_for_all)] = None
    lifetimes: Annotated[list[Path], Field(min_length=1)] | None = None


class EvictionsPart(BaseModel, extra="forbid"):
    """Why machines are evicted. Without either key, only prices evict."""

    availability: Availability | None = None
    hazard: Annotated[Hazards, BeforeValidator(_one_source)] | None = None


EvictionsKey = Annotated[EvictionsPart, BeforeValidator(_one_way)]


class OnDemandTable(BaseModel, extra="forbid"):
    """The moment at which list prices are read, and a file of them in addition to the stored
    ones."""

    file: Path | None = None
    asof: WrittenMoment


class StoredMarkets(BaseModel, extra="forbid"):
    """Markets from the price store instead of files."""

    markets: str


class FleetPart(BaseModel, extra="forbid"):
    """Machines of one type."""

    type: str
    machines: Annotated[int, Field(gt=0)]


class Jobs(BaseModel, extra="forbid"):
    """Job lengths: the work that the baseline does on demand in each of `hours`. The deadline
    multiplies them.
    """

    baseline: FleetPart
    hours: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]
    deadline: Annotated[float, Field(ge=1)] | None = None


class Markets(BaseModel, extra="forbid"):
    """Types to rent, by glob; the region if files have several; and whether a job uses one zone or
    all.
    """

    types: Annotated[list[str], Field(min_length=1)]
    region: str | None = None
    zones: Literal["each", "together"] = "each"


class CheckpointsPart(BaseModel, extra="forbid"):
    """The cost of checkpoints."""

    speed: Annotated[float, Field(gt=0, le=1)] = 0.83
    write_seconds: Annotated[float, Field(gt=0)] = 120
    interval: Literal["auto"] = "auto"


class ScenarioFile(BaseModel, extra="forbid"):
    """The whole file."""

    prices: list[Path] = []
    store: StoredMarkets | None = None
    on_demand: OnDemandTable
    train: Annotated[list[WrittenMoment], Field(min_length=2, max_length=2)]
    test: Annotated[list[WrittenMoment], Field(min_length=2, max_length=2)]
    job: Jobs
    markets: Markets
    evictions: EvictionsKey = EvictionsPart()
    billing: str = "hourly-refund"
    reliable: FleetPart | None = None
    max_vcpus: Annotated[float, Field(gt=0)]
    depth: Annotated[int, Field(gt=0)] | None = None
    startup_seconds: Annotated[float, Field(ge=0)] = 300
    lambda_seconds: Annotated[float, Field(ge=0)] = 60
    sigma_seconds: Annotated[float, Field(ge=0)] = 30
    # A constant factor on the work of all machines, the baseline included, changes no comparison.
    phi: Annotated[float, Field(gt=0, le=1)] = 1.0
    checkpoint: CheckpointsPart = CheckpointsPart()
    starts: Annotated[int, Field(gt=0)] = 200
    seed: Annotated[int, Field(ge=0)] = 0
    schemes: Annotated[list[str], Field(min_length=1)]


def load(
    path: Path, library: Library, remark: Callable[[str], None]
) -> tuple[Scenario, tuple[str, ...]]:
    """Reads a scenario and the files that it names, with a remark for the user on how these were
    read; returns it with the schemes to compare in it."""
    file = parsed(path, ScenarioFile)
    return scenario_of(file, path, library, remark), tuple(file.schemes)


def scenario_of(
    file: ScenarioFile, path: Path, library: Library, remark: Callable[[str], None]
) -> Scenario:
    """The scenario that a file at a path describes."""
    if bool(file.prices) == (file.store is not None):
        raise BadRequest(f"{path}: give either prices (files) or store (markets)")

    lists = [file.on_demand.file] if file.on_demand.file else []
    prices = tuple(price for part in _fetched_rows(path, lists) for price in part.on_demand)
    listed = library.catalog.merged(Catalog(prices=prices))

    if file.store is not None:
        markets = library.require(Selection(file.store.markets))
        table = library.table(markets)
    else:
        fetched = FetchedRows.joined(_fetched_rows(path, file.prices))
        table = PriceTable.of(fetched.prices)

    matching, region, types = list[PriceSeries](), file.markets.region, file.markets.types
    for series in table:
        own_market = series.market
        is_named = any(fnmatchcase(own_market.instance_type, glob) for glob in types)
        if own_market.os == LINUX and region in (None, own_market.region) and is_named:
            matching.append(series)

    if not matching:
        place = f" in {region}" if region else ""
        globs = ", ".join(types)
        raise BadRequest(f"{path}: markets.types: no history of a type like {globs}{place}")

    histories = tuple(matching)

    offers, machines = list[Offer](), dict[Market, InstanceType]()
    try:
        for series in histories:
            market = series.market
            offers.append(_offer(market, listed, file))
            machines[market] = listed.instance_type(market.cloud, market.instance_type)
        regime, how = evictions(path, file.evictions, machines, file.seed)
        plain = _scenario(file, histories, tuple(offers), listed)
    except (UnknownPrice, UnknownInstanceType) as error:
        raise BadRequest(f"{path}: {error}") from None

    if how:
        remark(how)
    return replace(plain, evictions=regime)


def _scenario(
    file: ScenarioFile,
    histories: tuple[PriceSeries, ...],
    offers: tuple[Offer, ...],
    listed: Catalog,
) -> Scenario:
    places = {(series.market.cloud, series.market.region) for series in histories}
    if len(places) > 1:
        names = ", ".join("/".join(place) for place in sorted(places))
        raise BadRequest(
            f"prices: a scenario covers one region, but these are from {names}; set markets.region"
        )

    cloud, region = places.pop()
    fleets = list[Rent]()
    for part in (file.job.baseline, file.reliable):
        if part is not None:
            market = Market(cloud, region, NO_ZONE, part.type)
            offer = _offer(market, listed, file)
            fleets.append(Rent(offer, part.machines, None))

    baseline, *reliable = fleets
    seconds = (file.startup_seconds, file.lambda_seconds, file.sigma_seconds)
    overheads = Overheads(*(int(each * SECOND) for each in seconds))
    write = int(file.checkpoint.write_seconds * SECOND)
    return Scenario(
        histories=histories,
        offers=offers,
        train=Span(*file.train),
        test=Span(*file.test),
        baseline=baseline,
        reliable=reliable[0] if reliable else None,
        hours=tuple(file.job.hours),
        deadline=file.job.deadline,
        most_nu=file.max_vcpus,
        depth=file.depth,
        billing=billing_rule(file.billing),
        overheads=overheads,
        checkpoints=Checkpointing(file.checkpoint.speed, write),
        starts=file.starts,
        seed=file.seed,
        zones_together=file.markets.zones == "together",
    )


def _offer(market: Market, listed: Catalog, file: ScenarioFile) -> Offer:
    price = listed.on_demand(market, at=file.on_demand.asof).price
    machine = listed.instance_type(market.cloud, market.instance_type)
    vcpus = float(machine.vcpus)
    return Offer(market, vcpus, price)


def _fetched_rows(scenario: Path, files: list[Path]) -> Iterator[FetchedRows]:
    for file in files:
        for portion in read(found_at(scenario, file)):
            yield portion.fetched


def evictions(
    scenario: Path, part: EvictionsPart, machines: Mapping[Market, InstanceType], seed: int
) -> tuple[EvictionModel, str]:
    """The eviction model, and a remark for the user."""
    if part.availability is not None:
        traces, by_market = _traces(scenario, part.availability.traces), part.availability.markets
        own, others = dict[Market, AvailabilityTrace](), list[Market]()
        for market, machine in machines.items():
            fits = _fitting(market, machine, traces, by_market)
            if fits:
                own[market] = fits[0]
            else:
                others.append(market)
        remark = (
            f"availability: {len(own)} markets have their own trace, {len(others)} get an assigned "
            "one"
        )
        assigned = {**own, **deal(others, traces)}
        return ByAvailability(assigned, part.availability.machines), remark
    if part.hazard is None:
        return PRICE_ALONE, ""
    if part.hazard.lifetimes is not None:
        lives = _of_lives(scenario, part.hazard.lifetimes, tuple(machines))
        return ByHazard(lives, seed), ""

    rates, mortalities = part.hazard.per_hour or {}, dict[Market, Mortality]()
    for market in machines:
        rate = next((rate for pattern, rate in rates.items() if market.matches(pattern)), None)
        if rate is None:
            raise BadRequest(
                f"{scenario}: evictions.hazard.per_hour: no rate for {market} (add '*': RATE for "
                "all others)"
            )
        mortalities[market] = Mortality(rate)

    return ByHazard(mortalities, seed), ""


def _fitting(
    market: Market,
    machine: InstanceType,
    traces: Sequence[AvailabilityTrace],
    by_market: dict[str, str],
) -> Sequence[AvailabilityTrace]:
    """The traces of a market, longest first: as the file says, else those named after its zone and
    accelerators.
    """
    kind = f"{machine.accelerator or ''}_{machine.accelerators}".lower()
    own_name, fits = f"{market.zone}_{kind}", list[AvailabilityTrace]()
    if machine.accelerators:
        fits = [trace for trace in traces if own_name in trace.name]

    given = next((each for each in by_market.items() if market.matches(each[0])), None)
    if given is not None:
        pattern, name = given
        fits = [trace for trace in traces if fnmatchcase(trace.name, name)]
        if not fits:
            raise BadRequest(
                f"evictions.availability.markets: no trace matches {name!r}, given for {pattern!r}"
            )
    return sorted(fits, key=lambda trace: (-len(trace) * trace.gap_seconds, trace.name))


def _traces(scenario: Path, pattern: str) -> list[AvailabilityTrace]:
    for start in (Path(), scenario.parent):
        # Path.glob takes no absolute pattern.
        names = glob(str(start / pattern), recursive=True)  # noqa: PTH207
        paths = sorted(path for path in map(Path, names) if path.is_file())
        if paths:
            return [read_availability(path) for path in paths]
    raise BadRequest(f"{scenario}: evictions.availability.traces: no file matches {pattern!r}")


def _of_lives(
    scenario: Path, files: Sequence[Path], markets: Sequence[Market]
) -> dict[Market, Mortality]:
    lives = [life for file in files for life in read_lifetimes(found_at(scenario, file))]
    ages = AgeProfile.of(lives, _AGE_BANDS, _AGE_WEIGHT)
    evidence, mortalities = evidence_of_lives(lives, ages), {}
    for market in markets:
        hazard = hazard_of(market, evidence, (), ages)
        if hazard is None:
            raise BadRequest(
                f"{scenario}: evictions.hazard.lifetimes: no lifetimes from {market.cloud}"
            )
        mortalities[market] = Mortality(hazard.rate[0], ages)

    return mortalities
