"""The scenario file of `backtest regions`: its schema, and the records and prices that it names,
read into windows.
"""

from glob import glob
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field

from bidbrain.arrays import Floats
from bidbrain.lab.regions.policies import ELASTIC_NAMES, NAMES
from bidbrain.lab.regions.replay import RegionJob, Rules, Window, ZonesRecord
from pricing_data.availability import AvailabilityTrace
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import FetchedRows
from pricing_data.series import Ints, PriceSeries
from pricing_data.sources.files import read
from pricing_data.sources.observations import ZonePrice, read_zone_prices, read_zones
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND, parse_duration
from spotctl.home.errors import BadRequest
from spotctl.lab.option_values import found_at, parsed

HourCount = Annotated[float, Field(ge=0, lt=100_000)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


class RegionsJobPart(BaseModel, extra="forbid"):
    """A job: its work on one set of machines, and its deadline after the start."""

    work_hours: Annotated[float, Field(gt=0, lt=100_000)]
    deadline_hours: Annotated[float, Field(gt=0, lt=100_000)]
    checkpoint_gb: Usd = 50
    start_delay_hours: HourCount = 0.2
    machines: Annotated[int, Field(ge=1)] = 1
    at_least: Annotated[int, Field(ge=1)] | None = None

    def job(self) -> RegionJob:
        """The job in microseconds."""
        work, deadline, delay = (
            round(hours * HOUR)
            for hours in (self.work_hours, self.deadline_hours, self.start_delay_hours)
        )
        return RegionJob(
            work, deadline, delay, self.checkpoint_gb, self.machines, self.at_least or self.machines
        )


class EveryPart(BaseModel, extra="forbid"):
    """Starts at even distances, as long as a job fits into the record."""

    every: str


class MovingPart(BaseModel, extra="forbid"):
    """The cost of moving the checkpoint."""

    usd_per_gb: Usd = 0.02
    pairs: dict[str, Usd] = {}
    within_region: Usd = 0
    hours: HourCount = 0


class ProbePart(BaseModel, extra="forbid"):
    """The cost of a successful probe."""

    minutes: Annotated[float, Field(ge=0, le=60)] = 1


class RegionsFile(BaseModel, extra="forbid"):
    """The whole file."""

    traces: Annotated[list[str], Field(min_length=1), BeforeValidator(_listed)]
    prices: Annotated[list[Path], Field(min_length=1), BeforeValidator(_listed)]
    on_demand: Annotated[float, Field(gt=0)] | None = None
    zones: list[str] | None = None
    job: Annotated[list[RegionsJobPart], Field(min_length=1), BeforeValidator(_listed)]
    starts: list[HourCount] | EveryPart = EveryPart(every="12h")
    rules: Literal["plain", "published"] = "plain"
    moving: MovingPart = MovingPart()
    probe: ProbePart = ProbePart()
    policies: Annotated[list[str], Field(min_length=1)] | None = None


def load(path: Path) -> tuple[list[Window], tuple[str, ...]]:
    """Reads a scenario and the files that it names: the windows to play, and under which
    policies."""
    file = parsed(path, RegionsFile)
    policies = _policies(path, file)
    record = _record(path, file)
    pairs = dict[frozenset[str], float]()

    for name, usd in file.moving.pairs.items():
        if len(name.split()) != 2:
            raise BadRequest(
                f"{path}: moving.pairs: {name!r} is not two regions (write 'us-east-1 us-east-2: "
                "0.01')"
            )
        pairs[frozenset(name.split())] = usd

    rules = Rules(
        file.rules == "published",
        file.moving.usd_per_gb,
        pairs,
        file.moving.within_region,
        moving_time=round(file.moving.hours * HOUR),
        probe=round(file.probe.minutes * MINUTE),
    )

    windows = [
        Window.of(record, start, part.job(), rules)
        for part in file.job
        for start in _starts(path, file.starts, record, part.job())
    ]

    for window in windows:
        if not window.rules.published and not window.job.possible(window.record.gap):
            work, deadline = window.job.work / HOUR, window.job.deadline / HOUR
            raise BadRequest(
                f"{path}: job: {work:g} hours of work and a start do not fit into {deadline:g} "
                "hours; allow more time"
            )

    return windows, policies


def _policies(path: Path, file: RegionsFile) -> tuple[str, ...]:
    elastic = any(part.at_least is not None and part.at_least < part.machines for part in file.job)
    possible = ELASTIC_NAMES if elastic else NAMES
    for name in file.policies or ():
        if name not in NAMES:
            raise BadRequest(f"{path}: policies: {name!r} is unknown; use {', '.join(NAMES)}")
        if name not in possible:
            raise BadRequest(
                f"{path}: policies: {name!r} needs all machines at once; use {', '.join(possible)}"
            )

    return tuple(dict.fromkeys(file.policies or possible))


def _starts(
    path: Path, starts: list[float] | EveryPart, record: ZonesRecord, job: RegionJob
) -> list[int]:
    latest = record.steps - job.steps(record.gap)
    if latest < 0:
        longest = record.steps * record.gap / HOUR
        raise BadRequest(
            f"{path}: job: {job.deadline / HOUR:g} hours are longer than the record of "
            f"{longest:.1f} hours"
        )
    if isinstance(starts, EveryPart):
        try:
            every = max(parse_duration(starts.every) // record.gap, 1)
        except BadInput as error:
            raise BadRequest(f"{path}: starts: {error}") from None
        return list(range(0, latest + 1, every))

    steps = [round(start * HOUR / record.gap) for start in starts]
    if late := [start for start, step in zip(starts, steps, strict=True) if step > latest]:
        last = latest * record.gap / HOUR
        raise BadRequest(
            f"{path}: starts: a job from hour {late[0]:g} ends after the record; start at "
            f"{last:.2f} at most"
        )

    return steps


def _record(path: Path, file: RegionsFile) -> ZonesRecord:
    traces = _traces(path, file)
    constant, series = _prices(path, file.prices)
    if len({trace.start is None for trace in traces}) > 1:
        raise BadRequest(f"{path}: traces: some have times and others do not; use one kind")

    # Traces without times begin with the first moment at which all their zones have a price.
    priced = [series[trace.name].first for trace in traces if trace.name in series]

    first = max(priced, default=0)
    gap = traces[0].gap_seconds * SECOND
    begin = max((first if trace.start is None else trace.start) for trace in traces)
    skip = [(begin - (first if trace.start is None else trace.start)) // gap for trace in traces]
    steps = min(len(trace) - skipped for trace, skipped in zip(traces, skip, strict=True))
    if steps < 1:
        raise BadRequest(f"{path}: traces: the zones have no time in common")

    granted = np.stack(
        [trace.up[skipped : skipped + steps] for trace, skipped in zip(traces, skip, strict=True)]
    )

    spot, on_demand = [], []
    for trace in traces:
        zone = trace.name
        usd, listed = _zone_prices(path, zone, constant, series, begin + np.arange(steps) * gap)
        spot.append(usd)
        if listed is None and file.on_demand is None:
            raise BadRequest(f"{path}: prices: no on-demand price of {zone}; set on_demand")
        on_demand.append(file.on_demand if listed is None else listed)

    return ZonesRecord(
        tuple(trace.name for trace in traces),
        gap,
        granted,
        np.stack(spot),
        np.array(on_demand),
    )


def _traces(path: Path, file: RegionsFile) -> list[AvailabilityTrace]:
    files = list[Path]()
    for name in file.traces:
        # A name or glob, relative to the working directory or to the scenario's folder.
        # Path.glob takes no absolute pattern.
        here = sorted(glob(name)) or sorted(glob(str(path.parent / name)))  # noqa: PTH207
        if not here:
            raise BadRequest(f"{path}: traces: no file matches {name}")
        files += map(Path, here)

    by_zone: dict[str, AvailabilityTrace] = {}
    for trace in (trace for named in files for trace in read_zones(named)):
        if trace.name in by_zone:
            raise BadRequest(f"{path}: traces: {trace.name} is recorded twice; name one file of it")
        by_zone[trace.name] = trace

    wanted = file.zones or list(by_zone)
    if missing := [zone for zone in wanted if zone not in by_zone]:
        raise BadRequest(
            f"{path}: zones: no record of {missing[0]}; recorded: {', '.join(by_zone)}"
        )

    traces = [by_zone[zone] for zone in dict.fromkeys(wanted)]
    if len({trace.gap_seconds for trace in traces}) > 1:
        raise BadRequest(
            f"{path}: traces: the zones were recorded at different intervals; use those of one "
            "interval"
        )

    return traces


def _prices(path: Path, files: list[Path]) -> tuple[dict[str, ZonePrice], dict[str, PriceSeries]]:
    constant, events = dict[str, ZonePrice](), list[FetchedRows]()
    for file in files:
        named = found_at(path, file)
        prices = read_zone_prices(named)
        if prices is None:
            events += [portion.fetched for portion in read(named)]
        else:
            constant |= {price.zone: price for price in prices}

    table = PriceTable.of(FetchedRows.joined(events).prices)
    series = dict[str, PriceSeries]()
    for history in table:
        if history.market.zone in series:
            raise BadRequest(
                f"{path}: prices: two histories of {history.market.zone}; keep those of one "
                "machine type"
            )
        series[history.market.zone] = history

    return constant, series


def _zone_prices(
    path: Path,
    zone: str,
    constant: dict[str, ZonePrice],
    series: dict[str, PriceSeries],
    times: Ints,
) -> tuple[Floats, float | None]:
    """Spot prices by step, and the on-demand price."""
    if zone in constant:
        return np.full(times.size, constant[zone].spot), constant[zone].on_demand
    if zone not in series:
        raise BadRequest(f"{path}: prices: no price of {zone}")
    at = np.maximum(series[zone].times.searchsorted(times, side="right") - 1, 0)
    usd: Floats = series[zone].prices[at].astype(np.float64) / NANOS_PER_DOLLAR
    return usd, None
