"""The replay of `backtest regions`: every window under every policy, sums by policy, and a picture
of one window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bidbrain.lab.regions.policies import ONE_ZONE, played
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

    from bidbrain.lab.regions.replay import Window


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


def play_all(
    windows: Sequence[Window], policies: Sequence[str], on_window: Callable[[], None]
) -> list[PlayedWindow]:
    """All results, window by window."""
    results = list[PlayedWindow]()
    for window in windows:
        for policy in policies:
            results += played(window, policy)
        on_window()
    return results


def summarize(results: Sequence[PlayedWindow]) -> list[PolicySummary]:
    """The means and sums of each policy over its windows."""
    best = sum(result.bill.total for result in results if result.policy == "optimal")
    summaries = list[PolicySummary]()
    for policy in dict.fromkeys(result.policy for result in results):
        outcomes = [result for result in results if result.policy == policy]
        count, total = len(outcomes), sum(outcome.bill.total for outcome in outcomes)
        spot = sum(outcome.spot_steps for outcome in outcomes)
        on_demand = sum(outcome.on_demand_steps for outcome in outcomes)
        summary = PolicySummary(
            policy=policy,
            windows=count,
            cost_usd=total / count,
            excess=total / best - 1 if best and policy != ONE_ZONE else None,
            moves=sum(outcome.bill.moves for outcome in outcomes) / count,
            probes=sum(outcome.bill.probes for outcome in outcomes) / count,
            spot_share=spot / max(spot + on_demand, 1),
            missed=sum(outcome.missed for outcome in outcomes),
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
    Column("spot_share", value=lambda summary: summary.spot_share, heading="spot", show="{:.0%}"),
    Column("missed", heading="misses"),
)


def _window(played: PlayedWindow) -> str:
    job = played.window.job
    work, deadline, zones = (
        job.work / HOUR,
        job.deadline / HOUR,
        ",".join(played.window.record.zones),
    )
    return f"{zones} from {_start_hours(played):.2f} h, {work:.2f} of {deadline:.2f} h"


def _start_hours(played: PlayedWindow) -> float:
    return played.window.start * played.window.record.gap / HOUR


WINDOWS: tuple[Column[PlayedWindow], ...] = (
    Column("policy", "name of the policy"),
    Column("window", "zones, start and length of the window in words", _window),
    Column("start_hours", "its start in the record", _start_hours),
    Column("work_hours", "work of the job", lambda played: played.window.job.work / HOUR),
    Column(
        "deadline_hours",
        "time until the deadline",
        lambda played: played.window.job.deadline / HOUR,
    ),
    Column(
        "checkpoint_gb", "size of the checkpoint", lambda played: played.window.job.checkpoint_gb
    ),
    Column(
        "zones", "zones that the policy may use", lambda played: list(played.window.record.zones)
    ),
    Column("cost_usd", "cost of the job", lambda played: played.bill.total),
    Column("machines_usd", "part for machines", lambda played: played.bill.machines),
    Column("moving_usd", "part for moving checkpoints", lambda played: played.bill.moving),
    Column(
        "probing_usd",
        "part for probing whether spot is available",
        lambda played: played.bill.probing,
    ),
    Column("moves", "number of moves", lambda played: played.bill.moves),
    Column("probes", "number of probes", lambda played: played.bill.probes),
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
    Column("missed", "whether the deadline was missed", lambda played: played.missed),
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
    for result in [result for result in results if result.policy != ONE_ZONE] or results:
        by_window.setdefault(id(result.window), []).append(result)
    with output_folder(folder):
        save_plot(picture(max(by_window.values(), key=_spread)), folder / "regions.png")


def _spread(window: Sequence[PlayedWindow]) -> float:
    """The highest cost over the lowest, without on-demand machines."""
    costs = [result.bill.total for result in window if result.policy != "on-demand"] or [0.0]
    return max(costs) / max(min(costs), 1e-9)


def picture(results: Sequence[PlayedWindow]) -> Figure:
    """One window under several policies: zones as rows, when spot was up in each, and where the job
    ran.
    """
    zones = len(results[0].window.record.zones)
    figure, rows = panels(11, 0.6 + len(results) * (0.7 + 0.2 * zones), len(results), sharex=True)
    for axes, result in zip(rows, results, strict=True):
        record = result.window.record
        hours = record.gap / HOUR
        for row in range(zones):
            draw_stretches(
                axes, row, record.granted[row] >= result.window.job.at_least, hours, 0.8, _UP
            )
            for spot, color in ((True, _SPOT), (False, _ON_DEMAND)):
                held = [
                    held is not None and held.zone == row and held.spot is spot
                    for held in result.course
                ]
                draw_stretches(axes, row, np.array(held, dtype=np.bool_), hours, 0.4, color)
        axes.axvline(result.window.job.deadline / HOUR, color=RED, linewidth=1.5)
        axes.set_yticks(range(zones), record.zones, fontsize=7)
        axes.invert_yaxis()
        title = f"{result.policy}: ${result.bill.total:,.2f}, {result.bill.moves} moves"
        axes.set_title(title, loc="left", fontsize=9)

    job = results[0].window.job
    rows[-1].set_xlabel(
        f"hours since the start ({job.work / HOUR:.1f} h of work; red line: deadline)"
    )
    colors = {"spot available": _UP, "runs on spot": _SPOT, "runs on demand": _ON_DEMAND}
    figure.legend(handles=legend_of(colors), loc="outside upper right", ncols=3)

    return figure
