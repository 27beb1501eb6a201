"""The frontier of cost and run time (`backtest run --frontier`): its table, JSON and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bidbrain.lab.backtest.frontier import BoundPoint, FrontierPoint
from bidbrain.strategies.registry import default_for
from spotctl.lab.backtest.strategies import ends_text
from spotctl.show import columns
from spotctl.show.columns import WALL_SECONDS, Column, as_json, chosen
from spotctl.show.plots import BLUE, GREEN, PALE, output_folder, panels, save_plot

if TYPE_CHECKING:
    from rich.table import Table

_HIGHEST = 80.0
"""Points above this cost are not drawn: on demand by itself would press all others together."""
_NEAR = (0.02, 1.5)
_ON, _OFF, _BOUND = BLUE, PALE, GREEN


def _jobs(point: FrontierPoint) -> str:
    if point.unfinished:
        return f"{point.jobs} ({point.unfinished} unfinished)"
    return f"{point.jobs}"


POINTS: tuple[Column[FrontierPoint], ...] = (
    Column("scheme", "name of the strategy", heading="strategy"),
    Column("hours", "length of the jobs on the baseline's machines", heading="hours", show="{:g}"),
    Column("jobs", "number of jobs", heading="jobs", cell=_jobs, rank=4),
    Column("unfinished", "number of these that did not finish"),
    Column(
        "cost_pct",
        "mean cost in percent of on-demand",
        "cost_pct.mean",
        heading="cost %",
        show="{:.2f}",
    ),
    Column(
        "cost_low",
        "lower end of its 95% interval",
        "cost_pct.low",
        heading="95%",
        cell=lambda point: ends_text(point.cost_pct, ".1f"),
        rank=1,
    ),
    Column("cost_high", "upper end of its 95% interval", "cost_pct.high"),
    Column(
        "gross_pct",
        "cost without refunds and unbilled time, to compare with `bound_pct`",
        "gross_pct",
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
        "bound_pct",
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
    fastest_first = sorted(points, key=attrgetter("hours", "runtime_ratio"))
    return columns.table(shown, fastest_first, width)


def verdict(points: Sequence[FrontierPoint], billing: str) -> str:
    """Whether the default of a billing rule is on the frontier."""
    default, beaten, is_known = default_for(billing).name, list[str](), False
    for point in points:
        if point.scheme == default:
            is_known = True
            if point.beaten_by:
                beaten.append(f"{point.beaten_by} for {point.hours:g} hours")

    whose = f"the default for {billing}, {default},"
    if not is_known:
        return f"{whose} is not among these strategies"
    if not beaten:
        return f"{whose} is on the frontier"
    return f"{whose} is not on the frontier; cheaper and as fast: {', '.join(beaten)}"


def frontier_json(
    frontiers: Mapping[str, Sequence[FrontierPoint]],
    bound: Sequence[BoundPoint],
    billing: str,
    wall_seconds: float,
) -> dict[str, Any]:
    """The JSON of `backtest run --frontier --json`: the first window of the history, with its
    bound, and the others.
    """
    default, judged = default_for(billing).name, list[dict[str, Any]]()
    for window, points in frontiers.items():
        leads = all(point.beaten_by is None for point in points if point.scheme == default)
        of_default = {"scheme": default, "on_frontier": leads}
        judged.append({"window": window, "points": points, "default": of_default})

    first, *others = judged
    first |= {"bound": bound, "windows": others or None, "wall_seconds": wall_seconds}
    return as_json(FRONTIER, first)


def write(folder: Path, points: Sequence[FrontierPoint], bound: Sequence[BoundPoint]) -> None:
    """Writes `frontier_HOURSh.png` for each job length."""
    with output_folder(folder):
        for hours in sorted({point.hours for point in points}):
            finished = [point for point in points if point.hours == hours and not point.unfinished]
            least = [point for point in bound if point.hours == hours]

            picture, (axes,) = panels(9, 5.5)
            bound_times = [point.runtime_ratio for point in least]
            bound_costs = [point.cost_pct for point in least]
            label = "bound without refunds, the future known"
            axes.plot(bound_times, bound_costs, color=_BOUND, label=label)

            shown = [point for point in finished if point.cost_pct.mean <= _HIGHEST] or list(
                finished
            )
            for on_frontier, color, label in (
                (True, _ON, "on the frontier"),
                (False, _OFF, "beaten"),
            ):
                drawn = [point for point in shown if (point.beaten_by is None) == on_frontier]
                times = [point.runtime_ratio for point in drawn]
                costs = [point.cost_pct.mean for point in drawn]
                axes.scatter(times, costs, c=color, label=label)
                for place, (first, *more) in _together(drawn).items():
                    text = f"{first} and {len(more)} more" if more else first
                    axes.annotate(
                        text, place, (4, 4), textcoords="offset points", fontsize=7, color=color
                    )

            right = max((point.runtime_ratio for point in shown), default=1.0) * 1.15
            axes.set_xlim(right=right)
            axes.set_ylim(bottom=0)
            axes.set_xlabel("run time / baseline run time")
            axes.set_ylabel("cost, % of on-demand")
            title = f"Jobs of {hours:g} hours"
            left_out = [point.scheme for point in finished if point not in shown]
            if left_out:
                title += f" (above {_HIGHEST:g}%: {', '.join(left_out)})"
            axes.set_title(title, fontsize=11)
            axes.grid(alpha=0.25)
            axes.legend(frameon=False)

            save_plot(picture, folder / f"frontier_{hours:g}h.png")


def _together(points: Sequence[FrontierPoint]) -> dict[tuple[float, float], list[str]]:
    """The names of points that would be drawn on top of each other, by the place of the first."""
    across, up = _NEAR
    places: dict[tuple[float, float], list[str]] = {}
    for point in points:
        time, cost = point.runtime_ratio, point.cost_pct.mean
        own = time, cost
        for place in places:
            x, y = place
            if abs(x - time) < across and abs(y - cost) < up:
                own = place
                break
        places.setdefault(own, []).append(point.scheme)

    return places
