"""The frontier of cost and run time (`backtest run --frontier`): its table, JSON and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bidbrain.lab.backtest.frontier import BoundPoint, FrontierPoint
from bidbrain.strategies.registry import default_for
from spotctl.lab.backtest.strategies import ends_text
from spotctl.show import columns
from spotctl.show.columns import WALL_SECONDS, Column, as_json, chosen
from spotctl.show.plots import BLUE, GREEN, PALE, output_folder, panels, save_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

_HIGHEST = 80.0
"""Points above this cost are not drawn: on demand by itself would press all others together."""
_NEAR = (0.02, 1.5)
_ON, _OFF, _BOUND = BLUE, PALE, GREEN


def _jobs(point: FrontierPoint) -> str:
    return f"{point.jobs} ({point.unfinished} unfinished)" if point.unfinished else f"{point.jobs}"


POINTS: tuple[Column[FrontierPoint], ...] = (
    Column("scheme", "name of the strategy", heading="strategy"),
    Column("hours", "length of the jobs on the baseline's machines", heading="hours", show="{:g}"),
    Column("jobs", "number of jobs", heading="jobs", cell=_jobs, rank=4),
    Column("unfinished", "number of these that did not finish"),
    Column(
        "cost_pct",
        "mean cost in percent of on-demand",
        lambda point: point.cost_pct.mean,
        heading="cost %",
        show="{:.2f}",
    ),
    Column(
        "cost_low",
        "lower end of its 95% interval",
        lambda point: point.cost_pct.low,
        heading="95%",
        cell=lambda point: ends_text(point.cost_pct, ".1f"),
        rank=1,
    ),
    Column("cost_high", "upper end of its 95% interval", lambda point: point.cost_pct.high),
    Column(
        "gross_pct",
        "cost without refunds and unbilled time, to compare with `bound_pct`",
        lambda point: point.gross_pct,
        heading="gross %",
        show="{:.1f}",
        rank=3,
    ),
    Column(
        "runtime_ratio",
        "mean run time as a share of the baseline's",
        heading="run time",
        show="{:.3f}",
    ),
    Column(
        "bound_pct",
        "least cost without refunds that any strategy can reach in that run time",
        lambda point: point.bound_pct,
        heading="bound %",
        show="{:.1f}",
        rank=2,
    ),
    Column(
        "on_frontier",
        "whether no other strategy is clearly cheaper and as fast",
        lambda point: point.beaten_by is None and not point.unfinished,
    ),
    Column(
        "beaten_by",
        "cheapest strategy that is clearly cheaper and as fast; null on the frontier",
        heading="beaten by",
        unknown="",
    ),
)

_JUDGED: tuple[Column[Any], ...] = (
    Column("points", "strategies by job length", each=POINTS),
    Column(
        "default",
        "strategy that plans use under this billing rule",
        of=(
            Column("scheme", "its name"),
            Column("on_frontier", "whether no other strategy is clearly cheaper and as fast"),
        ),
    ),
)

FRONTIER: tuple[Column[Any], ...] = (
    *_JUDGED,
    Column("bound", "least cost of any strategy, by run time", each=BoundPoint),
    Column(
        "windows",
        "the same for other windows of the history",
        each=(Column("window", "its name"), *_JUDGED),
        optional=True,
    ),
    WALL_SECONDS,
)


def table(points: Sequence[FrontierPoint], width: int) -> Table:
    """One row per strategy and job length, the fastest first."""
    shown = chosen(
        POINTS, "scheme hours jobs runtime_ratio cost_pct cost_low gross_pct bound_pct beaten_by"
    )
    return columns.table(
        shown, sorted(points, key=lambda point: (point.hours, point.runtime_ratio)), width
    )


def verdict(points: Sequence[FrontierPoint], billing: str) -> str:
    """Whether the default of a billing rule is on the frontier."""
    default = default_for(billing).name
    mine = [point for point in points if point.scheme == default]
    if not mine:
        return f"the default for {billing}, {default}, is not among these strategies"
    beaten = [f"{point.beaten_by} for {point.hours:g} hours" for point in mine if point.beaten_by]
    if not beaten:
        return f"the default for {billing}, {default}, is on the frontier"
    return (
        f"the default for {billing}, {default}, is not on the frontier; cheaper and as fast: "
        f"{', '.join(beaten)}"
    )


def frontier_json(
    frontiers: Mapping[str, Sequence[FrontierPoint]],
    bound: Sequence[BoundPoint],
    billing: str,
    wall_seconds: float,
) -> dict[str, Any]:
    """The JSON of `backtest run --frontier --json`: the first window of the history, with its
    bound, and the others.
    """
    default = default_for(billing).name
    judged = []
    for window, points in frontiers.items():
        leads = all(point.beaten_by is None for point in points if point.scheme == default)
        judged.append(
            {
                "window": window,
                "points": points,
                "default": {"scheme": default, "on_frontier": leads},
            }
        )

    first, *others = judged
    return as_json(
        FRONTIER, first | {"bound": bound, "windows": others or None, "wall_seconds": wall_seconds}
    )


def write(folder: Path, points: Sequence[FrontierPoint], bound: Sequence[BoundPoint]) -> None:
    """Writes `frontier_HOURSh.png` for each job length."""
    with output_folder(folder):
        for hours in sorted({point.hours for point in points}):
            finished = [point for point in points if point.hours == hours and not point.unfinished]
            picture = _picture(hours, finished, [point for point in bound if point.hours == hours])
            save_plot(picture, folder / f"frontier_{hours:g}h.png")


def _picture(hours: float, points: Sequence[FrontierPoint], bound: Sequence[BoundPoint]) -> Figure:
    figure, (axes,) = panels(9, 5.5)
    axes.plot(
        [point.runtime_ratio for point in bound],
        [point.cost_pct for point in bound],
        color=_BOUND,
        label="bound without refunds, the future known",
    )

    shown = [point for point in points if point.cost_pct.mean <= _HIGHEST] or list(points)
    for on_frontier, color, label in ((True, _ON, "on the frontier"), (False, _OFF, "beaten")):
        drawn = [point for point in shown if (point.beaten_by is None) == on_frontier]
        axes.scatter(
            [point.runtime_ratio for point in drawn],
            [point.cost_pct.mean for point in drawn],
            c=color,
            label=label,
        )
        for (time, cost), names in _together(drawn).items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            axes.annotate(
                names[0] + more,
                (time, cost),
                (4, 4),
                textcoords="offset points",
                fontsize=7,
                color=color,
            )

    axes.set_xlim(right=max((point.runtime_ratio for point in shown), default=1.0) * 1.15)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("run time / baseline run time")
    axes.set_ylabel("cost, % of on-demand")
    left_out = [point.scheme for point in points if point not in shown]
    note = f" (above {_HIGHEST:g}%: {', '.join(left_out)})" if left_out else ""
    axes.set_title(f"Jobs of {hours:g} hours{note}", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)

    return figure


def _together(points: Sequence[FrontierPoint]) -> dict[tuple[float, float], list[str]]:
    """The names of points that would be drawn on top of each other, by the place of the first."""
    places: dict[tuple[float, float], list[str]] = {}
    for point in points:
        time, cost = point.runtime_ratio, point.cost_pct.mean
        near = (
            place
            for place in places
            if abs(place[0] - time) < _NEAR[0] and abs(place[1] - cost) < _NEAR[1]
        )
        places.setdefault(next(near, (time, cost)), []).append(point.scheme)

    return places
