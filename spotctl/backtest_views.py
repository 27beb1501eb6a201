"""Results of a backtest as a table, as JSON, as CSV and as plots."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from math import isfinite
from pathlib import Path
from typing import Any

from rich.table import Table

from bidbrain.backtest.results import JobResult, Summary
from pricing_data.units import format_time
from spotctl.errors import BadRequest

_SPOT, _ON_DEMAND, _FREE = "#1f6feb", "#57606a", "#2da44e"


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


def answer(summaries: Sequence[Summary], wall_seconds: float) -> dict[str, Any]:
    """What `--json` prints; where no job was finished, its figures are null."""
    rows = [
        {
            name: None if isinstance(value, float) and not isfinite(value) else value
            for name, value in asdict(one).items()
        }
        for one in summaries
    ]
    return {"results": rows, "wall_seconds": wall_seconds}


def write(folder: Path, results: Sequence[JobResult], summaries: Sequence[Summary]) -> None:
    """`jobs.csv` with a row per job, and the paper's figures: costs, run times, and where machine-hours went."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write_jobs(folder / "jobs.csv", results)
        for hours in sorted({one.hours for one in summaries}):
            of_length = [one for one in summaries if one.hours == hours]
            _bars(folder / f"cost_and_runtime_{hours:g}h.png", hours, of_length)
            _breakdown(folder / f"machine_hours_{hours:g}h.png", hours, of_length)
    except OSError as error:
        raise BadRequest(f"--out {folder}: {error.strerror or error}") from error


def _write_jobs(path: Path, results: Sequence[JobResult]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(JobResult)])
        for result in results:
            row = asdict(result)
            row["start"] = format_time(result.start)
            row["end"] = "" if result.end is None else format_time(result.end)
            writer.writerow(row.values())


def _bars(path: Path, hours: float, summaries: Sequence[Summary]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 0.8 + 0.45 * len(summaries)), layout="constrained")
    cost, time = figure.subplots(1, 2, sharey=True)
    names = [one.scheme for one in summaries]
    for axes, values, label in (
        (cost, [one.cost_pct for one in summaries], "cost, % of on-demand"),
        (time, [one.runtime_ratio for one in summaries], "run time, share of the baseline's"),
    ):
        bars = axes.barh(names, values, color=_SPOT)
        axes.bar_label(bars, fmt="%.1f" if axes is cost else "%.2f", padding=3)
        axes.set_xlabel(label)
        axes.margins(x=0.15)
    cost.invert_yaxis()
    figure.suptitle(f"Jobs of {hours:g} hours", fontsize=11)
    figure.savefig(path, dpi=150)


def _breakdown(path: Path, hours: float, summaries: Sequence[Summary]) -> None:
    from matplotlib.figure import Figure

    rented = [one for one in summaries if one.on_demand_hours + one.spot_hours + one.free_hours > 0]
    figure = Figure(figsize=(10, 1.0 + 0.45 * len(rented)), layout="constrained")
    axes = figure.subplots()
    names, left = [one.scheme for one in rented], [0.0] * len(rented)
    parts = (("on demand", "on_demand_hours", _ON_DEMAND), ("spot", "spot_hours", _SPOT), ("free", "free_hours", _FREE))
    for label, field, color in parts:
        values = [getattr(one, field) for one in rented]
        axes.barh(names, values, left=left, label=label, color=color)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("machine-hours per job")
    axes.set_title(f"Where machine-hours went, jobs of {hours:g} hours", loc="left", fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    figure.savefig(path, dpi=150)
