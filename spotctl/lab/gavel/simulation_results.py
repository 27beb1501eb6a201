"""A simulated cluster (`gavel simulate`) as a table, JSON, CSV and plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.lab.gavel.simulator.results import JobGroup, SimulationSummary, job_results
from pricing_data.units import usd_text
from spotctl.show.columns import WALL_SECONDS, Column, chosen, figures, save_csv
from spotctl.show.plots import BLUE, GOLD, GREEN, INK, ORANGE, PURPLE, output_folder, panels, save_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from bidbrain.lab.gavel.simulator.engine import SimulationOutcome

_HOUR = 3600.0
_COLORS = (BLUE, GREEN, ORANGE, PURPLE, INK, GOLD)
# More points are not visible and only make the files larger.
_STEPS = 600
_BINS = 8


def _hours(seconds: float) -> str:
    return f"{seconds:,.1f} s ({seconds / 3600:,.1f} h)"


SUMMARY: tuple[Column[SimulationSummary], ...] = (
    Column(
        "average_jct_seconds",
        "mean time from a job's arrival to its end",
        heading="average completion time",
        show=_hours,
    ),
    Column(
        "makespan_seconds",
        "time from the first arrival of a measured job to the last end of one",
        heading="makespan",
        show=_hours,
    ),
    Column(
        "utilization",
        "share of the cluster's time in use",
        heading="utilization of the cluster",
        show="{:.1%}",
    ),
    Column(
        "cost_usd",
        "cost; null without prices",
        heading="cost",
        show=usd_text,
    ),
    Column(
        "slo_violations",
        "number of deadlines missed; null without deadlines",
        heading="deadlines missed",
        show="{:,}",
    ),
    Column("jobs", "number of jobs measured", heading="jobs measured", show="{:,}"),
)
SIMULATION: tuple[Column[Any], ...] = (
    *SUMMARY,
    Column(
        "groups",
        "jobs by entity, or by priority",
        lambda summary: summary["groups"] or None,
        each=JobGroup,
        optional=True,
    ),
    WALL_SECONDS,
)
_ONLY_SHOWN: tuple[Column[SimulationSummary], ...] = (
    Column("finish_time_fairness", heading="finish-time fairness, mean", show="{:.2f}"),
    Column("moves_per_job", value=lambda summary: summary.moves_per_job, heading="moves per job", show="{:.1f}"),
)


def table(summary: SimulationSummary) -> Table:
    """One row per figure."""
    from rich.table import Table

    rows = Table(box=None, show_header=False, pad_edge=False)
    rows.add_column(no_wrap=True)
    rows.add_column(justify="right", no_wrap=True)
    order = "jobs average_jct_seconds makespan_seconds utilization finish_time_fairness moves_per_job cost_usd"
    for name, value in figures(chosen((*SUMMARY, *_ONLY_SHOWN), f"{order} slo_violations"), summary):
        rows.add_row(name, value)
    for group in summary.groups:
        rows.add_row(f"completion time, {group.jobs:,} jobs of {group.name}", _hours(group.average_jct_seconds))
    return rows


def write(folder: Path, outcome: SimulationOutcome) -> None:
    """Writes `jobs.csv` with a row per measured job, and `jct_cdf.png`, `jct_by_load.png` and `allocation.png`.

    Cells without a value are empty; the seconds on each worker type have columns of their own.
    """
    rows = []
    for result in job_results(outcome):
        row = asdict(result)
        seconds = {f"{kind}_seconds": seconds for kind, seconds in row.pop("held_seconds").items()}
        rows.append({**row, **seconds})
    measured = np.array(outcome.scenario.measured)
    jct = (outcome.finish - outcome.scenario.workload.arrival)[measured] / _HOUR
    with output_folder(folder):
        save_csv(folder / "jobs.csv", rows)
        save_plot(draw_completion({"": jct}), folder / "jct_cdf.png")
        save_plot(_draw_load(outcome, measured, jct), folder / "jct_by_load.png")
        save_plot(_draw_allocation(outcome), folder / "allocation.png")


def draw_completion(hours: Mapping[str, Floats]) -> Figure:
    """The share of jobs completed within a number of hours; a line per policy."""
    figure, (axes,) = panels(7, 4)
    for color, (label, values) in zip(_COLORS, hours.items(), strict=False):
        axes.step(np.sort(values), np.arange(1, len(values) + 1) / len(values), where="post", label=label, color=color)
    axes.set_xscale("log")
    axes.set_xlabel("completion time, hours")
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0, 1.02)
    if any(hours):
        axes.legend(frameon=False)
    return figure


def _draw_load(outcome: SimulationOutcome, measured: np.ndarray[tuple[int], np.dtype[np.int64]], jct: Floats) -> Figure:
    """Completion time by the number of jobs in the cluster at arrival; the line is the mean of similar jobs."""
    arrival = outcome.scenario.workload.arrival
    arrived = np.searchsorted(arrival, arrival[measured], side="right")
    present = arrived - np.searchsorted(np.sort(outcome.finish), arrival[measured], side="right")
    figure, (axes,) = panels(7, 4)
    axes.scatter(present, jct, s=8, alpha=0.4, color=_COLORS[0])
    groups = [group for group in np.array_split(np.argsort(present, kind="stable"), _BINS) if group.size]
    axes.plot([present[g].mean() for g in groups], [jct[g].mean() for g in groups], color=_COLORS[2], marker="o")
    axes.set_yscale("log")
    axes.set_xlabel("jobs in the cluster at arrival")
    axes.set_ylabel("completion time, hours")
    return figure


def _draw_allocation(outcome: SimulationOutcome) -> Figure:
    """The busy share of each type's workers over time, above the number of jobs in the cluster."""
    edges = np.linspace(outcome.round_start[0], outcome.end, min(_STEPS, len(outcome.round_start)) + 1)
    done = np.vstack([np.zeros(outcome.busy_worker_seconds.shape[1]), np.cumsum(outcome.busy_worker_seconds, axis=0)])
    at = np.append(outcome.round_start[:1], outcome.round_end)
    figure, (busy, jobs) = panels(9, 5, 2, sharex=True, height_ratios=(2, 1))
    cluster = outcome.scenario.cluster
    for j, color in zip(range(len(cluster.types)), _COLORS, strict=False):
        if cluster.workers[j]:
            share = np.diff(np.interp(edges, at, done[:, j])) / np.diff(edges) / cluster.workers[j]
            busy.stairs(share, edges / _HOUR, label=f"{cluster.workers[j]:g} {cluster.types[j]}", color=color)
    busy.set_ylabel("share of workers busy")
    busy.set_ylim(0, 1.05)
    busy.legend(loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False, ncols=len(cluster.types))
    arrival = outcome.scenario.workload.arrival
    present = np.searchsorted(arrival, edges, side="right") - np.searchsorted(
        np.sort(outcome.finish), edges, side="right"
    )
    jobs.stairs(present[:-1], edges / _HOUR, color=_COLORS[4])
    jobs.set_ylabel("jobs in the cluster")
    jobs.set_xlabel("hours")
    return figure
