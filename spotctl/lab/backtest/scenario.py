"""`SCENARIO.yaml`: its schema, its errors, and the prices that it names, read into a `Scenario`."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from bidbrain.backtest.scenario import Scenario
from bidbrain.billing import billing_rule
from bidbrain.strategies.base import Offer, Rent
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.values import Overheads
from pricing_data.catalog import Catalog
from pricing_data.errors import BadInput, UnknownInstanceType, UnknownPrice
from pricing_data.fetched_rows import FetchedRows
from pricing_data.library import Library, Selection
from pricing_data.market import LINUX, NO_ZONE, Market
from pricing_data.series import PriceSeries
from pricing_data.sources.files import read
from pricing_data.store.table import PriceTable
from pricing_data.units import SECOND, Span, parse_time
from spotctl.files import yaml_file
from spotctl.home.errors import BadRequest
from spotctl.lab.backtest.scenario_evictions import EvictionsKey, EvictionsPart, TypedMarket, evictions, found_at


def _micros(written: object) -> int:
    try:
        return parse_time(str(written))
    except BadInput as error:
        raise ValueError(str(error)) from None


WrittenMoment = Annotated[int, BeforeValidator(_micros)]


class OnDemandTable(BaseModel, extra="forbid"):
    """The moment at which list prices are read, and a file of them in addition to the stored ones."""

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
    """Job lengths: the work that the baseline does on demand in each of `hours`."""

    baseline: FleetPart
    hours: Annotated[list[Annotated[float, Field(gt=0)]], Field(min_length=1)]


class Markets(BaseModel, extra="forbid"):
    """Types to rent, by glob; the region if files have several; and whether a job uses one zone or all."""

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
    startup_seconds: Annotated[float, Field(ge=0)] = 300
    lambda_seconds: Annotated[float, Field(ge=0)] = 60
    sigma_seconds: Annotated[float, Field(ge=0)] = 30
    # A constant factor on the work of all machines, the baseline included, changes no comparison.
    phi: Annotated[float, Field(gt=0, le=1)] = 1.0
    checkpoint: CheckpointsPart = CheckpointsPart()
    starts: Annotated[int, Field(gt=0)] = 200
    seed: Annotated[int, Field(ge=0)] = 0
    schemes: Annotated[list[str], Field(min_length=1)]


@dataclass(frozen=True)
class LoadedScenario:
    """A scenario, the schemes to compare in it, and remarks for the user about how the files were read."""

    scenario: Scenario
    schemes: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def load(path: Path, library: Library) -> LoadedScenario:
    """Reads a scenario and the files that it names."""
    file = parsed(path, ScenarioFile)
    if bool(file.prices) == (file.store is not None):
        raise BadRequest(f"{path}: give either prices (files) or store (markets)")
    listed = library.catalog.merged(_list_prices(path, file.on_demand))
    histories = _histories(path, file, library)
    try:
        offers = tuple(_offer(series.market, listed, file) for series in histories)
        regime, remark = evictions(path, file.evictions, _typed_markets(offers, listed), file.seed)
        scenario = replace(_scenario(file, histories, offers, listed), evictions=regime)
        return LoadedScenario(scenario, tuple(file.schemes), (remark,) if remark else ())
    except (UnknownPrice, UnknownInstanceType) as error:
        raise BadRequest(f"{path}: {error}") from None


FileModel = TypeVar("FileModel", bound=BaseModel)


def parsed(path: Path, schema: type[FileModel]) -> FileModel:
    """The content of a YAML file, as its schema has it; the first error names its line."""
    file = yaml_file.read(path)
    try:
        return schema.model_validate(file.content)
    except ValidationError as error:
        # Unknown keys come first: they are often misspelled versions of missing ones.
        first = sorted(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")[0]
        where = f"{path}:{file.line(first['loc'])}: {'.'.join(map(str, first['loc'])) or 'the file'}"
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise BadRequest(f"{where}: {first['msg'].removeprefix('Value error, ')}{more}") from None


def _scenario(
    file: ScenarioFile, histories: tuple[PriceSeries, ...], offers: tuple[Offer, ...], listed: Catalog
) -> Scenario:
    cloud, region = _place(histories)

    def fleet(part: FleetPart) -> Rent:
        market = Market(cloud, region, NO_ZONE, part.type)
        return Rent(_offer(market, listed, file), part.machines, None)

    return Scenario(
        histories=histories,
        offers=offers,
        train=Span(*file.train),
        test=Span(*file.test),
        baseline=fleet(file.job.baseline),
        reliable=fleet(file.reliable) if file.reliable else None,
        hours=tuple(file.job.hours),
        most_nu=file.max_vcpus,
        billing=billing_rule(file.billing),
        overheads=Overheads(
            int(file.startup_seconds * SECOND), int(file.lambda_seconds * SECOND), int(file.sigma_seconds * SECOND)
        ),
        checkpoints=Checkpointing(file.checkpoint.speed, int(file.checkpoint.write_seconds * SECOND)),
        starts=file.starts,
        seed=file.seed,
        zones_together=file.markets.zones == "together",
    )


def _typed_markets(offers: tuple[Offer, ...], listed: Catalog) -> list[TypedMarket]:
    return [
        TypedMarket(offer.market, listed.instance_type(offer.market.cloud, offer.market.instance_type))
        for offer in offers
    ]


def _offer(market: Market, listed: Catalog, file: ScenarioFile) -> Offer:
    price = listed.on_demand(market, at=file.on_demand.asof)
    machine = listed.instance_type(market.cloud, market.instance_type)
    return Offer(market, float(machine.vcpus), price.price)


def _histories(path: Path, file: ScenarioFile, library: Library) -> tuple[PriceSeries, ...]:
    if file.store is not None:
        table = library.table(library.require(Selection(file.store.markets)))
    else:
        table = PriceTable.of(FetchedRows.joined(_fetched_rows(path, file.prices)).prices)
    matching = [
        series
        for series in table
        if series.market.os == LINUX
        and file.markets.region in (None, series.market.region)
        and any(fnmatchcase(series.market.instance_type, glob) for glob in file.markets.types)
    ]
    if not matching:
        place = f" in {file.markets.region}" if file.markets.region else ""
        raise BadRequest(f"{path}: markets.types: no history of a type like {', '.join(file.markets.types)}{place}")
    return tuple(matching)


def _place(histories: tuple[PriceSeries, ...]) -> tuple[str, str]:
    places = {(series.market.cloud, series.market.region) for series in histories}
    if len(places) > 1:
        names = ", ".join("/".join(place) for place in sorted(places))
        raise BadRequest(f"prices: a scenario covers one region, but these are from {names}; set markets.region")
    return places.pop()


def _list_prices(path: Path, table: OnDemandTable) -> Catalog:
    files = [table.file] if table.file else []
    return Catalog(prices=tuple(price for part in _fetched_rows(path, files) for price in part.on_demand))


def _fetched_rows(scenario: Path, files: list[Path]) -> Iterator[FetchedRows]:
    for file in files:
        for portion in read(found_at(scenario, file)):
            yield portion.fetched
