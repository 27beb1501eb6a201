"""The price analysis of `spotctl lab gavel analyze`: from a scenario file to the figures of chapter
6.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from bidbrain.cost import EvictionLoss
from bidbrain.lab.gavel.movement import Movement
from bidbrain.lab.gavel.pricing_strategies import (
    AcceleratorOffer,
    PriceBoard,
    board_of,
    ladder,
    left_out,
)
from bidbrain.lab.gavel.pricing_tables import (
    LIST_TARIFFS_2020,
    Figure,
    JobType,
    PriceComparison,
    PricedJob,
    claims,
    priced,
    speedups,
    spot_discounts,
    transfers,
)
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
from spotctl.lab.option_values import found_at, parsed

_ACCELERATORS = re.compile(r"([A-Za-z0-9-]+)x(\d+)")


class PriceAnalysisFile(BaseModel, extra="forbid"):
    """The scenario file: where prices and throughputs come from, and the terms of the comparison.

    Without price files, stored markets that match the glob are used. Job lengths are days on the
    `baseline`, evictions are per machine-hour, and `move` is what each of them and each move costs:
    time that is paid, without progress.
    """

    throughputs: Path
    prices: list[Path] = []
    markets: str = "*"
    on_demand: list[Path] = []
    machines: dict[str, str] = {}
    jobs: Annotated[list[str], Field(min_length=1)] = ["*"]
    home: str = "aws/us-east-1"
    baseline: str = "V100"
    days: Annotated[
        list[Annotated[float, Field(gt=0, allow_inf_nan=False)]], Field(min_length=1)
    ] = [0.5, 1, 2, 4, 7]
    starts: Annotated[int, Field(gt=0)] = 20
    dataset_gb: float = 150
    checkpoint_gb: float = 0.098
    dataset_on: list[str] = []
    move: str = "5m"
    evictions: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = {}


@dataclass(frozen=True)
class Analysis:
    """All results; `remarks` name what could not be used, and why."""

    board: PriceBoard
    jobs: tuple[JobType, ...]
    plan: PriceComparison
    results: tuple[PricedJob, ...]
    figures: tuple[Figure, ...]
    remarks: tuple[str, ...]


def analyze(path: Path, library: Library) -> Analysis:
    """Reads a scenario file and what it names, and computes the figures of chapter 6."""
    return analysis(parsed(path, PriceAnalysisFile), path, library)


def analysis(
    file: PriceAnalysisFile, path: Path, library: Library, types: tuple[JobType, ...] | None = None
) -> Analysis:
    """The figures of a scenario that stands at `path`; `types` take the place of those that it
    names.
    """
    jobs = types or _job_types(found_at(path, file.throughputs), file.jobs)
    lists = tuple(price for rows in _fetched_rows(path, file.on_demand) for price in rows.on_demand)
    catalog = library.catalog.merged(Catalog(prices=lists))
    catalog = catalog.merged(Catalog(types=_machines(file.machines)))

    if file.prices:
        fetched = FetchedRows.joined(list(_fetched_rows(path, file.prices)))
        table = PriceTable.of(fetched.prices)
        stored = [series for series in table if series.market.matches(file.markets)]
    else:
        markets = library.require(Selection(file.markets))
        stored = list(library.table(markets))

    histories = [series for series in stored if series.market.os == LINUX]
    usable, remarks = _usable(histories, catalog, jobs)
    plan = _plan(file)
    board = board_of(
        usable,
        lambda market: catalog.instance_type(market.cloud, market.instance_type),
        _shares(file),
    )

    short = left_out(usable, board)
    if short:
        remarks.append(
            f"left out: {len(short)} markets not known throughout the common span, such as "
            f"{short[0]}"
        )

    baseline = plan.strategies[0].accelerator
    runnable = tuple(job for job in jobs if job.on(baseline) > 0)
    lacking = len(jobs) - len(runnable)
    if lacking:
        remarks.append(f"left out: {lacking} job types that do not run on {file.baseline}")
    if not runnable:
        raise BadRequest(f"baseline: no job type runs on {file.baseline}")

    results = priced(board, runnable, plan)
    remarks += _too_long(runnable, plan, results)
    figures = [*claims(results), *_figures(usable, board, runnable, plan, catalog)]
    lines = tuple(remarks)
    return Analysis(board, runnable, plan, tuple(results), tuple(figures), lines)


def _job_types(path: Path, patterns: Sequence[str]) -> tuple[JobType, ...]:
    """The single-worker job types in a table of throughputs that match a pattern."""
    table, types = read_throughputs(path), list[JobType]()
    names = [name.lower() for name in table.types]
    for kind, rates in zip(table.kinds, table.alone, strict=True):
        if kind.scale == 1:
            by_type = {name: float(rate) for name, rate in zip(names, rates, strict=True)}
            types.append(JobType(kind.name, by_type))

    if not types:
        raise BadRequest(f"{path}: has no job type of one worker")

    matching = tuple(job for job in types if any(fnmatchcase(job.name, glob) for glob in patterns))
    if not matching:
        asked, known = ", ".join(patterns), ", ".join(job.name for job in types[:4])
        raise BadRequest(f"jobs: no job type matches {asked} (known: {known}, ...)")

    return matching


def _fetched_rows(scenario: Path, files: Iterable[Path]) -> Iterable[FetchedRows]:
    for file in files:
        try:
            for portion in read(found_at(scenario, file)):
                yield portion.fetched
        except BadInput as error:
            raise BadRequest(f"{file}: {error}") from error


def _machines(written: Mapping[str, str]) -> tuple[InstanceType, ...]:
    """Machine types that the file defines, in addition to the catalog; size and memory do not
    matter here.
    """
    types = list[InstanceType]()
    for name, accelerators in written.items():
        cloud, _, kind = name.partition("/")
        match = _ACCELERATORS.fullmatch(accelerators)
        if match is None or not kind or not is_cloud(cloud) or int(match[2]) == 0:
            raise BadRequest(
                f"machines: {name}: {accelerators} is not azure/Standard_NC24rs_v2: P100x4"
            )
        accelerator, number = match[1], int(match[2])
        types.append(InstanceType(cloud, kind, 1, 1.0, accelerator, number))

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
        remarks.append(
            f"left out: types missing from the catalog: {names} (add them: machines: "
            f"{{{min(unknown)}: P100x4}})"
        )

    if others:
        remarks.append(
            f"left out: {len(others)} types without an accelerator that the job types were "
            "measured on"
        )

    if not usable:
        raise BadRequest(
            f"no price history of a machine that a job type runs on ({len(histories)} markets "
            "checked; `prices` names files, `machines` defines types)"
        )

    return usable, remarks


def _plan(file: PriceAnalysisFile) -> PriceComparison:
    cloud, slash, region = file.home.strip().partition("/")
    if not slash or not is_cloud(cloud) or not region or "/" in region:
        raise BadRequest(f"home: {file.home!r} is not a cloud and region (write aws/us-east-1)")

    home = f"{cloud}/{api_region(cloud, region)}"
    clouds = file.dataset_on or [cloud]
    for name in clouds:
        if not is_cloud(name):
            known = ", ".join(cloud_names())
            raise BadRequest(f"dataset_on: cloud {name!r} is not one of {known}")

    movement = Movement(
        file.checkpoint_gb,
        file.dataset_gb,
        frozenset(clouds),
        parse_duration(file.move, zero=True) / HOUR,
        LIST_TARIFFS_2020,
    )

    strategies, days = ladder(home, file.baseline), tuple(dict.fromkeys(file.days))
    return PriceComparison(strategies, days, file.starts, movement)


def _shares(file: PriceAnalysisFile) -> Callable[[Market], float]:
    """The useful share of machine time by cloud: each eviction costs the time of a move. Unnamed
    clouds never evict.
    """
    hours, shares = parse_duration(file.move, zero=True) / HOUR, dict[str, float]()
    for cloud, rate in file.evictions.items():
        if not is_cloud(cloud):
            known = ", ".join(cloud_names())
            raise BadRequest(f"evictions: cloud {cloud!r} is not one of {known}")
        loss = EvictionLoss(rate, startup_hours=hours)
        shares[cloud] = loss.useful_share

    return lambda market: shares.get(market.cloud, 1.0)


def _too_long(
    jobs: Sequence[JobType], plan: PriceComparison, results: Sequence[PricedJob]
) -> list[str]:
    if not results:
        least = min(plan.days)
        raise BadRequest(
            f"days: jobs of {least:g} days do not end within the price history; use shorter ones"
        )

    ended, remarks = {(result.job, result.days) for result in results}, list[str]()
    for days in plan.days:
        names = [job.name for job in jobs if (job.name, days) not in ended]
        if names:
            types = f"{len(names)} job types do not end within the price history"
            remarks.append(f"{days:g} days: {types}, such as {names[0]}")
    return remarks


def _figures(
    usable: Sequence[PriceSeries],
    board: PriceBoard,
    jobs: Sequence[JobType],
    plan: PriceComparison,
    catalog: Catalog,
) -> list[Figure]:
    """The figures; lowest prices are over the whole history, not only over the common span."""
    lowest = dict[AcceleratorOffer, float]()
    for series in usable:
        market = series.market
        machine = catalog.instance_type(market.cloud, market.instance_type)
        offer = AcceleratorOffer(market, str(machine.accelerator), machine.accelerators)
        least = int(series.prices.min())
        lowest[offer] = to_usd(least)

    baseline, figures = plan.strategies[0], [*speedups(jobs, board)]
    fixed = [usd for offer, usd in lowest.items() if baseline.may_use(offer)]
    cloud, _, _ = baseline.home.partition("/")
    tariff = LIST_TARIFFS_2020.get(cloud)
    if tariff is not None and baseline.accelerator == "V100":
        figures += transfers(min(fixed), tariff)

    def on_demand_usd(market: Market) -> float | None:
        try:
            return to_usd(catalog.on_demand(market, at=board.begin).price)
        except UnknownPrice:
            return None

    return [*figures, *spot_discounts(lowest, on_demand_usd)]
