"""Plots of the price analysis: saving by strategy (Figure 6.5), by length (6.6), and prices (6.3, 6.4)."""

from pathlib import Path

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from spotctl.lab.gavel.analyze import Analysis
from spotctl.lab.gavel.analyze_tables import shown_length
from spotctl.show.outputs import output_folder
from spotctl.show.plot_style import BLUE, GOLD, GREEN, INK, ORANGE, PALE, save_plot

_COLORS = (PALE, INK, GOLD, BLUE, GREEN, ORANGE)
_STYLES = ("-", "--", ":", "-.")
_DAY = 24.0


def write(folder: Path, analysis: Analysis) -> None:
    """Writes `reduction.png`, `by_length.png` and `prices.png`; creates the folder if needed."""
    with output_folder(folder):
        for name, draw in (("reduction", _reduction), ("by_length", _by_length), ("prices", _prices)):
            save_plot(draw(analysis), folder / f"{name}.png")


def _reduction(analysis: Analysis) -> Figure:
    days = shown_length(analysis)
    results = [result for result in analysis.results if result.days == days]
    jobs = list(dict.fromkeys(result.job for result in results))
    names = [strategy.name for strategy in analysis.plan.strategies]
    figure = Figure(figsize=(max(8.0, 0.75 * len(jobs) + 2), 4.8), layout="constrained")
    axes = figure.subplots()
    width = 0.85 / len(names)
    for i, name in enumerate(names):
        heights = [result.reduction for result in results if result.strategy == name]
        places = np.arange(len(jobs)) + (i - (len(names) - 1) / 2) * width
        axes.bar(places, heights, width, label=name, color=_COLORS[i])
    axes.set_xticks(np.arange(len(jobs)), jobs, rotation=35, ha="right", fontsize=8)
    baseline = analysis.plan.strategies[0]
    axes.set_ylabel(f"cost reduction over 1x{baseline.accelerator} in {baseline.home}")
    axes.set_title(f"jobs of {days:g} {baseline.accelerator}-days", loc="left", fontsize=9)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.03), frameon=False, ncols=len(names))
    return figure


def _by_length(analysis: Analysis) -> Figure:
    """A line for each job type that gains from moving; the others share a grey line at 1."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    colors = iter(colormaps["tab20"].colors)  # type: ignore[attr-defined]  # a listed map has them
    usd = {(result.job, result.days, result.strategy): result.usd for result in analysis.results}
    for job in analysis.jobs:
        days = [length for length in analysis.plan.days if (job.name, length, "dynamic") in usd]
        gains = [usd[job.name, length, "multi-cloud"] / usd[job.name, length, "dynamic"] for length in days]
        gaining = bool(gains) and max(gains) > 1.01
        color, label = (next(colors, None), job.name) if gaining else ("#d0d7de", None)
        axes.plot(days, gains, marker="o", markersize=3, linewidth=1.2, color=color, label=label)
    axes.set_xlabel(f"length of the job, {analysis.plan.strategies[0].accelerator}-days")
    axes.set_ylabel("cost reduction from moving while training")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=7, ncols=2)
    return figure


def _prices(analysis: Analysis) -> Figure:
    """Price per accelerator-hour in each cloud's cheapest zone, for machines with one accelerator and with several."""
    board = analysis.board
    kinds = sorted({offer.accelerator for offer in board.offers})
    clouds = sorted({offer.market.cloud for offer in board.offers})
    figure = Figure(figsize=(9, 2.4 * len(kinds)), layout="constrained")
    grid = figure.subplots(len(kinds), 1, sharex=True, squeeze=False)[:, 0]
    days = np.append(board.hours, board.span) / _DAY
    for axes, kind in zip(grid, kinds, strict=True):
        for color, cloud in zip(_COLORS[3:], clouds, strict=False):
            for style, single in zip(_STYLES, (True, False), strict=False):
                rows = [
                    i
                    for i, offer in enumerate(board.offers)
                    if (offer.accelerator, offer.market.cloud) == (kind, cloud) and (offer.accelerators == 1) == single
                ]
                if rows:
                    low = board.usd[rows].min(axis=0)
                    label = f"{cloud}, {'one' if single else 'several'} per machine"
                    axes.step(days, np.append(low, low[-1]), style, where="post", color=color, linewidth=1, label=label)
        axes.set_ylim(bottom=0)
        axes.set_ylabel(f"{kind}, $/h")
        axes.legend(frameon=False, fontsize=7, ncols=4)
    grid[-1].set_xlabel("days since the start of the common period")
    return figure
