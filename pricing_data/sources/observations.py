"""Files of observations: availability traces (JSON with the machines that were up at each tick, of
one market), machine lifetimes (CSV), and many zones at once, how much spot capacity each had over
time, and its prices (CSV)."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pricing_data.availability import AvailabilitySpan, AvailabilityTrace, Ending, Lifetime
from pricing_data.errors import BadInput
from pricing_data.market import Market
from pricing_data.units import SECOND, parse_time

TRACE_LAYOUT = "availability"

# availability__1-node__aws-02-15-2023__us-east-1a_v100_1: the cloud, the first day, the zone, and
# the machine.
_NAMED = re.compile(r"(?:.*__)?(aws)-(\d\d)-(\d\d)-(\d{4})__([a-z0-9-]+?)_([a-z0-9]+_\d+)")
_REGION = re.compile(r"[a-z]{2,3}(?:-[a-z]+)+-\d+")
MACHINES = {
    ("aws", "v100", 1): "p3.2xlarge",
    ("aws", "v100", 4): "p3.8xlarge",
    ("aws", "v100", 8): "p3.16xlarge",
    ("aws", "k80", 1): "p2.xlarge",
    ("aws", "k80", 8): "p2.8xlarge",
    ("aws", "k80", 16): "p2.16xlarge",
}
"""Machine types by cloud, accelerator and number of accelerators."""
_LIFETIME_COLUMNS = ("cloud", "zone", "gpu", "gpu_count", "start", "lifetime_h", "preempted")
_UP = ("zone", "start", "gap_seconds", "up")
_PROBES = ("timestamp", "zone", "created", "requested")


def read_availability(path: Path) -> AvailabilityTrace:
    """The trace of a file `{"metadata": {"gap_seconds": G}, "data": [n, ...]}`, plain or gzip."""
    text = _text_of(path)
    try:
        name = path.name.removesuffix(".gz").removesuffix(".json")
        return trace_of(json.loads(text), name)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{path}: is not an availability trace: it is not complete JSON ({error})"
        ) from None


def trace_of(content: dict[str, Any], name: str) -> AvailabilityTrace:
    """The trace of `{"metadata": {"gap_seconds": G}, "data": [n, ...]}`."""
    try:
        gap = content["metadata"]["gap_seconds"]
        up = np.array(content["data"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"is not an availability trace ({error!r}); it needs metadata.gap_seconds and data"
        ) from None

    if up.ndim != 1 or up.dtype.kind not in "iu" or not isinstance(gap, int):
        raise BadInput("is not an availability trace: gap_seconds and data must be whole numbers")
    return AvailabilityTrace(name, gap, up.astype(np.int64))


def spans_of_trace(content: dict[str, Any], name: str) -> list[AvailabilitySpan]:
    """The spans of a trace; raises BadInput if it is damaged, or does not say which market it is
    of.
    """
    trace = trace_of(content, name)
    about = content["metadata"]
    wanted = about.get("wanted", max(trace.wanted, 1))
    if not isinstance(wanted, int) or wanted < 1:
        raise BadInput(
            f"is an availability trace of {wanted!r} wanted machines; it must be a whole number "
            "above 0"
        )

    market, begins = _subject(about, name)
    start = parse_time(str(about["start"])) if "start" in about else begins
    # One span for each stretch of ticks with as many machines; it ends when the next one begins.
    up = trace.up
    gap = trace.gap_seconds * SECOND
    changes = np.flatnonzero(np.diff(up))
    later_edges = (changes + 1).tolist()
    edges = [0, *later_edges, up.size]
    counts = [min(int(up[edge]), wanted) for edge in edges[:-1]]
    spans = []

    for number, (begin, end) in enumerate(pairwise(edges)):
        fewer = number + 1 < len(counts) and counts[number + 1] < counts[number]
        ended: Ending = "evicted" if fewer else ""
        since = start + begin * gap
        until = start + end * gap
        span = AvailabilitySpan(
            market, since, until, counts[number], wanted, ended, f"trace {trace.name}"
        )
        spans.append(span)

    return spans


def _subject(about: dict[str, Any], name: str) -> tuple[Market, int]:
    """The market of a trace and when it begins, from its metadata or the name of its file."""
    if "market" in about and "start" in about:
        market = Market.parse(str(about["market"]))
        start = parse_time(str(about["start"]))
        return market, start

    named = _NAMED.match(name)
    cure = (
        'is an availability trace that does not name its market: add "market" (aws/us-east-1/us-east-1a/p3.2xlarge)'
        ' and "start" (2023-02-15T22:08:16Z) to its metadata'
    )
    if named is None:
        raise BadInput(cure)

    cloud, month, day, year, zone, machine = named.groups()
    accelerator, count = machine.rsplit("_", 1)
    type_ = MACHINES.get((cloud, accelerator, int(count)))
    region = _REGION.match(zone)
    if type_ is None or region is None:
        raise BadInput(cure)

    return Market(cloud, region[0], zone, type_), parse_time(f"{year}-{month}-{day}")


def read_lifetimes(path: Path) -> list[Lifetime]:
    """The lifetimes in a CSV with the columns cloud, zone, gpu, gpu_count, start, lifetime_h and
    preempted.
    """
    rows = csv.DictReader(_text_of(path).splitlines())
    missing = [column for column in _LIFETIME_COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise BadInput(
            f"{path}: is not a table of lifetimes: it has no column {', '.join(missing)}"
        )

    lifetimes = []
    for row in rows:
        try:
            if row["preempted"] not in ("0", "1"):
                raise BadInput(f"preempted is {row['preempted']!r}, not 0 or 1")
            machine = f"{row['gpu']}x{row['gpu_count']}"
            seconds = float(row["lifetime_h"]) * 3600
            preempted = row["preempted"] == "1"
            start = parse_time(row["start"])
            lifetime = Lifetime(row["cloud"], row["zone"], machine, start, seconds, preempted)
            lifetimes.append(lifetime)
        except (BadInput, ValueError) as error:
            raise BadInput(f"{path}: line {rows.line_num}: {error}") from None

    return lifetimes


def read_zones(path: Path) -> list[AvailabilityTrace]:
    """The machines that zones granted, each trace with the name of its zone: the zones of a CSV
    `zone,start,gap_seconds,up` (a character per tick), or of probes
    `timestamp,zone,created,requested`; or the one zone of an availability JSON, named in its file
    name."""
    if ".json" in path.name:
        trace = read_availability(path)
        # us-east-1c of availability__1-node__aws-02-15-2023__us-east-1c_v100_1
        last_part = trace.name.rsplit("__", 1)
        parts = last_part[-1].split("_", maxsplit=1)
        zone = parts[0]
        return [AvailabilityTrace(zone, trace.gap_seconds, trace.up)]

    rows = csv.DictReader(_text_of(path).splitlines())
    columns = tuple(rows.fieldnames or ())
    try:
        if set(_UP) <= set(columns):
            zones = []
            for row in rows:
                letters = row["up"].strip()
                codes = np.frombuffer(letters.encode(), dtype=np.uint8)
                up = codes.astype(np.int64) - ord("0")
                if not up.size or int(up.max()) > 9 or int(up.min()) < 0:
                    raise BadInput(f"zone {row['zone']}: up needs one digit for each tick")
                start = parse_time(row["start"])
                gap_seconds = int(row["gap_seconds"])
                trace = AvailabilityTrace(row["zone"], gap_seconds, up, start)
                zones.append(trace)
            return zones
        if set(_PROBES) <= set(columns):
            return list(_probed_zones(list(rows)))
    except (BadInput, ValueError, TypeError) as error:
        raise BadInput(f"{path}: line {rows.line_num}: {error}") from None

    raise BadInput(
        f"{path}: is not a record of zones: it needs the columns {', '.join(_UP)}, or "
        f"{', '.join(_PROBES)}"
    )


def read_zone_prices(path: Path) -> dict[str, tuple[float, float | None]] | None:
    """The constant prices in a CSV with the columns zone, spot_usd_per_hour and
    on_demand_usd_per_hour: by zone, the spot and the on-demand price, in dollars per machine-hour,
    None where the file has none. None if it is another kind of file."""
    rows = csv.DictReader(_text_of(path).splitlines())
    names = set(rows.fieldnames or ())
    spot_names = (name for name in ("spot_usd_per_hour", "spot") if name in names)
    spot = next(spot_names, None)
    on_demand_names = (
        name for name in ("on_demand_usd_per_hour", "on-demand", "on_demand") if name in names
    )
    on_demand = next(on_demand_names, None)
    if "zone" not in names or spot is None:
        return None

    prices = dict[str, tuple[float, float | None]]()
    for row in rows:
        try:
            listed = float(row[on_demand]) if on_demand else None
            prices[row["zone"]] = float(row[spot]), listed
        except (TypeError, ValueError):
            raise BadInput(
                f"{path}: line {rows.line_num}: the prices must be dollars per hour"
            ) from None

    return prices


def _probed_zones(rows: list[dict[str, str]]) -> Iterator[AvailabilityTrace]:
    """Rounds of probes; a round that is missing shows what the one before it showed."""
    moments_written = [parse_time(row["timestamp"]) for row in rows]
    times = np.array(moments_written, dtype=np.int64)
    moments = np.unique(times)
    if moments.size < 2:
        raise BadInput("a record of probes needs at least two rounds")

    gap = int(np.median(np.diff(moments)))
    span = moments[-1] - moments[0]
    ticks = span // gap + 1
    for zone in sorted({row["zone"] for row in rows}):
        granted = np.full(ticks, -1, dtype=np.int64)
        for row, time in zip(rows, times.tolist(), strict=True):
            if row["zone"] == zone:
                granted[round((time - int(moments[0])) / gap)] = int(row["created"])
        places = np.where(granted >= 0, np.arange(ticks), 0)
        known = np.maximum.accumulate(places)
        counts = np.maximum(granted[known], 0)
        yield AvailabilityTrace(zone, gap // SECOND, counts, int(moments[0]))


def _text_of(path: Path) -> str:
    """The text of a plain or gzip file."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: is damaged ({error}); copy or download it again") from error
