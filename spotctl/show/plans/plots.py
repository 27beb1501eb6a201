"""A picture of plans: cost and hours of each job with P10 to P90, next to on demand; budget and
deadline as lines.

Of jobs that share quotas, it also has the machines over time, one color a job."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from bidbrain.queue.outlook import JobOutlook
from pricing_data.atomic_write import atomic_write
from pricing_data.units import HOUR
from spotctl.planning.forecast import forecast_of
from spotctl.planning.values import JobPlan
from spotctl.show.phrases import hours_text
from spotctl.show.plots import (
    BLUE,
    GOLD,
    GREEN,
    ORANGE,
    PALE,
    PURPLE,
    RED,
    check_picture,
    legend_of,
    panels,
    save_plot,
)

_PLAN, _ON_DEMAND, _LIKELY, _LIMIT = BLUE, PALE, ORANGE, RED
_THICK = 0.34
_TIMELINE = 2.2
"""Height of the machines over time, in inches."""
_JOBS = (BLUE, ORANGE, GREEN, PURPLE, GOLD, RED)
_LABEL = 0.2
"""The width of a label, as a share of its panel."""


@dataclass(frozen=True, slots=True)
class _Bars:
    """A plan in one panel: the median with P10 and P90, the figure on demand, and the job's
    limit."""

    median: float
    likely: tuple[float, float]
    on_demand: float
    limit: float | None


def draw(plans: Sequence[JobPlan], path: Path) -> None:
    """Writes the picture; its format follows from the file's suffix."""
    check_picture(path)
    with atomic_write(path) as out:
        save_plot(_figure(plans), out, path.suffix.lower()[1:])


def svg(plans: Sequence[JobPlan]) -> str:
    """The picture as an SVG element."""
    drawn = io.StringIO()
    save_plot(_figure(plans), drawn, "svg")
    return drawn.getvalue()[drawn.getvalue().index("<svg") :]


def _figure(plans: Sequence[JobPlan]) -> Figure:
    shared = next((plan.share for plan in plans if plan.share.courses), None)
    height = 1.6 + 0.9 * len(plans)
    if shared is None:
        figure, (cost, hours) = panels(10, height, across=2, sharey=True)
    else:
        whole, ratios = height + _TIMELINE, [height, _TIMELINE]
        figure, (cost, hours, *below) = panels(
            10, whole, rows=2, across=2, sharey="row", height_ratios=ratios
        )
        for axes in below:
            axes.remove()
        last_row = below[0].get_gridspec()[1, :]  # type: ignore[index]
        _timeline(figure.add_subplot(last_row), shared.courses)

    # The cost of a job of unknown length is known per hour only, and bars of one panel have one
    # unit.
    per_hour = any(plan.demand.work.assumed for plan in plans)
    in_dollars, in_hours = list[_Bars](), list[_Bars | None]()
    for plan in plans:
        dollars, hours_of_plan = _bars_of(plan, per_hour=per_hour)
        in_dollars.append(dollars)
        in_hours.append(hours_of_plan)
    _panel(cost, in_dollars, "cost, $ per hour" if per_hour else "cost, $")
    _panel(hours, in_hours, "time, hours")
    names = [plan.job.spec.name for plan in plans]
    cost.set_yticks(range(len(plans)), names)
    cost.set_ylim(len(plans) - 0.4, -0.6)
    handles: list[Artist] = [
        Patch(color=_PLAN, label="this plan"),
        Line2D([], [], color=_LIKELY, marker="|", label="P10 to P90"),
        Patch(color=_ON_DEMAND, label="on demand"),
    ]

    if any(plan.demand.budget_usd is not None or plan.job.deadline is not None for plan in plans):
        handles.append(Line2D([], [], color=_LIMIT, label="budget, deadline"))
    columns = len(handles)
    figure.legend(
        handles=handles, loc="outside lower left", frameon=False, fontsize=8, ncols=columns
    )

    return figure


def _timeline(axes: Axes, courses: Sequence[JobOutlook]) -> None:
    """The machines of the jobs of a queue over time, on top of each other."""
    begun = [course for course in courses if course.turns]
    every_edge = {0.0}
    for course in begun:
        for turn in course.turns:
            every_edge |= {turn.start, turn.end}
    edges = sorted(every_edge)

    machines = list[list[int]]()
    for course in begun:
        of_course = [0] * len(edges)
        for turn in course.turns:
            held = sum(turn.machines.values())
            for i, edge in enumerate(edges):
                of_course[i] += held if turn.start <= edge < turn.end else 0
        machines.append(of_course)

    colors = [*_JOBS, *map(to_hex, colormaps["tab20"].colors)][: len(begun)]  # type: ignore[attr-defined]
    hours = [edge / 3600 for edge in edges]
    axes.stackplot(hours, machines, step="post", colors=colors, linewidth=0)
    title = "machines under quotas that the jobs share, by hours from the launch"
    axes.set_title(title, loc="left", fontsize=10)

    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0, hours[-1])
    labels = {course.name: color for course, color in zip(begun, colors, strict=False)}
    axes.legend(
        handles=legend_of(labels),
        frameon=False,
        fontsize=8,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )


def _bars_of(plan: JobPlan, *, per_hour: bool) -> tuple[_Bars, _Bars | None]:
    """The cost of a plan, `per_hour` of an hour, which has no budget, and its duration, None if the
    job's length is unknown; both next to those on demand."""
    forecast, other, limit = forecast_of(plan), plan.cost.on_demand, None
    usd = forecast.usd
    cost = _Bars(usd.median, usd.likely, other.usd, plan.demand.budget_usd)
    if per_hour:
        rate, hourly = forecast.usd_per_hour, other.usd / plan.cost.estimate.hours
        cost = _Bars(rate.median, rate.likely, hourly, None)
    if plan.demand.work.assumed:
        return cost, None

    if plan.job.deadline is not None:
        limit = (plan.job.deadline - plan.at) / HOUR
    length = forecast.hours
    return cost, _Bars(length.median, length.likely, other.hours, limit)


def _panel(axes: Axes, rows: Sequence[_Bars | None], title: str) -> None:
    known = [bars for bars in rows if bars is not None]
    ends = [max(bars.likely[1], bars.on_demand, bars.limit or 0.0) for bars in known]
    right = 1.25 * max(ends, default=1.0)
    text = hours_text if title.startswith("time") else "${:,.2f}".format

    for row, bars in enumerate(rows):
        if bars is None:
            axes.text(0.02, row, "unknown: the job file states no length", va="center", fontsize=8)
            continue
        low, high = bars.likely
        plan, other = row - _THICK / 2, row + _THICK / 2
        values = [bars.median, bars.on_demand]
        axes.barh([plan, other], values, _THICK, color=[_PLAN, _ON_DEMAND])
        below, above = max(bars.median - low, 0.0), max(high - bars.median, 0.0)
        axes.errorbar(bars.median, plan, xerr=[[below], [above]], color=_LIKELY, capsize=4)
        if bars.limit is not None:
            bottom, top = row - 0.45, row + 0.45
            axes.vlines(bars.limit, bottom, top, color=_LIMIT, linewidth=1.5)

        labels = (plan, max(high, bars.median)), (other, bars.on_demand)
        for value, (place, end) in zip(values, labels, strict=True):
            start, beyond = end, end + _LABEL * right
            if bars.limit is not None and end <= bars.limit < beyond:
                # A line that would cross the label is to its left.
                start = bars.limit
            axes.text(start, place, f"  {text(value)}", va="center", fontsize=8)

    axes.set_xlim(0, right)
    axes.set_title(title, loc="left", fontsize=10)
    axes.tick_params(axis="y", length=0)
