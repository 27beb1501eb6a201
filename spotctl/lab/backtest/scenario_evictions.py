"""The `evictions` of a scenario file: its schema, and the eviction model for the scenario's markets."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from bidbrain.backtest.evictions import PRICE_ALONE, ByAvailability, ByHazard, EvictionModel, deal
from bidbrain.eviction.hazard import evidence_of_lives, hazard_of
from bidbrain.eviction.survival import AgeProfile
from bidbrain.replay.market import Mortality
from pricing_data.availability import AvailabilityTrace
from pricing_data.catalog import InstanceType
from pricing_data.market import Market
from pricing_data.sources.observations import read_availability, read_lifetimes
from spotctl.home.errors import BadRequest

_WAYS = "price, {availability: {traces: GLOB}}, {hazard: {per_hour: RATE}} or {hazard: {lifetimes: [FILE]}}"
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
    return written if written is None or isinstance(written, dict) else {"*": written}


class Availability(BaseModel, extra="forbid"):
    """Trace files by glob; which market uses which trace, if names do not tell; and the machines of a full trace."""

    traces: str
    markets: dict[str, str] = {}
    machines: Annotated[int, Field(gt=0)] | None = None


class Hazards(BaseModel, extra="forbid"):
    """Evictions per machine-hour: one rate, rates by market glob (the first match counts), or files of lifetimes."""

    per_hour: Annotated[dict[str, HourlyRate] | None, BeforeValidator(_for_all)] = None
    lifetimes: Annotated[list[Path], Field(min_length=1)] | None = None


class EvictionsPart(BaseModel, extra="forbid"):
    """Why machines are evicted. Without either key, only prices evict."""

    availability: Availability | None = None
    hazard: Annotated[Hazards, BeforeValidator(_one_source)] | None = None


EvictionsKey = Annotated[EvictionsPart, BeforeValidator(_one_way)]


@dataclass(frozen=True, slots=True)
class TypedMarket:
    """A market and its machine type."""

    market: Market
    type: InstanceType


def evictions(
    scenario: Path, part: EvictionsPart, machines: Sequence[TypedMarket], seed: int
) -> tuple[EvictionModel, str]:
    """The eviction model, and a remark for the user."""
    if part.availability is not None:
        return _by_availability(scenario, part.availability, machines)
    if part.hazard is not None:
        markets = [machine.market for machine in machines]
        return ByHazard(_mortality(scenario, part.hazard, markets), seed), ""
    return PRICE_ALONE, ""


def found_at(scenario: Path, named: Path) -> Path:
    """A file's path: relative to the working directory, else to the scenario's folder."""
    return named if named.exists() else scenario.parent / named


def _by_availability(scenario: Path, part: Availability, machines: Sequence[TypedMarket]) -> tuple[EvictionModel, str]:
    traces = _traces(scenario, part.traces)
    chosen = {machine.market: _fitting(machine, traces, part.markets) for machine in machines}
    own = {market: fits[0] for market, fits in chosen.items() if fits}
    others = [market for market, fits in chosen.items() if not fits]
    remark = f"availability: {len(own)} markets have their own trace, {len(others)} get an assigned one"
    return ByAvailability({**own, **deal(others, traces)}, part.machines), remark


def _fitting(
    machine: TypedMarket, traces: Sequence[AvailabilityTrace], by_market: dict[str, str]
) -> Sequence[AvailabilityTrace]:
    """The traces of a market, longest first: as the file says, else those named after its zone and accelerators."""
    for pattern, name in by_market.items():
        if machine.market.matches(pattern):
            fits = [trace for trace in traces if fnmatchcase(trace.name, name)]
            if not fits:
                raise BadRequest(f"evictions.availability.markets: no trace matches {name!r}, given for {pattern!r}")
            return _longest_first(fits)
    kind = f"{machine.type.accelerator or ''}_{machine.type.accelerators}".lower()
    zone = machine.market.zone
    return _longest_first([trace for trace in traces if machine.type.accelerators and f"{zone}_{kind}" in trace.name])


def _longest_first(traces: Sequence[AvailabilityTrace]) -> Sequence[AvailabilityTrace]:
    return sorted(traces, key=lambda trace: (-len(trace) * trace.gap_seconds, trace.name))


def _traces(scenario: Path, pattern: str) -> list[AvailabilityTrace]:
    for start in (Path(), scenario.parent):
        names = glob(str(start / pattern), recursive=True)  # noqa: PTH207  # Path.glob takes no absolute pattern
        paths = sorted(path for path in map(Path, names) if path.is_file())
        if paths:
            return [read_availability(path) for path in paths]
    raise BadRequest(f"{scenario}: evictions.availability.traces: no file matches {pattern!r}")


def _mortality(scenario: Path, part: Hazards, markets: Sequence[Market]) -> dict[Market, Mortality]:
    if part.lifetimes is not None:
        return _of_lives(scenario, part.lifetimes, markets)
    return {market: Mortality(_rate(scenario, part.per_hour or {}, market)) for market in markets}


def _rate(scenario: Path, rates: dict[str, float], market: Market) -> float:
    for pattern, rate in rates.items():
        if market.matches(pattern):
            return rate
    raise BadRequest(f"{scenario}: evictions.hazard.per_hour: no rate for {market} (add '*': RATE for all others)")


def _of_lives(scenario: Path, files: Sequence[Path], markets: Sequence[Market]) -> dict[Market, Mortality]:
    lives = [life for file in files for life in read_lifetimes(found_at(scenario, file))]
    ages = AgeProfile.of(lives, _AGE_BANDS, _AGE_WEIGHT)
    evidence, mortalities = evidence_of_lives(lives, ages), {}
    for market in markets:
        hazard = hazard_of(market, evidence, (), ages)
        if hazard is None:
            raise BadRequest(f"{scenario}: evictions.hazard.lifetimes: no lifetimes from {market.cloud}")
        mortalities[market] = Mortality(hazard.rate[0], ages)
    return mortalities
