"""Strategies over a price history (`backtest run`), and the differences between them
(`--against`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bidbrain.billing import End
from bidbrain.lab.backtest.results import (
    BOUND,
    BacktestSummary,
    ConfidenceInterval,
    JobResult,
    PairedDifference,
    cheapest,
)
from bidbrain.lab.backtest.run import run_of
from bidbrain.strategies.registry import default_for
from pricing_data.units import HOUR, MINUTE, format_time
from spotctl.show.columns import UNKNOWN, WALL_SECONDS, Column, as_json, save_csv
from spotctl.show.plots import BLUE, GREEN, INK, RED, legend_of, output_folder, panels, save_plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from bidbrain.lab.backtest.scenario import Scenario
    from bidbrain.replay.run import Run, Tenure

SUMMARIES: tuple[Column[BacktestSummary], ...] = (
    Column("scheme", heading="strategy"),
    Column("hours", heading="hours", show="{:g}"),
    Column("cost_pct", heading="cost %", show="{:.1f}"),
    Column("cost_p50", value="cost_p50", heading="p50", show="{:.1f}", rank=1),
    Column("cost_p95", value="cost_p95", heading="p95", show="{:.1f}", rank=2),
    Column("runtime_ratio", heading="run time", show="{:.2f}"),
    Column(
        "evictions_per_job",
        value="evictions_per_job",
        heading="evictions",
        show="{:.1f}",
    ),
    Column("free_pct", value="free_pct", heading="free %", show="{:.1f}", rank=3),
    Column("unfinished", heading="unfinished"),
)

RESULTS: tuple[Column[Any], ...] = (
    Column(
        "results",
        "results by strategy and job length; null where no job finished",
        each=BacktestSummary,
    ),
    Column("cheapest", "cheapest strategy that is as fast as the baseline; null if none is"),
    Column(
        "default",
        "strategy that plans use under this billing rule",
        of=(Column("scheme", "its name", "name"), Column("reason", "why")),
    ),
    Column("notes", "notes on strategies"),
    WALL_SECONDS,
)


def results_json(
    summaries: Sequence[BacktestSummary],
    billing: str,
    wall_seconds: float,
    remarks: Sequence[str] = (),
) -> dict[str, Any]:
    """The JSON of `backtest run --json`."""
    figures = {
        "results": summaries,
        "cheapest": cheapest(summaries),
        "default": default_for(billing),
        "notes": list(remarks),
        "wall_seconds": wall_seconds,
    }
    return as_json(RESULTS, figures)


def choice(summaries: Sequence[BacktestSummary], billing: str) -> tuple[str, str]:
    """The cheapest strategy in these results, and the default under this billing rule."""
    best, default = cheapest(summaries), default_for(billing)
    first = "no strategy is as fast as the baseline"
    if best:
        first = f"cheapest strategy as fast as the baseline: {best}"
    return first, f"default for {billing} billing: {default.name}, because {default.reason}"


def _pairs(row: PairedDifference) -> str:
    if row.unpaired:
        return f"{row.jobs} (+{row.unpaired} unpaired)"
    return f"{row.jobs}"


def _mean(interval: ConfidenceInterval, spec: str) -> str:
    if isfinite(interval.mean):
        return f"{interval.mean:+{spec}}"
    return UNKNOWN


def ends_text(interval: ConfidenceInterval, spec: str) -> str:
    """The ends of a 95% interval, each in a format; `-` if they are unknown."""
    if not (isfinite(interval.low) and isfinite(interval.mean)):
        return UNKNOWN
    return f"[{interval.low:{spec}}, {interval.high:{spec}}]"


DIFFERENCES: tuple[Column[PairedDifference], ...] = (
    Column("variant", "variant of the scenario", heading="variant"),
    Column("scheme", "name of the strategy", heading="strategy"),
    Column("against", "strategy that it is compared with"),
    Column("hours", "length of the jobs on the baseline's machines", heading="hours", show="{:g}"),
    Column("jobs", "number of jobs compared", heading="jobs", cell=_pairs, rank=3),
    Column("unpaired", "number of jobs that either did not finish"),
    Column(
        "cost_points",
        "mean difference in cost, in percentage points of on-demand",
        "cost.mean",
        heading="cost, points",
        cell=lambda row: _mean(row.cost, ".2f"),
    ),
    Column(
        "cost_low",
        "lower end of its 95% interval",
        "cost.low",
        heading="95%",
        cell=lambda row: ends_text(row.cost, "+.2f"),
        rank=1,
    ),
    Column("cost_high", "upper end of its 95% interval", "cost.high"),
    Column(
        "runtime_ratio",
        "mean difference in run time, as a share of the baseline's",
        "runtime.mean",
        heading="run time",
        cell=lambda row: _mean(row.runtime, ".3f"),
    ),
    Column(
        "runtime_low",
        "lower end of its 95% interval",
        "runtime.low",
        heading="95%",
        cell=lambda row: ends_text(row.runtime, "+.3f"),
        rank=2,
    ),
    Column("runtime_high", "upper end of its 95% interval", "runtime.high"),
)

COMPARISON: tuple[Column[Any], ...] = (
    Column(
        "differences",
        "differences between strategies over the jobs that both finished",
        each=DIFFERENCES,
    ),
)
RESULTS_AND_DIFFERENCES = (*RESULTS, *COMPARISON)

_SPOT, _ON_DEMAND, _FREE, _EVICTED = BLUE, INK, GREEN, RED
_ON_DEMAND_NAME = "on demand"


def write(
    folder: Path,
    scenario: Scenario,
    results: Sequence[JobResult],
    summaries: Sequence[BacktestSummary],
) -> None:
    """Writes `jobs.csv` with a row per job, and plots of costs, run times, machine-hours and one
    footprint.
    """
    rows = list[dict[str, object]]()
    for result in results:
        start, end = format_time(result.start), ""
        if result.end is not None:
            end = format_time(result.end)
        rows.append({**asdict(result), "start": start, "end": end})

    with output_folder(folder):
        save_csv(folder / "jobs.csv", rows)
        for hours in sorted({summary.hours for summary in summaries}):
            of_length = [summary for summary in summaries if summary.hours == hours]
            jobs = [result for result in results if result.hours == hours]

            figure, (cost, time) = panels(10, 0.8 + 0.45 * len(of_length), across=2, sharey=True)
            names = [summary.scheme for summary in of_length]
            costs = [summary.cost_pct for summary in of_length]
            times = [summary.runtime_ratio for summary in of_length]
            for axes, values, digits, label in (
                (cost, costs, "%.1f", "cost, % of on-demand"),
                (time, times, "%.2f", "run time / baseline run time"),
            ):
                bars = axes.barh(names, values, color=_SPOT)
                axes.bar_label(bars, fmt=digits, padding=3)
                axes.set_xlabel(label)
                axes.margins(x=0.15)

            cost.invert_yaxis()
            figure.suptitle(f"Jobs of {hours:g} hours", fontsize=11)

            pictures: dict[str, Figure | None] = {
                "cost_and_runtime": figure,
                "machine_hours": _machine_hours(hours, of_length),
                "footprint": _footprint(scenario, jobs),
            }

            for name, picture in pictures.items():
                if picture is not None:
                    save_plot(picture, folder / f"{name}_{hours:g}h.png")


def _machine_hours(hours: float, summaries: Sequence[BacktestSummary]) -> Figure:
    rented = list[BacktestSummary]()
    for summary in summaries:
        held = summary.on_demand_hours + summary.spot_hours + summary.free_hours
        if held > 0:
            rented.append(summary)

    figure, (axes,) = panels(10, 1.0 + 0.45 * len(rented))
    names, left = [summary.scheme for summary in rented], [0.0] * len(rented)
    parts = (
        ("on demand", "on_demand_hours", _ON_DEMAND),
        ("spot", "spot_hours", _SPOT),
        ("free", "free_hours", _FREE),
    )

    for label, field, color in parts:
        values = [getattr(summary, field) for summary in rented]
        axes.barh(names, values, left=left, label=label, color=color)
        left = [a + b for a, b in zip(left, values, strict=True)]

    axes.invert_yaxis()
    axes.set_xlabel("machine-hours per job")
    axes.set_title(f"Where machine-hours went, jobs of {hours:g} hours", loc="left", fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def _footprint(scenario: Scenario, results: Sequence[JobResult]) -> Figure | None:
    """The machines of every strategy that rents spot machines over time, for one typical job; None
    if none does.
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex
    from matplotlib.lines import Line2D

    # The job whose cost, summed over all strategies but the bound, is the median.
    costs: dict[tuple[str, int], list[float]] = {}
    for result in results:
        if result.scheme != BOUND:
            costs.setdefault((result.zone, result.start), []).append(result.cost)

    ranked = [(sum(of_job), job) for job, of_job in costs.items()]
    jobs = [job for _, job in sorted(ranked)]
    if not jobs:
        jobs = [(result.zone, result.start) for result in results]
    median = jobs[len(jobs) // 2]
    job = next(result for result in results if (result.zone, result.start) == median)

    names = set[str]()
    runs: dict[str, Run] = {}
    for result in results:
        if result.spot_hours + result.free_hours > 0 and result.scheme not in runs:
            run = run_of(scenario, result.scheme, job.zone, job.hours, job.start)
            runs[result.scheme] = run
            names |= {_name(tenure) for tenure in run.tenures}
    if not runs:
        return None

    colors, palette = dict[str, str](), colormaps["tab20"]
    for i, name in enumerate(sorted(names)):
        colors[name] = to_hex(palette(i % 20))
        if name == _ON_DEMAND_NAME:
            colors[name] = _ON_DEMAND

    height = 1.5 + 0.06 * len(colors) + 1.3 * len(runs)
    figure, rows = panels(10, height, len(runs), sharex=True, sharey=True)
    for axes, (name, run) in zip(rows, runs.items(), strict=True):
        _draw_machines(axes, run, colors)
        axes.set_title(name, loc="left", fontsize=9)

    rows[-1].set_xlabel("hours since the start")
    figure.supylabel("capacity held (vCPUs)", fontsize=9)
    began = format_time(job.start // MINUTE * MINUTE)
    figure.suptitle(f"{job.hours:g} hours of work in {job.zone} from {began}", fontsize=11)
    evicted = Line2D([], [], linestyle="", marker="^", color=_EVICTED, label="eviction")
    handles = [*legend_of(colors), evicted]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)

    return figure


def _draw_machines(axes: Axes, run: Run, colors: dict[str, str]) -> None:
    """The capacity (work per hour) that is held of each market, and the evictions."""
    start, moments = run.job.start, list[int]()
    evictions = list[float]()
    for tenure in run.tenures:
        moments += [tenure.start, tenure.end]
        if tenure.ended is End.EVICTED:
            evictions.append((tenure.end - start) / HOUR)

    edges = np.unique(moments or [start])
    levels = {name: np.zeros(edges.size) for name in colors}
    for tenure in run.tenures:
        held = (edges >= tenure.start) & (edges < tenure.end)
        capacity = tenure.rent.machines * tenure.rent.offer.nu
        levels[_name(tenure)][held] += capacity

    hours, heights = (edges - start) / HOUR, list(levels.values())
    axes.stackplot(hours, heights, step="post", colors=colors.values(), linewidth=0)
    low = [0.07] * len(evictions)
    at_bottom = axes.get_xaxis_transform()
    axes.plot(evictions, low, "^", color=_EVICTED, markeredgecolor="white", transform=at_bottom)

    axes.margins(x=0, y=0.1)


def _name(tenure: Tenure) -> str:
    market = tenure.rent.offer.market
    if tenure.rent.bid is None:
        return _ON_DEMAND_NAME
    return f"{market.instance_type} {market.zone}"
