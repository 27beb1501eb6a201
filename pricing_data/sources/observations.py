"""Files of observed availability (JSON of ticks), of machine lifetimes (CSV), and of many zones at once: how much spot
capacity each had over time, and its prices (CSV)."""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pricing_data.errors import BadInput
from pricing_data.lifetimes import AvailabilityTrace, Lifetime
from pricing_data.sources.files.traces import trace_of
from pricing_data.units import SECOND, parse_time

_LIFETIME_COLUMNS = ("cloud", "zone", "gpu", "gpu_count", "start", "lifetime_h", "preempted")
_UP = ("zone", "start", "gap_seconds", "up")
_PROBES = ("timestamp", "zone", "created", "requested")


def read_availability(path: Path) -> AvailabilityTrace:
    """The trace of a file `{"metadata": {"gap_seconds": G}, "data": [n, ...]}`, plain or gzip."""
    text = _text_of(path)
    try:
        return trace_of(json.loads(text), path.name.removesuffix(".gz").removesuffix(".json"))
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path}: is not an availability trace: it is not complete JSON ({error})") from None


def read_lifetimes(path: Path) -> list[Lifetime]:
    """The lifetimes in a CSV with the columns cloud, zone, gpu, gpu_count, start, lifetime_h and preempted."""
    rows = csv.DictReader(_text_of(path).splitlines())
    missing = [column for column in _LIFETIME_COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise BadInput(f"{path}: is not a table of lifetimes: it has no column {', '.join(missing)}")
    lifetimes = []
    for row in rows:
        try:
            lifetimes.append(_lifetime(row))
        except (BadInput, ValueError) as error:
            raise BadInput(f"{path}: line {rows.line_num}: {error}") from None
    return lifetimes


def _lifetime(row: dict[str, str]) -> Lifetime:
    if row["preempted"] not in ("0", "1"):
        raise BadInput(f"preempted is {row['preempted']!r}, not 0 or 1")
    machine = f"{row['gpu']}x{row['gpu_count']}"
    seconds = float(row["lifetime_h"]) * 3600
    return Lifetime(row["cloud"], row["zone"], machine, parse_time(row["start"]), seconds, row["preempted"] == "1")


@dataclass(frozen=True, slots=True)
class ZoneTrace:
    """The machines that a zone granted at each tick. `trace.name` is the zone; `start` is None where a file has no
    times."""

    trace: AvailabilityTrace
    start: int | None


@dataclass(frozen=True, slots=True)
class ZonePrice:
    """Constant prices of a zone, in dollars per machine-hour; None where the file has none."""

    zone: str
    spot: float
    on_demand: float | None


def read_zones(path: Path) -> list[ZoneTrace]:
    """The zones of a CSV `zone,start,gap_seconds,up` (a character per tick), or of probes
    `timestamp,zone,created,requested`; or the one zone of an availability JSON, named in its file name."""
    if ".json" in path.name:
        trace = read_availability(path)
        return [ZoneTrace(AvailabilityTrace(_zone_in(trace.name), trace.gap_seconds, trace.up), None)]
    rows = csv.DictReader(_text_of(path).splitlines())
    columns = tuple(rows.fieldnames or ())
    try:
        if set(_UP) <= set(columns):
            return [_zone_of_row(row) for row in rows]
        if set(_PROBES) <= set(columns):
            return list(_probed_zones(list(rows)))
    except (BadInput, ValueError, TypeError) as error:
        raise BadInput(f"{path}: line {rows.line_num}: {error}") from None
    raise BadInput(f"{path}: is not a record of zones: it needs the columns {', '.join(_UP)}, or {', '.join(_PROBES)}")


def read_zone_prices(path: Path) -> list[ZonePrice] | None:
    """The constant prices in a CSV with the columns zone, spot_usd_per_hour and on_demand_usd_per_hour; None if it is
    another kind of file."""
    rows = csv.DictReader(_text_of(path).splitlines())
    names = set(rows.fieldnames or ())
    spot = next((name for name in ("spot_usd_per_hour", "spot") if name in names), None)
    on_demand = next((name for name in ("on_demand_usd_per_hour", "on-demand", "on_demand") if name in names), None)
    if "zone" not in names or spot is None:
        return None
    prices = []
    for row in rows:
        try:
            listed = float(row[on_demand]) if on_demand else None
            prices.append(ZonePrice(row["zone"], float(row[spot]), listed))
        except (TypeError, ValueError):
            raise BadInput(f"{path}: line {rows.line_num}: the prices must be dollars per hour") from None
    return prices


def _zone_in(name: str) -> str:
    """`us-east-1c` of `availability__1-node__aws-02-15-2023__us-east-1c_v100_1`."""
    return name.rsplit("__", 1)[-1].split("_", maxsplit=1)[0]


def _zone_of_row(row: dict[str, str]) -> ZoneTrace:
    ticks = np.frombuffer(row["up"].strip().encode(), dtype=np.uint8).astype(np.int64) - ord("0")
    if not ticks.size or int(ticks.max()) > 9 or int(ticks.min()) < 0:
        raise BadInput(f"zone {row['zone']}: up needs one digit for each tick")
    return ZoneTrace(AvailabilityTrace(row["zone"], int(row["gap_seconds"]), ticks), parse_time(row["start"]))


def _probed_zones(rows: list[dict[str, str]]) -> Iterator[ZoneTrace]:
    """Rounds of probes; a round that is missing shows what the one before it showed."""
    times = np.array([parse_time(row["timestamp"]) for row in rows], dtype=np.int64)
    moments = np.unique(times)
    if moments.size < 2:
        raise BadInput("a record of probes needs at least two rounds")
    gap = int(np.median(np.diff(moments)))
    ticks = (moments[-1] - moments[0]) // gap + 1
    for zone in sorted({row["zone"] for row in rows}):
        granted = np.full(ticks, -1, dtype=np.int64)
        for row, time in zip(rows, times.tolist(), strict=True):
            if row["zone"] == zone:
                granted[round((time - int(moments[0])) / gap)] = int(row["created"])
        known = np.maximum.accumulate(np.where(granted >= 0, np.arange(ticks), 0))
        counts = np.maximum(granted[known], 0)
        yield ZoneTrace(AvailabilityTrace(zone, gap // SECOND, counts), int(moments[0]))


def _text_of(path: Path) -> str:
    """The text of a plain or gzip file."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: is damaged ({error}); copy or download it again") from error
