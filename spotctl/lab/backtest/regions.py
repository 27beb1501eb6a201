"""The replay of `backtest regions`: every window under every policy, sums by policy, and a picture
of one window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bidbrain.lab.regions.policies import ONE_ZONE
from bidbrain.lab.regions.replay import PlayedWindow
from pricing_data.units import HOUR
from spotctl.show.columns import WALL_SECONDS, Column
from spotctl.show.plots import (
    BLUE,
    ORANGE,
    RED,
    draw_stretches,
    legend_of,
    output_folder,
    panels,
    save_plot,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """A policy over all windows: means per window, `excess` over the optimum's total, and totals of
    misses.

    `excess` is None where the optimum was not played, or where the windows are others (a policy of
    single zones).
    """

    policy: str
    """Name of the policy."""
    windows: int
    """Number of windows."""
    cost_usd: float
    """Mean cost."""
    excess: float | None
    """Excess over the optimum's total cost, as a share of that; null where the optimum was not
    played or had other windows."""
    moves: float
    """Mean number of moves."""
    probes: float
    """Mean number of probes."""
    spot_share: float
    """Share of machine time on spot."""
    missed: int
    """Number of windows in which the deadline was missed."""


def summarize(results: Sequence[PlayedWindow]) -> list[PolicySummary]:
    """The means and sums of each policy over its windows."""
    best = sum(result.bill.total for result in results if result.policy == "optimal")
    summaries = list[PolicySummary]()
    for policy in dict.fromkeys(result.policy for result in results):
        outcomes = [result for result in results if result.policy == policy]
        count, total = len(outcomes), sum(outcome.bill.total for outcome in outcomes)
        spot = on_demand = moves = probes = missed = 0
        for outcome in outcomes:
            spot += outcome.spot_steps
            on_demand += outcome.on_demand_steps
            moves += outcome.bill.moves
            probes += outcome.bill.probes
            missed += outcome.missed

        excess: float | None = None
        if best and policy != ONE_ZONE:
            excess = total / best - 1
        steps = max(spot + on_demand, 1)
        summary = PolicySummary(
            policy=policy,
            windows=count,
            cost_usd=total / count,
            excess=excess,
            moves=moves / count,
            probes=probes / count,
            spot_share=spot / steps,
            missed=missed,
        )
        summaries.append(summary)

    return summaries


POLICIES: tuple[Column[PolicySummary], ...] = (
    Column("policy", heading="policy"),
    Column("windows", heading="windows"),
    Column("cost_usd", heading="cost $", show="{:,.2f}"),
    Column("excess", heading="over optimal", show="{:+.1%}"),
    Column("moves", heading="moves", show="{:.1f}"),
    Column("probes", heading="probes", show="{:.1f}"),
    Column("spot_share", value="spot_share", heading="spot", show="{:.0%}"),
    Column("missed", heading="misses"),
)


def _window(played: PlayedWindow) -> str:
    window, start = played.window, _start_hours(played)
    work, deadline = window.job.work / HOUR, window.job.deadline / HOUR
    zones = ",".join(window.record.zones)
    when = f"from {start:.2f} h"
    length = f"{work:.2f} of {deadline:.2f} h"
    return f"{zones} {when}, {length}"


def _start_hours(played: PlayedWindow) -> float:
    return played.window.start * played.window.record.gap / HOUR


WINDOWS: tuple[Column[PlayedWindow], ...] = (
    Column("policy", "name of the policy"),
    Column("window", "zones, start and length of the window in words", _window),
    Column("start_hours", "its start in the record", _start_hours),
    Column("work_hours", "work of the job", "window.job.work", per=HOUR),
    Column(
        "deadline_hours",
        "time until the deadline",
        "window.job.deadline",
        per=HOUR,
    ),
    Column("checkpoint_gb", "size of the checkpoint", "window.job.checkpoint_gb"),
    Column("zones", "zones that the policy may use", "window.record.zones", form=list),
    Column("cost_usd", "cost of the job", "bill.total"),
    Column("machines_usd", "part for machines", "bill.machines"),
    Column("moving_usd", "part for moving checkpoints", "bill.moving"),
    Column(
        "probing_usd",
        "part for probing whether spot is available",
        "bill.probing",
    ),
    Column("moves", "number of moves", "bill.moves"),
    Column("probes", "number of probes", "bill.probes"),
    Column(
        "spot_hours",
        "hours on spot",
        lambda played: played.spot_steps * played.window.record.gap / HOUR,
    ),
    Column(
        "on_demand_hours",
        "hours on demand",
        lambda played: played.on_demand_steps * played.window.record.gap / HOUR,
    ),
    Column("missed", "whether the deadline was missed", "missed"),
)

REGIONS: tuple[Column[Any], ...] = (
    Column("results", "results by policy and window", each=WINDOWS),
    Column("policies", "means over all windows by policy", each=PolicySummary),
    WALL_SECONDS,
)

_UP, _SPOT, _ON_DEMAND = "#c6e6cd", BLUE, ORANGE


def write(folder: Path, results: Sequence[PlayedWindow]) -> None:
    """Writes `regions.png`: the window in which the policies differ most, one panel for each."""
    by_window: dict[int, list[PlayedWindow]] = {}
    several_zones = [result for result in results if result.policy != ONE_ZONE]
    for result in several_zones or results:
        by_window.setdefault(id(result.window), []).append(result)

    most_different = max(by_window.values(), key=_spread)
    with output_folder(folder):
        save_plot(picture(most_different), folder / "regions.png")


def _spread(window: Sequence[PlayedWindow]) -> float:
    """The highest cost over the lowest, without on-demand machines."""
    costs = [result.bill.total for result in window if result.policy != "on-demand"] or [0.0]
    lowest = max(min(costs), 1e-9)
    return max(costs) / lowest


def picture(results: Sequence[PlayedWindow]) -> Figure:
    """One window under several policies: zones as rows, when spot was up in each, and where the job
    ran.
    """
    zones = len(results[0].window.record.zones)
    height = 0.6 + len(results) * (0.7 + 0.2 * zones)
    figure, rows = panels(11, height, len(results), sharex=True)
    for axes, result in zip(rows, results, strict=True):
        job, record = result.window.job, result.window.record
        hours = record.gap / HOUR
        for row in range(zones):
            is_up = record.granted[row] >= job.at_least
            draw_stretches(axes, row, is_up, hours, 0.8, _UP)
            for spot, color in ((True, _SPOT), (False, _ON_DEMAND)):
                on = np.zeros(len(result.course), dtype=np.bool_)
                for step, held in enumerate(result.course):
                    on[step] = held is not None and held.zone == row and held.spot is spot
                draw_stretches(axes, row, on, hours, 0.4, color)

        deadline = job.deadline / HOUR
        axes.axvline(deadline, color=RED, linewidth=1.5)
        axes.set_yticks(range(zones), record.zones, fontsize=7)
        axes.invert_yaxis()
        bill = result.bill
        title = f"{result.policy}: ${bill.total:,.2f}, {bill.moves} moves"
        axes.set_title(title, loc="left", fontsize=9)

    work = results[0].window.job.work / HOUR
    rows[-1].set_xlabel(f"hours since the start ({work:.1f} h of work; red line: deadline)")
    colors = {"spot available": _UP, "runs on spot": _SPOT, "runs on demand": _ON_DEMAND}
    figure.legend(handles=legend_of(colors), loc="outside upper right", ncols=3)

    return figure
