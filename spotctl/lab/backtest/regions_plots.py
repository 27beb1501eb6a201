"""The picture of one window: zones as rows, time across, where spot was up, and where the job ran."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bidbrain.backtest.regions.policies import ONE_ZONE, PlayedWindow
from pricing_data.units import HOUR
from spotctl.show.outputs import output_folder
from spotctl.show.plot_style import BLUE, ORANGE, RED, draw_stretches, save_plot

_UP, _SPOT, _ON_DEMAND = "#c6e6cd", BLUE, ORANGE


def write(folder: Path, results: Sequence[PlayedWindow]) -> None:
    """Writes `regions.png`: the window in which the policies differ most, one panel for each."""
    with output_folder(folder):
        save_plot(picture(_example(results)), folder / "regions.png")


def _example(results: Sequence[PlayedWindow]) -> list[PlayedWindow]:
    comparable = [result for result in results if result.policy != ONE_ZONE] or list(results)
    by_window: dict[int, list[PlayedWindow]] = {}
    for result in comparable:
        by_window.setdefault(id(result.window), []).append(result)

    def spread(window: list[PlayedWindow]) -> float:
        costs = [result.outcome.bill.total for result in window if result.policy != "on-demand"] or [0.0]
        return max(costs) / max(min(costs), 1e-9)

    return max(by_window.values(), key=spread)


def picture(results: Sequence[PlayedWindow]) -> Figure:
    """One window under several policies."""
    zones = len(results[0].window.record.zones)
    figure = Figure(figsize=(11, 0.6 + len(results) * (0.7 + 0.2 * zones)), layout="constrained")
    panels = figure.subplots(len(results), 1, sharex=True, squeeze=False)[:, 0]
    for axes, result in zip(panels, results, strict=True):
        _panel(axes, result)
    job = results[0].window.job
    panels[-1].set_xlabel(f"hours since the start ({job.work / HOUR:.1f} h of work; red line: deadline)")
    colors = ((_UP, "spot available"), (_SPOT, "runs on spot"), (_ON_DEMAND, "runs on demand"))
    figure.legend(
        handles=[Patch(color=color, label=label) for color, label in colors], loc="outside upper right", ncols=3
    )
    return figure


def _panel(axes: Axes, played: PlayedWindow) -> None:
    record, outcome = played.window.record, played.outcome
    hours = record.gap / HOUR
    for row in range(len(record.zones)):
        draw_stretches(axes, row, record.granted[row] >= played.window.job.at_least, hours, 0.8, _UP)
        for spot, color in ((True, _SPOT), (False, _ON_DEMAND)):
            held = [held is not None and held.zone == row and held.spot is spot for held in outcome.course]
            draw_stretches(axes, row, np.array(held, dtype=np.bool_), hours, 0.4, color)
    axes.axvline(played.window.job.deadline / HOUR, color=RED, linewidth=1.5)
    axes.set_yticks(range(len(record.zones)), record.zones, fontsize=7)
    axes.invert_yaxis()
    axes.set_title(f"{played.policy}: ${outcome.bill.total:,.2f}, {outcome.bill.moves} moves", loc="left", fontsize=9)
