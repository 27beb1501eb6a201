"""Runs as dots: what each cost, beside what was planned and what is usual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spotctl.reports.charts import svg


@dataclass(frozen=True, slots=True)
class Dot:
    """A run: what stands under it, what is said of it, its value, whether it is over, and what was planned for it."""

    label: str
    words: str
    value: float
    is_new: bool = True
    goes_on: bool = False
    low: float | None = None
    high: float | None = None


def dots(
    frame: svg.Frame,
    title: str,
    runs: Sequence[Dot],
    usual: float | None = None,
    shown: Callable[[Sequence[float]], Callable[[float], str]] = svg.dollars_axis,
) -> str:
    """Runs in their order from left to right; those of earlier are hollow, plans are bars behind them."""
    highest = max([run.value for run in runs] + [run.high for run in runs if run.high is not None])
    values = svg.nice(highest * 1.02, 3 if frame.is_narrow else 4)
    y = svg.y_of(frame, values)
    room = (frame.width - frame.left - frame.right) / len(runs)
    parts = [svg.value_axis(frame, y, values, shown(values))]
    if usual is not None:
        at = y(usual)
        parts.append(svg.el("line", x1=frame.left, x2=frame.width - frame.right, y1=at, y2=at, class_="listed"))
    every = -(-len(runs) // (4 if frame.is_narrow else 10))
    for i, run in enumerate(runs):
        middle = frame.left + room * (i + 0.5)
        parts.append(_dot(y, run, middle, min(room * 0.5, 14.0)))
        if i % every == 0:
            parts.append(svg.under(frame, middle, run.label))
    return frame.drawn(title, *parts)


def _dot(y: svg.Scale, run: Dot, x: float, width: float) -> str:
    behind = ""
    if run.low is not None and run.high is not None:
        top, foot = y(run.high), y(run.low)
        height = max(foot - top, 3.0)
        behind = svg.el("rect", x=x - width / 2, y=top, width=width, height=height, rx=2, class_="plan")
    class_ = "dot open" if run.goes_on else "dot" if run.is_new else "dot earlier"
    return svg.told(behind + svg.el("circle", cx=x, cy=y(run.value), r=4.5, class_=class_), run.words)
