"""Availability traces as files: JSON with the machines that were up at each tick, of one market."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from pricing_data.availability import AvailabilitySpan, Ending
from pricing_data.errors import BadInput
from pricing_data.lifetimes import AvailabilityTrace
from pricing_data.market import Market
from pricing_data.units import SECOND, parse_time

LAYOUT = "availability"

# availability__1-node__aws-02-15-2023__us-east-1a_v100_1: the cloud, the first day, the zone, and the machine.
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


def trace_of(content: dict[str, Any], name: str) -> AvailabilityTrace:
    """The trace of `{"metadata": {"gap_seconds": G}, "data": [n, ...]}`."""
    try:
        gap, up = content["metadata"]["gap_seconds"], np.array(content["data"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"is not an availability trace ({error!r}); it needs metadata.gap_seconds and data") from None
    if up.ndim != 1 or up.dtype.kind not in "iu" or not isinstance(gap, int):
        raise BadInput("is not an availability trace: gap_seconds and data must be whole numbers")
    return AvailabilityTrace(name, gap, up.astype(np.int64))


def spans_of_trace(content: dict[str, Any], name: str) -> list[AvailabilitySpan]:
    """The spans of a trace; raises BadInput if it is damaged, or does not say which market it is of."""
    trace, about = trace_of(content, name), content["metadata"]
    wanted = about.get("wanted", max(trace.wanted, 1))
    if not isinstance(wanted, int) or wanted < 1:
        raise BadInput(f"is an availability trace of {wanted!r} wanted machines; it must be a whole number above 0")
    market, begins = _subject(about, name)
    start = parse_time(str(about["start"])) if "start" in about else begins
    return list(_spans(trace, wanted, market, start))


def _subject(about: dict[str, Any], name: str) -> tuple[Market, int]:
    """The market of a trace and when it begins, from its metadata or the name of its file."""
    if "market" in about and "start" in about:
        return Market.parse(str(about["market"])), parse_time(str(about["start"]))
    named = _NAMED.match(name)
    cure = (
        'is an availability trace that does not name its market: add "market" (aws/us-east-1/us-east-1a/p3.2xlarge)'
        ' and "start" (2023-02-15T22:08:16Z) to its metadata'
    )
    if named is None:
        raise BadInput(cure)
    cloud, month, day, year, zone, machine = named.groups()
    accelerator, count = machine.rsplit("_", 1)
    type_, region = MACHINES.get((cloud, accelerator, int(count))), _REGION.match(zone)
    if type_ is None or region is None:
        raise BadInput(cure)
    return Market(cloud, region[0], zone, type_), parse_time(f"{year}-{month}-{day}")


def _spans(trace: AvailabilityTrace, wanted: int, market: Market, start: int) -> Iterator[AvailabilitySpan]:
    """One span for each stretch of ticks with as many machines; it ends when the next one begins."""
    up, gap = trace.up, trace.gap_seconds * SECOND
    edges = [0, *(np.flatnonzero(np.diff(up)) + 1).tolist(), up.size]
    counts = [min(int(up[edge]), wanted) for edge in edges[:-1]]
    for number, (begin, end) in enumerate(pairwise(edges)):
        fewer = number + 1 < len(counts) and counts[number + 1] < counts[number]
        ended: Ending = "evicted" if fewer else ""
        yield AvailabilitySpan(
            market, start + begin * gap, start + end * gap, counts[number], wanted, ended, f"trace {trace.name}"
        )
