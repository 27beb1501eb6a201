"""Files of observed availability (JSON of ticks) and of machine lifetimes (CSV)."""

import csv
import gzip
import json
import zlib
from pathlib import Path

import numpy as np

from pricing_data.errors import BadInput
from pricing_data.lifetimes import AvailabilityTrace, Lifetime
from pricing_data.units import parse_time

_LIFETIME_COLUMNS = ("cloud", "zone", "gpu", "gpu_count", "start", "lifetime_h", "preempted")


def read_availability(path: Path) -> AvailabilityTrace:
    """The trace of a file `{"metadata": {"gap_seconds": G}, "data": [n, ...]}`, plain or gzip."""
    try:
        content = json.loads(text_of(path))
        gap, ticks = content["metadata"]["gap_seconds"], content["data"]
        up = np.array(ticks)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{path}: is not an availability trace ({error!r}); it needs metadata.gap_seconds and data"
        ) from None
    if up.ndim != 1 or up.dtype.kind not in "iu" or not isinstance(gap, int):
        raise BadInput(f"{path}: is not an availability trace: gap_seconds and data must be whole numbers")
    return AvailabilityTrace(path.name.removesuffix(".gz").removesuffix(".json"), gap, up.astype(np.int64))


def read_lifetimes(path: Path) -> list[Lifetime]:
    """The lifetimes in a CSV with the columns cloud, zone, gpu, gpu_count, start, lifetime_h and preempted."""
    rows = csv.DictReader(text_of(path).splitlines())
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


def text_of(path: Path) -> str:
    """The text of a plain or gzip file."""
    try:
        content = path.read_bytes()
        return (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content).decode()
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: is damaged ({error}); copy or download it again") from error
