"""Plots of a simulation: completion times, their dependence on load, and cluster use over time."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from bidbrain.gavel.arrays import FloatArray
from bidbrain.gavel.simulator.engine import SimulationOutcome
from spotctl.show.outputs import output_folder
from spotctl.show.plot_style import BLUE, GOLD, GREEN, INK, ORANGE, PURPLE, save_plot

_HOUR = 3600.0
_COLORS = (BLUE, GREEN, ORANGE, PURPLE, INK, GOLD)
# More points are not visible and only make the files larger.
_STEPS = 600
_BINS = 8


def write(folder: Path, outcome: SimulationOutcome) -> None:
    """Writes `jct_cdf.png`, `jct_by_load.png` and `allocation.png`; creates the folder if needed."""
    measured = np.array(outcome.scenario.measured)
    jct = (outcome.finish - outcome.scenario.workload.arrival)[measured] / _HOUR
    save(folder, "jct_cdf.png", cdf({"": jct}))
    save(folder, "jct_by_load.png", _by_load(outcome, measured, jct))
    save(folder, "allocation.png", _allocation(outcome))


def save(folder: Path, name: str, figure: Figure) -> None:
    with output_folder(folder):
        save_plot(figure, folder / name)


def cdf(hours: Mapping[str, FloatArray]) -> Figure:
    """The share of jobs completed within a number of hours; a line per policy."""
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for color, (label, values) in zip(_COLORS, hours.items(), strict=False):
        axes.step(np.sort(values), np.arange(1, len(values) + 1) / len(values), where="post", label=label, color=color)
    axes.set_xscale("log")
    axes.set_xlabel("completion time, hours")
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0, 1.02)
    if any(hours):
        axes.legend(frameon=False)
    return figure


def _by_load(
    outcome: SimulationOutcome, measured: np.ndarray[tuple[int], np.dtype[np.int64]], jct: FloatArray
) -> Figure:
    """Completion time by the number of jobs in the cluster at arrival; the line is the mean of similar jobs."""
    arrival = outcome.scenario.workload.arrival
    arrived = np.searchsorted(arrival, arrival[measured], side="right")
    present = arrived - np.searchsorted(np.sort(outcome.finish), arrival[measured], side="right")
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.scatter(present, jct, s=8, alpha=0.4, color=_COLORS[0])
    groups = [group for group in np.array_split(np.argsort(present, kind="stable"), _BINS) if group.size]
    axes.plot([present[g].mean() for g in groups], [jct[g].mean() for g in groups], color=_COLORS[2], marker="o")
    axes.set_yscale("log")
    axes.set_xlabel("jobs in the cluster at arrival")
    axes.set_ylabel("completion time, hours")
    return figure


def _allocation(outcome: SimulationOutcome) -> Figure:
    """The busy share of each type's workers over time, above the number of jobs in the cluster."""
    edges = np.linspace(outcome.round_start[0], outcome.end, min(_STEPS, len(outcome.round_start)) + 1)
    done = np.vstack([np.zeros(outcome.busy_worker_seconds.shape[1]), np.cumsum(outcome.busy_worker_seconds, axis=0)])
    at = np.append(outcome.round_start[:1], outcome.round_end)
    figure = Figure(figsize=(9, 5), layout="constrained")
    busy, jobs = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
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
