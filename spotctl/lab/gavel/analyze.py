"""The price analysis of `spotctl lab gavel analyze`: from files and options to the figures of chapter 6."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from bidbrain.gavel.effective_price import EvictionLoss, Movement
from bidbrain.gavel.pricing.analysis import JobType, PriceComparison, PricedJob, priced
from bidbrain.gavel.pricing.strategies import AcceleratorOffer, PriceBoard, board_of, ladder, left_out
from bidbrain.gavel.pricing.tables import LIST_TARIFFS_2020, Figure, claims, speedups, spot_discounts, transfers
from pricing_data.catalog import Catalog, InstanceType
from pricing_data.errors import BadInput, UnknownPrice
from pricing_data.fetched_rows import FetchedRows
from pricing_data.known_clouds import cloud_names, is_cloud
from pricing_data.library import Library, Selection
from pricing_data.market import LINUX, Market, api_region
from pricing_data.series import PriceSeries
from pricing_data.sources.files import read
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR, parse_duration, to_usd
from spotctl.home.errors import BadRequest
from spotctl.lab.gavel.throughputs_file import read_throughputs
from spotctl.lab.option_values import names, numbers

_MACHINE = re.compile(r"(\w+)/([^=]+)=([A-Za-z0-9-]+)x(\d+)")


@dataclass(frozen=True, slots=True)
class Sources:
    """Where prices and throughputs come from; without price files, stored markets that match the glob."""

    prices: tuple[Path, ...]
    markets: str
    on_demand: tuple[Path, ...]
    throughputs: Path
    jobs: str
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Terms:
    """The options of the comparison, as the user wrote them."""

    home: str
    baseline: str
    days: str
    starts: int
    dataset_gb: float
    checkpoint_gb: float
    dataset_on: str
    move: str
    evictions: str


@dataclass(frozen=True)
class Analysis:
    """All results; `remarks` name what could not be used, and why."""

    board: PriceBoard
    jobs: tuple[JobType, ...]
    plan: PriceComparison
    results: tuple[PricedJob, ...]
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]


def analyze(sources: Sources, terms: Terms, library: Library) -> Analysis:
    """Reads the sources and computes the figures of chapter 6."""
    jobs = _wanted(job_types(sources.throughputs), sources.jobs)
    catalog = library.catalog.merged(_list_prices(sources.on_demand)).merged(Catalog(types=_machines(sources.machines)))
    histories = _histories(sources, library)
    usable, remarks = _usable(histories, catalog, jobs)
    home = _home(terms.home)
    plan = _plan(terms, home)
    board = board_of(usable, lambda market: catalog.instance_type(market.cloud, market.instance_type), _shares(terms))
    if short := left_out(usable, board):
        remarks.append(f"left out: {len(short)} markets not known throughout the common span, such as {short[0]}")
    runnable = tuple(job for job in jobs if job.on(plan.strategies[0].accelerator) > 0)
    if len(runnable) < len(jobs):
        remarks.append(f"left out: {len(jobs) - len(runnable)} job types that do not run on {terms.baseline}")
    if not runnable:
        raise BadRequest(f"--baseline {terms.baseline}: no job type runs on it")
    results = priced(board, runnable, plan)
    remarks += _too_long(runnable, plan, results)
    figures = [*claims(results), *_figures(usable, board, runnable, plan, catalog)]
    return Analysis(board, runnable, plan, tuple(results), tuple(figures), tuple(remarks))


def job_types(path: Path) -> tuple[JobType, ...]:
    """The single-worker job types in a table of throughputs."""
    table = read_throughputs(path)
    types = tuple(
        JobType(kind.name, {name.lower(): float(rate) for name, rate in zip(table.types, rates, strict=True)})
        for kind, rates in zip(table.kinds, table.alone, strict=True)
        if kind.scale == 1
    )
    if not types:
        raise BadRequest(f"{path}: has no job type of one worker")
    return types


def _wanted(jobs: Sequence[JobType], globs: str) -> tuple[JobType, ...]:
    patterns = names(globs)
    matching = tuple(job for job in jobs if any(fnmatchcase(job.name, glob) for glob in patterns))
    if not matching:
        raise BadRequest(
            f"--jobs {globs!r}: no job type matches (known: {', '.join(job.name for job in jobs[:4])}, ...)"
        )
    return matching


def _histories(sources: Sources, library: Library) -> list[PriceSeries]:
    if sources.prices:
        table = PriceTable.of(FetchedRows.joined(list(_fetched_rows(sources.prices))).prices)
        return [series for series in table if series.market.os == LINUX and series.market.matches(sources.markets)]
    return [
        series for series in library.table(library.require(Selection(sources.markets))) if series.market.os == LINUX
    ]


def _fetched_rows(files: Iterable[Path]) -> Iterable[FetchedRows]:
    for file in files:
        try:
            for portion in read(file):
                yield portion.fetched
        except BadInput as error:
            raise BadRequest(f"{file}: {error}") from error


def _list_prices(files: Iterable[Path]) -> Catalog:
    return Catalog(prices=tuple(price for rows in _fetched_rows(files) for price in rows.on_demand))


def _machines(written: Iterable[str]) -> tuple[InstanceType, ...]:
    """Machine types that the options define, in addition to the catalog; size and memory do not matter here."""
    types = []
    for text in written:
        match = _MACHINE.fullmatch(text.strip())
        if match is None or not is_cloud(match[1]) or int(match[4]) == 0:
            raise BadRequest(f"--machine {text!r}: write azure/Standard_NC24rs_v2=P100x4")
        types.append(InstanceType(match[1], match[2], 1, 1.0, match[3], int(match[4])))
    return tuple(types)


def _usable(
    histories: Sequence[PriceSeries], catalog: Catalog, jobs: Sequence[JobType]
) -> tuple[list[PriceSeries], list[str]]:
    """The histories of machines that some job type runs on, and remarks about the others."""
    usable, unknown, others = [], set(), set()
    for series in histories:
        cloud, name = series.market.cloud, series.market.instance_type
        if not catalog.knows(cloud, name):
            unknown.add(f"{cloud}/{name}")
            continue
        accelerator = catalog.instance_type(cloud, name).accelerator
        if accelerator is not None and any(job.on(accelerator) > 0 for job in jobs):
            usable.append(series)
        else:
            others.add(f"{cloud}/{name}")
    remarks = []
    if unknown:
        names = ", ".join(sorted(unknown)[:4]) + (", ..." if len(unknown) > 4 else "")
        remarks.append(f"left out: types missing from the catalog: {names} (add them: --machine {min(unknown)}=P100x4)")
    if others:
        remarks.append(f"left out: {len(others)} types without an accelerator that the job types were measured on")
    if not usable:
        raise BadRequest(
            f"no price history of a machine that a job type runs on ({len(histories)} markets checked; --prices names"
            " files, --machine defines types)"
        )
    return usable, remarks


def _home(text: str) -> str:
    cloud, slash, region = text.strip().partition("/")
    if not slash or not is_cloud(cloud) or not region or "/" in region:
        raise BadRequest(f"--home {text!r}: is not a cloud and region (write aws/us-east-1)")
    return f"{cloud}/{api_region(cloud, region)}"


def _plan(terms: Terms, home: str) -> PriceComparison:
    days = numbers("--days", terms.days, "0.5,1,2,4")
    clouds = names(terms.dataset_on) or (home.partition("/")[0],)
    if unknown := [cloud for cloud in clouds if not is_cloud(cloud)]:
        raise BadRequest(
            f"--dataset-on {terms.dataset_on!r}: cloud {unknown[0]!r} is not one of {', '.join(cloud_names())}"
        )
    movement = Movement(terms.checkpoint_gb, terms.dataset_gb, frozenset(clouds), _hours(terms.move), LIST_TARIFFS_2020)
    return PriceComparison(ladder(home, terms.baseline), days, terms.starts, movement)


def _hours(text: str) -> float:
    return parse_duration(text, zero=True) / HOUR


@dataclass(frozen=True, slots=True)
class _Shares:
    """The useful share of machine time by cloud; unnamed clouds never evict."""

    by_cloud: dict[str, float]

    def __call__(self, market: Market) -> float:
        return self.by_cloud.get(market.cloud, 1.0)


def _shares(terms: Terms) -> _Shares:
    """Reads `aws=0.04,azure=0.1`: evictions per machine-hour, each of which costs the time of a move."""
    shares = {}
    for part in names(terms.evictions):
        cloud, _, rate = part.partition("=")
        try:
            if not is_cloud(cloud):
                raise ValueError(cloud)
            shares[cloud] = EvictionLoss(float(rate), startup_hours=_hours(terms.move)).useful_share
        except ValueError:
            raise BadRequest(
                f"--evictions {part!r}: is not a cloud with evictions per machine-hour (write aws=0.04,azure=0.1)"
            ) from None
    return _Shares(shares)


def _too_long(jobs: Sequence[JobType], plan: PriceComparison, results: Sequence[PricedJob]) -> list[str]:
    if not results:
        raise BadRequest(
            f"--days: jobs of {min(plan.days):g} days do not end within the price history; use shorter ones"
        )
    ended = {(result.job, result.days) for result in results}
    missing = {days: [job.name for job in jobs if (job.name, days) not in ended] for days in plan.days}
    return [
        f"{days:g} days: {len(names)} job types do not end within the price history, such as {names[0]}"
        for days, names in missing.items()
        if names
    ]


def _figures(
    usable: Sequence[PriceSeries], board: PriceBoard, jobs: Sequence[JobType], plan: PriceComparison, catalog: Catalog
) -> list[Figure]:
    """The figures; lowest prices are over the whole history, not only over the common span."""
    lowest = {}
    for series in usable:
        machine = catalog.instance_type(series.market.cloud, series.market.instance_type)
        offer = AcceleratorOffer(series.market, str(machine.accelerator), machine.accelerators)
        lowest[offer] = to_usd(int(series.prices.min()))
    baseline = plan.strategies[0]
    fixed = [usd for offer, usd in lowest.items() if baseline.may_use(offer)]
    tariff = LIST_TARIFFS_2020.get(baseline.home.partition("/")[0])
    shares = transfers(min(fixed), tariff) if tariff is not None and baseline.accelerator == "V100" else []

    def on_demand_usd(market: Market) -> float | None:
        try:
            return to_usd(catalog.on_demand(market, at=board.begin).price)
        except UnknownPrice:
            return None

    return [*speedups(jobs, board), *shares, *spot_discounts(lowest, on_demand_usd)]
