"""Runs as dots: the cost of each, with its planned range and the median."""

from collections.abc import Sequence
from dataclasses import dataclass

from spotctl.show.costs.charts import svg
from spotctl.show.costs.html import Html, el, fragment


@dataclass(frozen=True, slots=True)
class Dot:
    """A run: the label under it, its tooltip, its value, and the planned range `low` to `high`."""

    label: str
    tooltip: str
    value: float
    is_reported: bool = True
    is_running: bool = False
    low: float | None = None
    high: float | None = None


def dot_chart(
    canvas: svg.Canvas,
    title: str,
    runs: Sequence[Dot],
    median: float | None = None,
) -> Html:
    """Runs from left to right; planned ranges are bars behind the dots, the median is a dashed line."""
    highest = max([run.value for run in runs] + [run.high for run in runs if run.high is not None])
    values = svg.nice(highest * 1.02, 3 if canvas.is_narrow else 4)
    y = svg.y_of(canvas, values)
    spacing = (canvas.width - canvas.left - canvas.right) / len(runs)
    parts = [svg.value_axis(canvas, y, values, svg.dollars_axis(values))]
    if median is not None:
        at = y(median)
        parts.append(el("line", x1=canvas.left, x2=canvas.width - canvas.right, y1=at, y2=at, class_="listed"))
    every = -(-len(runs) // (4 if canvas.is_narrow else 10))
    for i, run in enumerate(runs):
        middle = canvas.left + spacing * (i + 0.5)
        parts.append(_dot(y, run, middle, min(spacing * 0.5, 14.0)))
        if i % every == 0:
            parts.append(svg.axis_label(canvas, middle, run.label))
    return canvas.drawing(title, *parts)


def _dot(y: svg.Scale, run: Dot, x: float, width: float) -> Html:
    behind = Html()
    if run.low is not None and run.high is not None:
        top, foot = y(run.high), y(run.low)
        height = max(foot - top, 3.0)
        behind = el("rect", x=x - width / 2, y=top, width=width, height=height, rx=2, class_="plan")
    class_ = "dot open" if run.is_running else "dot" if run.is_reported else "dot earlier"
    return svg.titled(fragment(behind, el("circle", cx=x, cy=y(run.value), r=4.5, class_=class_)), run.tooltip)
