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
from pricing_data.series import PriceSeries
from pricing_data.sources.files import read
from pricing_data.sources.observations import read_zone_prices, read_zones
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND, parse_duration
from spotctl.home.errors import BadRequest
from spotctl.lab.option_values import found_at, parsed

ConstantPrices = dict[str, tuple[float, float | None]]
"""By zone, the spot and the on-demand price."""
HourCount = Annotated[float, Field(ge=0, lt=100_000)]
Usd = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _listed(value: object) -> object:
    if isinstance(value, list):
        return value
    return [value]


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
        hours = (self.work_hours, self.deadline_hours, self.start_delay_hours)
        work, deadline, delay = (round(each * HOUR) for each in hours)
        at_least = self.at_least or self.machines
        return RegionJob(work, deadline, delay, self.checkpoint_gb, self.machines, at_least)


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

    elastic = any(part.at_least is not None and part.at_least < part.machines for part in file.job)
    possible = ELASTIC_NAMES if elastic else NAMES
    allowed, known = ", ".join(possible), ", ".join(NAMES)
    for name in file.policies or ():
        asked = f"{path}: policies: {name!r}"
        if name not in NAMES:
            raise BadRequest(f"{asked} is unknown; use {known}")
        if name not in possible:
            raise BadRequest(f"{asked} needs all machines at once; use {allowed}")

    policies = tuple(dict.fromkeys(file.policies or possible))

    record = _record(path, file)
    pairs = dict[frozenset[str], float]()

    for name, usd in file.moving.pairs.items():
        regions = name.split()
        if len(regions) != 2:
            raise BadRequest(
                f"{path}: moving.pairs: {name!r} is not two regions (write 'us-east-1 us-east-2: "
                "0.01')"
            )
        pairs[frozenset(regions)] = usd

    rules = Rules(
        file.rules == "published",
        file.moving.usd_per_gb,
        pairs,
        file.moving.within_region,
        moving_time=round(file.moving.hours * HOUR),
        probe=round(file.probe.minutes * MINUTE),
    )

    windows = list[Window]()
    for part in file.job:
        job = part.job()
        starts = _starts(path, file.starts, record, job)
        windows += [Window.of(record, start, job, rules) for start in starts]

    for window in windows:
        if not window.rules.published and not window.job.possible(window.record.gap):
            work, deadline = window.job.work / HOUR, window.job.deadline / HOUR
            raise BadRequest(
                f"{path}: job: {work:g} hours of work and a start do not fit into {deadline:g} "
                "hours; allow more time"
            )

    return windows, policies


def _starts(
    path: Path, starts: list[float] | EveryPart, record: ZonesRecord, job: RegionJob
) -> list[int]:
    latest = record.steps - job.steps(record.gap)
    if latest < 0:
        longest, deadline = record.steps * record.gap / HOUR, job.deadline / HOUR
        raise BadRequest(
            f"{path}: job: {deadline:g} hours are longer than the record of {longest:.1f} hours"
        )
    if isinstance(starts, EveryPart):
        try:
            every = max(parse_duration(starts.every) // record.gap, 1)
        except BadInput as error:
            raise BadRequest(f"{path}: starts: {error}") from None
        return list(range(0, latest + 1, every))

    steps = list[int]()
    for start in starts:
        step = round(start * HOUR / record.gap)
        steps.append(step)
        if step > latest:
            last = latest * record.gap / HOUR
            raise BadRequest(
                f"{path}: starts: a job from hour {start:g} ends after the record; start at "
                f"{last:.2f} at most"
            )

    return steps


def _record(path: Path, file: RegionsFile) -> ZonesRecord:
    traces = _traces(path, file)
    constant, series = _prices(path, file.prices)
    if len({trace.start is None for trace in traces}) > 1:
        raise BadRequest(f"{path}: traces: some have times and others do not; use one kind")

    # Traces without times begin with the first moment at which all their zones have a price.
    names = [trace.name for trace in traces]
    first = max((series[name].first for name in names if name in series), default=0)
    gap = traces[0].gap_seconds * SECOND
    begins = [first if each.start is None else each.start for each in traces]
    begin = max(begins)
    skipped = [(begin - of_trace) // gap for of_trace in begins]
    steps = [len(each) - skip for each, skip in zip(traces, skipped, strict=True)]
    common = min(steps)
    if common < 1:
        raise BadRequest(f"{path}: traces: the zones have no time in common")

    granted, spot, on_demand = [], [], []
    moments = begin + np.arange(common) * gap
    for trace, skip in zip(traces, skipped, strict=True):
        granted.append(trace.up[skip : skip + common])
        zone = trace.name
        listed: float | None = None
        if zone in constant:
            constant_usd, listed = constant[zone]
            spot.append(np.full(common, constant_usd))
        elif zone in series:
            known = series[zone]
            after = known.times.searchsorted(moments, side="right")
            in_force = np.maximum(after - 1, 0)
            usd: Floats = known.prices[in_force].astype(np.float64) / NANOS_PER_DOLLAR
            spot.append(usd)
        else:
            raise BadRequest(f"{path}: prices: no price of {zone}")
        if listed is None and file.on_demand is None:
            raise BadRequest(f"{path}: prices: no on-demand price of {zone}; set on_demand")
        on_demand.append(file.on_demand if listed is None else listed)

    return ZonesRecord(tuple(names), gap, np.stack(granted), np.stack(spot), np.array(on_demand))


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
    for named in files:
        for trace in read_zones(named):
            zone = trace.name
            if zone in by_zone:
                raise BadRequest(f"{path}: traces: {zone} is recorded twice; name one file of it")
            by_zone[zone] = trace

    wanted = dict.fromkeys(file.zones or by_zone)
    for zone in wanted:
        if zone not in by_zone:
            known = ", ".join(by_zone)
            raise BadRequest(f"{path}: zones: no record of {zone}; recorded: {known}")

    traces = [by_zone[zone] for zone in wanted]
    gaps = {trace.gap_seconds for trace in traces}
    if len(gaps) > 1:
        raise BadRequest(
            f"{path}: traces: the zones were recorded at different intervals; use those of one "
            "interval"
        )

    return traces


def _prices(path: Path, files: list[Path]) -> tuple[ConstantPrices, dict[str, PriceSeries]]:
    constant, events = ConstantPrices(), list[FetchedRows]()
    for file in files:
        named = found_at(path, file)
        prices = read_zone_prices(named)
        if prices is None:
            events += [portion.fetched for portion in read(named)]
        else:
            constant |= prices

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
