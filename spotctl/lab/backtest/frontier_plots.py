"""Pictures of the frontier: cost against run time, one per job length."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from bidbrain.backtest.frontier import BoundPoint, FrontierPoint
from spotctl.show.outputs import output_folder
from spotctl.show.plot_style import BLUE, GREEN, PALE, save_plot

_HIGHEST = 80.0
"""Points above this cost are left out: on demand by itself would press all others together."""
_NEAR = (0.02, 1.5)
_ON, _OFF, _BOUND = BLUE, PALE, GREEN


def write(folder: Path, points: Sequence[FrontierPoint], bound: Sequence[BoundPoint]) -> None:
    """Writes `frontier_HOURSh.png` for each job length."""
    with output_folder(folder):
        for hours in sorted({point.hours for point in points}):
            _picture(
                folder / f"frontier_{hours:g}h.png",
                hours,
                [point for point in points if point.hours == hours and not point.unfinished],
                [point for point in bound if point.hours == hours],
            )


def _picture(path: Path, hours: float, points: Sequence[FrontierPoint], bound: Sequence[BoundPoint]) -> None:
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(
        [point.runtime_ratio for point in bound],
        [point.cost_pct for point in bound],
        color=_BOUND,
        label="bound without refunds, the future known",
    )
    shown = [point for point in points if point.cost_pct.mean <= _HIGHEST] or list(points)
    for on_frontier, color, label in ((True, _ON, "on the frontier"), (False, _OFF, "beaten")):
        chosen = [point for point in shown if (point.beaten_by is None) == on_frontier]
        axes.scatter(
            [point.runtime_ratio for point in chosen], [point.cost_pct.mean for point in chosen], c=color, label=label
        )
        for (time, cost), names in _together(chosen).items():
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            axes.annotate(names[0] + more, (time, cost), (4, 4), textcoords="offset points", fontsize=7, color=color)
    axes.set_xlim(right=max((point.runtime_ratio for point in shown), default=1.0) * 1.15)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("run time / baseline run time")
    axes.set_ylabel("cost, % of on-demand")
    left_out = [point.scheme for point in points if point not in shown]
    note = f" (above {_HIGHEST:g}%: {', '.join(left_out)})" if left_out else ""
    axes.set_title(f"Jobs of {hours:g} hours{note}", fontsize=11)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    save_plot(figure, path)


def _together(points: Sequence[FrontierPoint]) -> dict[tuple[float, float], list[str]]:
    """The names of points that would be drawn on top of each other, by the place of the first."""
    places: dict[tuple[float, float], list[str]] = {}
    for point in points:
        place = (point.runtime_ratio, point.cost_pct.mean)
        near = next((other for other in places if _is_near(place, other)), place)
        places.setdefault(near, []).append(point.scheme)
    return places


def _is_near(place: tuple[float, float], other: tuple[float, float]) -> bool:
    return abs(place[0] - other[0]) < _NEAR[0] and abs(place[1] - other[1]) < _NEAR[1]
