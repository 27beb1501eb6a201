"""Results of a backtest as a table, as JSON and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import Any

from rich.table import Table

from bidbrain.backtest.results import JobResult, Summary, cheapest
from bidbrain.strategies.default import default_for
from pricing_data.units import format_time


def table(summaries: Sequence[Summary]) -> Table:
    """One row for each scheme and length of job."""
    found = Table(box=None, header_style="bold", pad_edge=False)
    for i, name in enumerate(
        ("scheme", "hours", "cost %", "p50", "p95", "run time", "evictions", "free %", "unfinished")
    ):
        found.add_column(name, justify="right" if i else "left", no_wrap=True)
    for one in summaries:
        found.add_row(
            one.scheme,
            f"{one.hours:g}",
            f"{one.cost_pct:.1f}",
            f"{one.cost_p50:.1f}",
            f"{one.cost_p95:.1f}",
            f"{one.runtime_ratio:.2f}",
            f"{one.evictions_per_job:.1f}",
            f"{one.free_pct:.1f}",
            str(one.unfinished),
        )
    return found


def choice(summaries: Sequence[Summary], billing: str) -> str:
    """What to use by these results, and what is used where nobody says."""
    best, default = cheapest(summaries), default_for(billing)
    found = f"cheapest in the baseline's time: {best}" if best else "no scheme finishes all in the baseline's time"
    return f"{found}; the default under {billing} is {default.name}: {default.reason}"


def answer(summaries: Sequence[Summary], billing: str, wall_seconds: float) -> dict[str, Any]:
    """What `--json` prints; where no job was finished, its figures are null."""
    rows = [
        {
            name: None if isinstance(value, float) and not isfinite(value) else value
            for name, value in asdict(one).items()
        }
        for one in summaries
    ]
    chosen = default_for(billing)
    default = {"scheme": chosen.name, "reason": chosen.reason}
    return {"results": rows, "cheapest": cheapest(summaries), "default": default, "wall_seconds": wall_seconds}


def write_jobs(path: Path, results: Sequence[JobResult]) -> None:
    """A CSV with a row per job."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(JobResult)])
        for result in results:
            row = asdict(result)
            row["start"] = format_time(result.start)
            row["end"] = "" if result.end is None else format_time(result.end)
            writer.writerow(row.values())
