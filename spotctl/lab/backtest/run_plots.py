"""Plots of a backtest: cost and run time by strategy, where machine-hours went, and one job over time."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bidbrain.backtest.results import BOUND, BacktestSummary, JobResult
from bidbrain.backtest.run import run_of
from bidbrain.backtest.scenario import Scenario
from bidbrain.billing import End
from bidbrain.replay.run import Run, Tenure
from pricing_data.units import HOUR, MINUTE, format_time
from spotctl.lab.backtest import run_tables as backtest_tables
from spotctl.show.outputs import output_folder
from spotctl.show.plot_style import BLUE, GREEN, INK, RED, save_plot

_SPOT, _ON_DEMAND, _FREE, _EVICTED = BLUE, INK, GREEN, RED


def write(folder: Path, scenario: Scenario, results: Sequence[JobResult], summaries: Sequence[BacktestSummary]) -> None:
    """Writes `jobs.csv` with a row per job, and plots of costs, run times, machine-hours and one footprint."""
    with output_folder(folder):
        backtest_tables.write_jobs(folder / "jobs.csv", results)
        for hours in sorted({summary.hours for summary in summaries}):
            of_length = [summary for summary in summaries if summary.hours == hours]
            _bars(folder / f"cost_and_runtime_{hours:g}h.png", hours, of_length)
            _breakdown(folder / f"machine_hours_{hours:g}h.png", hours, of_length)
            _footprint(
                folder / f"footprint_{hours:g}h.png", scenario, [result for result in results if result.hours == hours]
            )


def _bars(path: Path, hours: float, summaries: Sequence[BacktestSummary]) -> None:
    figure = Figure(figsize=(10, 0.8 + 0.45 * len(summaries)), layout="constrained")
    cost, time = figure.subplots(1, 2, sharey=True)
    names = [summary.scheme for summary in summaries]
    for axes, values, label in (
        (cost, [summary.cost_pct for summary in summaries], "cost, % of on-demand"),
        (time, [summary.runtime_ratio for summary in summaries], "run time / baseline run time"),
    ):
        bars = axes.barh(names, values, color=_SPOT)
        axes.bar_label(bars, fmt="%.1f" if axes is cost else "%.2f", padding=3)
        axes.set_xlabel(label)
        axes.margins(x=0.15)
    cost.invert_yaxis()
    figure.suptitle(f"Jobs of {hours:g} hours", fontsize=11)
    save_plot(figure, path)


def _breakdown(path: Path, hours: float, summaries: Sequence[BacktestSummary]) -> None:
    rented = [summary for summary in summaries if summary.on_demand_hours + summary.spot_hours + summary.free_hours > 0]
    figure = Figure(figsize=(10, 1.0 + 0.45 * len(rented)), layout="constrained")
    axes = figure.subplots()
    names, left = [summary.scheme for summary in rented], [0.0] * len(rented)
    parts = (("on demand", "on_demand_hours", _ON_DEMAND), ("spot", "spot_hours", _SPOT), ("free", "free_hours", _FREE))
    for label, field, color in parts:
        values = [getattr(summary, field) for summary in rented]
        axes.barh(names, values, left=left, label=label, color=color)
        left = [a + b for a, b in zip(left, values, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("machine-hours per job")
    axes.set_title(f"Where machine-hours went, jobs of {hours:g} hours", loc="left", fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    save_plot(figure, path)


def _footprint(path: Path, scenario: Scenario, results: Sequence[JobResult]) -> None:
    """The machines of every strategy that rents spot machines over time, for one typical job."""
    job = _typical(results)
    strategies = dict.fromkeys(result.scheme for result in results if result.spot_hours + result.free_hours > 0)
    runs = {name: run_of(scenario, name, job.zone, job.hours, job.start) for name in strategies}
    if not runs:
        return
    tenures = [tenure for run in runs.values() for tenure in run.tenures]
    names = sorted({_name(tenure) for tenure in tenures})
    colors = {name: _ON_DEMAND if name == _ON_DEMAND_NAME else _distinct(i) for i, name in enumerate(names)}
    figure = Figure(figsize=(10, 1.5 + 0.06 * len(colors) + 1.3 * len(runs)), layout="constrained")
    panels = figure.subplots(len(runs), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (name, run) in zip(panels, runs.items(), strict=True):
        _held_over_time(axes, run, colors)
        axes.set_title(name, loc="left", fontsize=9)
    panels[-1].set_xlabel("hours since the start")
    figure.supylabel("capacity held (vCPUs)", fontsize=9)
    figure.suptitle(f"{job.hours:g} hours of work in {job.zone} from {format_time(_minute(job.start))}", fontsize=11)
    markets = [Patch(color=color, label=label) for label, color in colors.items()]
    evicted = Line2D([], [], linestyle="", marker="^", color=_EVICTED, label="eviction")
    figure.legend(handles=[*markets, evicted], loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    save_plot(figure, path)


_ON_DEMAND_NAME = "on demand"


def _minute(moment: int) -> int:
    return moment // MINUTE * MINUTE


def _typical(results: Sequence[JobResult]) -> JobResult:
    """The job whose cost, summed over all strategies but the bound, is the median."""
    costs: dict[tuple[str, int], list[float]] = {}
    for result in results:
        if result.scheme != BOUND:
            costs.setdefault((result.zone, result.start), []).append(result.cost)
    ranked = sorted(costs, key=lambda job: (sum(costs[job]), job)) or [
        (result.zone, result.start) for result in results
    ]
    zone, start = ranked[len(ranked) // 2]
    return next(result for result in results if (result.zone, result.start) == (zone, start))


def _held_over_time(axes: Axes, run: Run, colors: dict[str, str]) -> None:
    start = run.job.start
    edges = np.unique([moment for tenure in run.tenures for moment in (tenure.start, tenure.end)] or [start])
    heights = [_levels(edges, [tenure for tenure in run.tenures if _name(tenure) == name]) for name in colors]
    axes.stackplot((edges - start) / HOUR, heights, step="post", colors=colors.values(), linewidth=0)
    evictions = [(tenure.end - start) / HOUR for tenure in run.tenures if tenure.ended is End.EVICTED]
    low = [0.07] * len(evictions)
    axes.plot(evictions, low, "^", color=_EVICTED, markeredgecolor="white", transform=axes.get_xaxis_transform())
    axes.margins(x=0, y=0.1)


def _levels(edges: np.typing.NDArray[np.int64], tenures: Iterable[Tenure]) -> np.typing.NDArray[np.float64]:
    """Capacity (work per hour) held from each edge on."""
    levels = np.zeros(edges.size)
    for tenure in tenures:
        levels[(edges >= tenure.start) & (edges < tenure.end)] += tenure.rent.machines * tenure.rent.offer.nu
    return levels


def _name(tenure: Tenure) -> str:
    market = tenure.rent.offer.market
    return _ON_DEMAND_NAME if tenure.rent.bid is None else f"{market.instance_type} {market.zone}"


def _distinct(number: int) -> str:
    return to_hex(colormaps["tab20"](number % 20))
