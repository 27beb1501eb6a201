"""Recounts files of prices without the product's code: `python -m tests.pricing_data.recount
[FILE...]`.

It reads the files with `csv`, asks the command line what it stored, and computes every figure again
over the time that is left without the holes that `prices ls --gaps` names.
"""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[3] / "shared" / "data" / "prices"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR = 3_600_000_000
_TOLERANCE = 1e-9
Rows = dict[str, dict[int, int]]
Holes = dict[str, list[tuple[int, int]]]
_AZURE = {
    "us_east": "eastus",
    "us_north_central": "northcentralus",
    "us_south_central": "southcentralus",
}


def micros(text: str) -> int:
    return (datetime.fromisoformat(text.replace("Z", "+00:00")) - _EPOCH) // timedelta(
        microseconds=1
    )


def rows_in(path: Path) -> Iterator[tuple[str, int, int]]:
    """Market, microseconds and nano-dollars of each spot price in a file."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            if row.get("spot_price"):
                region = _AZURE.get(row["region"], row["region"])
                market = f"{row['cloud']}/{region}/{row['zone'] or '-'}/{row['instance_type']}"
                yield market, micros(row["timestamp"]), round(Decimal(row["spot_price"]) * 10**9)


def read(paths: Iterable[Path]) -> Rows:
    """The highest price of each market and time."""
    events: Rows = {}
    for path in paths:
        for market, time, price in rows_in(path):
            known = events.setdefault(market, {})
            known[time] = max(price, known.get(time, 0))
    return events


def recount(
    events: dict[int, int], holes: list[tuple[int, int]], on_demand: float | None
) -> dict[str, float]:
    """The figures of one market by their definitions."""
    times = sorted(events)
    prices = [events[time] for time in times]
    assert all(
        bisect_right(times, start) == bisect_right(times, end - 1) for start, end in holes
    ), "a row in a hole"
    held = [
        end - start - sum(max(0, min(end, b) - max(start, a)) for a, b in holes)
        for start, end in pairwise(times)
    ]
    observed, spent = sum(held), sorted(zip(prices, held, strict=False))
    mean = sum(price * time for price, time in spent) / observed if observed else prices[-1]
    median, passed = prices[-1], 0
    for price, time in spent if observed else ():
        passed += time
        if 2 * passed >= observed:
            median = price
            break
    days = max(observed / (24 * _HOUR), 1 / 24)
    figures: dict[str, float] = {
        "events": len(times),
        "first": times[0],
        "last": times[-1],
        "price_now": prices[-1] / 1e9,
        "lowest": min(prices) / 1e9,
        "highest": max(prices) / 1e9,
        "mean": mean / 1e9,
        "median": median / 1e9,
        "changes_per_day": sum(a != b for a, b in pairwise(prices)) / days,
        "spikes_per_day": sum(a <= 2 * median < b for a, b in pairwise(prices)) / days,
        "observed_hours": observed / _HOUR,
        "coverage": observed / (times[-1] - times[0]) if len(times) > 1 else 1.0,
        "outliers": sum(price > min(20 * median, 10e9 * (on_demand or 1e9)) for price in prices),
    }
    if on_demand is not None:
        list_price = round(on_demand * 1e9)
        figures["discount"] = 1 - mean / list_price
        figures["hours_above_on_demand"] = (
            sum(time for price, time in spent if price > list_price) / _HOUR
        )
    return figures


def differences(
    paths: list[Path], answered: list[dict[str, Any]], gaps: list[dict[str, Any]]
) -> list[str]:
    """Where the product's answers (`prices ls --stats` and `prices ls --gaps`, as JSON) differ from
    the recount.
    """
    events, holes = read(paths), Holes()
    for gap in gaps:
        holes.setdefault(gap["market"], []).append((micros(gap["start"]), micros(gap["end"])))
    by_market = {one["market"]: one for one in answered}
    found = [
        f"{market}: only in one of them" for market in sorted(events.keys() ^ by_market.keys())
    ]
    for market in sorted(events.keys() & by_market.keys()):
        answer = by_market[market]
        for name, figure in recount(
            events[market], holes.get(market, []), answer["on_demand"]
        ).items():
            given = micros(answer[name]) if name in {"first", "last"} else answer[name]
            if abs(given - figure) > _TOLERANCE * max(abs(figure), 1.0):
                found.append(f"{market}: {name} is {given}, recounted {figure}")
    return found


def _ask(home: str, *words: str | Path) -> Any:  # noqa: ANN401  # JSON is any value
    command = [
        sys.executable,
        "-m",
        "spotctl",
        "--home",
        home,
        "prices",
        *map(str, words),
        "--json",
    ]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> int:
    """Recounts the files that are named, or all records of real markets."""
    paths = [Path(name) for name in sys.argv[1:]] or sorted(RECORDS.glob("*.csv.gz"))
    with tempfile.TemporaryDirectory() as home:
        imported = _ask(home, "import", *paths)["files"]
        answered, gaps = _ask(home, "stats")["markets"], _ask(home, "gaps")["gaps"]
    found = differences(paths, answered, gaps)
    for line in found:
        sys.stdout.write(f"{line}\n")
    rows, holes = sum(file["rows"] for file in imported), len(gaps)
    sys.stdout.write(
        f"{len(paths)} files, {rows:,} rows, {len(answered):,} markets, {holes:,} holes: "
        f"{len(found)} differences\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
