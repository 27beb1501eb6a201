"""A value that changes over counted steps, as a line."""

from collections.abc import Sequence
from math import isfinite

import numpy as np

from spotctl.show.costs.charts import svg
from spotctl.show.costs.html import Html, el

_MOST_POINTS = 600


def line_chart(canvas: svg.Canvas, title: str, points: Sequence[tuple[int, float]]) -> Html:
    """Values by step, with a dot for the latest; steps whose values are not finite are left out."""
    known = [(step, value) for step, value in points if isfinite(value)]
    latest = known[-1:]
    known = [*known[: -1 : len(known) // _MOST_POINTS + 1], *latest] or [(0, 0.0)]
    steps, values = (np.array(column) for column in zip(*known, strict=True))
    ticks = svg.spanning(min(0.0, float(values.min())), max(float(values.max()), 0.0))
    x, y = canvas.x(float(steps[0]), float(steps[-1])), svg.y_of(canvas, ticks)
    return canvas.drawing(
        title,
        svg.value_axis(canvas, y, ticks, "{:.3g}".format),
        *(svg.axis_label(canvas, x(step), f"{step:,.0f}") for step in _labeled(float(steps[0]), float(steps[-1]))),
        el("path", d=svg.path([(x(step), y(value)) for step, value in known]), class_="stroke s0"),
        *(el("circle", cx=x(step), cy=y(value), r=4, class_="dot") for step, value in latest),
    )


def _labeled(first: float, last: float) -> list[float]:
    """Round steps, and the first one unless its label would touch another."""
    ticks = [tick for tick in svg.whole(int(last)) if first < tick <= last]
    return ticks if ticks and ticks[0] - first < (last - first) / 10 else [first, *ticks]
