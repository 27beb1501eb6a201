"""Stacked bars of dollars side by side, and one horizontal bar that shows the shares of a sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Generic, TypeVar

from spotctl.show.costs import markup
from spotctl.show.costs.markup import Html, el, fragment

_SHARE_HEIGHT = 34


_SHORT_LABEL = 6
"""The length of a short date, such as `21 Nov`, in characters."""

_LABELS_ON_SCREENS = 10
"""The most labels below the bars or dots of a wide chart."""


DataT = TypeVar("DataT")


@dataclass(frozen=True, slots=True)
class Series(Generic[DataT]):
    """A series of a chart: its color class, its name, and its data."""

    class_: str
    name: str
    data: DataT


BarPart = Series[float]
"""A part of a bar, with its value."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar: the label under it, its full name, and its parts from the bottom up."""

    label: str
    name: str
    parts: tuple[BarPart, ...]

    @property
    def value(self) -> float:
        """The height of the bar. Refunds, which are negative, do not count."""
        return sum(max(part.data, 0.0) for part in self.parts)


def stacked_bars(canvas: markup.Canvas, title: str, bars: Sequence[Bar]) -> Html:
    """Dollars as stacked bars side by side."""
    highest = max((bar.value for bar in bars), default=0.0)
    values = markup.nice(highest, 3 if canvas.is_narrow else 4)
    y = canvas.y(values)
    room = canvas.width - canvas.left - canvas.right
    spacing = room / max(len(bars), 1)
    width = min(max(spacing * 0.72, 1.0), 56.0)
    parts = [markup.value_axis(canvas, y, values, markup.dollars_axis(values))]

    # Months have longer labels than days.
    are_short = all(len(bar.label) <= _SHORT_LABEL for bar in bars)
    most = _LABELS_ON_SCREENS
    if canvas.is_narrow:
        most = 4 if are_short else 3
    every = ceil(len(bars) / most)
    for i, bar in enumerate(bars):
        middle = canvas.left + spacing * (i + 0.5)
        left = middle - width / 2
        base = 0.0
        for part in bar.parts:
            if part.data <= 0:
                continue
            top, foot = y(base + part.data), y(base)
            height = foot - top
            piece = el("rect", x=left, y=top, width=width, height=height, class_=part.class_)
            tooltip = f"{bar.name}: {part.name}, ${part.data:,.4f}"
            parts.append(markup.titled(piece, tooltip))
            base += part.data
        if i % every == 0:
            parts.append(markup.axis_label(canvas, middle, bar.label))

    return canvas.drawing(title, *parts)


def share_bar(title: str, parts: Sequence[BarPart]) -> Html:
    """A horizontal bar that is divided into the parts of a sum."""
    known = [part for part in parts if part.data > 0]
    total = sum(part.data for part in known) or 1.0
    x, pieces = 0.0, list[Html]()
    for part in known:
        share = part.data / total
        width = 1000 * part.data / total
        drawn = max(width - 2, 0.5)
        rect = el("rect", x=x, y=0, width=drawn, height=_SHARE_HEIGHT, class_=part.class_)
        tooltip = f"{part.name}: ${part.data:,.4f}, {share:.1%}"
        pieces.append(markup.titled(rect, tooltip))
        x += width

    # It has no text, so it may be stretched to the available width.
    box, ratio = f"0 0 1000 {_SHARE_HEIGHT}", "none"
    return el(
        "svg",
        *pieces,
        viewBox=box,
        preserveAspectRatio=ratio,
        role="img",
        aria_label=title,
        class_="bar",
    )


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
    canvas: markup.Canvas,
    title: str,
    runs: Sequence[Dot],
    median: float | None = None,
) -> Html:
    """Runs from left to right; planned ranges are bars behind the dots, the median is a dashed
    line.
    """
    highest = max(run.value for run in runs)
    for run in runs:
        if run.high is not None:
            highest = max(highest, run.high)
    values = markup.nice(highest * 1.02, 3 if canvas.is_narrow else 4)
    y = canvas.y(values)
    parts = [markup.value_axis(canvas, y, values, markup.dollars_axis(values))]

    if median is not None:
        at, right = y(median), canvas.width - canvas.right
        parts.append(el("line", x1=canvas.left, x2=right, y1=at, y2=at, class_="listed"))

    most = 4 if canvas.is_narrow else _LABELS_ON_SCREENS
    room = canvas.width - canvas.left - canvas.right
    every, spacing = ceil(len(runs) / most), room / len(runs)
    for i, run in enumerate(runs):
        middle = canvas.left + spacing * (i + 0.5)
        behind, width = Html(), min(spacing * 0.5, 14.0)
        if run.low is not None and run.high is not None:
            top, foot = y(run.high), y(run.low)
            left, height = middle - width / 2, max(foot - top, 3.0)
            behind = el("rect", x=left, y=top, width=width, height=height, rx=2, class_="plan")

        class_ = "dot" if run.is_reported else "dot earlier"
        if run.is_running:
            class_ = "dot open"
        dot = el("circle", cx=middle, cy=y(run.value), r=4.5, class_=class_)
        both = fragment(behind, dot)
        parts.append(markup.titled(both, run.tooltip))
        if i % every == 0:
            parts.append(markup.axis_label(canvas, middle, run.label))

    return canvas.drawing(title, *parts)


_MAX_POINTS = 600


def line_chart(canvas: markup.Canvas, title: str, points: Sequence[tuple[int, float]]) -> Html:
    """Values by step, with a dot for the latest; steps whose values are not finite are left out."""
    finite = [(step, value) for step, value in points if isfinite(value)]
    latest = finite[-1:]
    every = len(finite) // _MAX_POINTS + 1
    known = [*finite[:-1:every], *latest] or [(0, 0.0)]
    values = [value for _, value in known]
    lowest, highest = min(0.0, *values), max(0.0, *values)
    ticks = markup.spanning(lowest, highest)

    (begin, _), (end, _) = known[0], known[-1]
    first, last = float(begin), float(end)
    x, y = canvas.x(first, last), canvas.y(ticks)
    labeled = [tick for tick in markup.whole(int(last)) if first < tick <= last]
    room = (last - first) / 10
    if not labeled or labeled[0] - first >= room:
        # Else the label of the first step would touch another.
        labeled = [first, *labeled]

    parts = [markup.value_axis(canvas, y, ticks, "{:.3g}".format)]
    for step in labeled:
        label = f"{step:,.0f}"
        parts.append(markup.axis_label(canvas, x(step), label))

    corners = [(x(step), y(value)) for step, value in known]
    line = markup.path(corners)
    parts.append(el("path", d=line, class_="stroke s0"))
    for step, value in latest:
        across, up = x(step), y(value)
        parts.append(el("circle", cx=across, cy=up, r=4, class_="dot"))

    return canvas.drawing(title, *parts)


_BAND = 20
"""Height of the band above the machines that shows the stages."""


Layer = Series[tuple[tuple[int, float], ...]]
"""A series that is stacked on the one before: its value from each moment on."""

EvictionMark = tuple[int, bool, str]
"""Machines that were evicted at one moment: this moment, whether they were warned, and a
tooltip."""

StageBand = tuple[int, int, int]
"""The time in which the job was in one stage: its begin and end, and the number of the stage."""


def footprint(
    canvas: markup.Canvas,
    title: str,
    layers: Sequence[Layer],
    stages: Sequence[StageBand],
    marks: Sequence[EvictionMark],
) -> Html:
    """Machines over time as stacked steps, with a band of stages above and a mark for each
    eviction.
    """
    moments = [at for layer in layers for at, _ in layer.data]
    begin, end = min(moments), max(moments)
    x = canvas.x(begin, end)
    levels = _stacked(layers)
    highest = max((int(top) for _, top in levels[-1]), default=0)
    values = markup.whole(highest, 3 if canvas.is_narrow else 4)
    y = canvas.y(values)
    parts = [
        markup.value_axis(canvas, y, values, "{:,.0f}".format),
        markup.time_axis(canvas, x),
    ]
    floor = [(at, 0.0) for at, _ in levels[0]]

    for layer, top in zip(layers, levels, strict=True):
        edges = list[list[tuple[float, float]]]()
        for edge in (top, floor):
            corners = [(x(at), y(value)) for at, value in edge]
            _, last_value = edge[-1]
            corners.append((x(end), y(last_value)))
            edges.append(markup.stepped(corners))

        there, back = edges
        back.reverse()
        outline = markup.path([*there, *back]) + "Z"
        area = el("path", d=outline, class_=layer.class_)
        parts.append(markup.titled(area, layer.name))
        floor = top

    for since, until, number in stages:
        parts.append(_stage_band(canvas, x(since), x(until), number))

    for moment, warned, tooltip in marks:
        # A triangle: filled for an eviction without warning, empty with one.
        at, above = x(moment), canvas.top - 11
        left, right = at - 5, at + 5
        foot, bottom = above + 9, canvas.height - canvas.bottom
        points = f"{left:.1f},{above:.1f} {right:.1f},{above:.1f} {at:.1f},{foot:.1f}"
        line = el("line", x1=at, x2=at, y1=foot, y2=bottom, class_="evicted")
        shape = el("polygon", points=points, class_="warned" if warned else "unwarned")
        mark = fragment(line, shape)
        parts.append(markup.titled(mark, tooltip))

    return canvas.drawing(title, *parts)


def _stage_band(canvas: markup.Canvas, left: float, right: float, number: int) -> Html:
    """The band above a chart for the time that a run was in a stage, with as many words as fit."""
    top, width = canvas.top - _BAND - 14, right - left
    drawn, name = max(width - 1, 0.5), f"stage {number}"
    band = el("rect", x=left, y=top, width=drawn, height=_BAND, class_=f"stage{number}")
    if width <= 14:
        return markup.titled(fragment(band, Html()), name)

    words = name if width > 52 else str(number)
    middle = (left + right) / 2
    label = markup.text(middle, top + 14, words, "band", "middle")
    return markup.titled(fragment(band, label), name)


def cumulative(canvas: markup.Canvas, title: str, layers: Sequence[Layer]) -> Html:
    """Cumulative dollars, stacked by layer."""
    moments = [at for layer in layers for at, _ in layer.data]
    begin, end = min(moments), max(moments)
    x = canvas.x(begin, end)
    levels = _stacked(layers)
    highest = max(top for _, top in levels[-1])
    values = markup.nice(highest, 3 if canvas.is_narrow else 4)
    y = canvas.y(values)
    parts = [
        markup.value_axis(canvas, y, values, markup.dollars_axis(values)),
        markup.time_axis(canvas, x),
    ]
    floor = [(at, 0.0) for at, _ in levels[0]]

    for layer, top in zip(layers, levels, strict=True):
        there = [(x(at), y(value)) for at, value in top]
        back = [(x(at), y(value)) for at, value in reversed(floor)]
        outline = markup.path([*there, *back]) + "Z"
        shape = el("path", d=outline, class_=layer.class_)
        parts.append(markup.titled(shape, layer.name))
        floor = top

    return canvas.drawing(title, *parts)


PriceLine = Series[tuple[tuple[int, int, float], ...]]
"""The prices paid in one market: (begin, end, percent of on-demand) for each interval."""


def prices(canvas: markup.Canvas, title: str, series: Sequence[PriceLine]) -> Html:
    """Prices paid while machines were held, in percent of the on-demand price, which is a dashed
    line.
    """
    pieces = [piece for line in series for piece in line.data]
    begins, ends, percents = zip(*pieces, strict=True)
    first, last = min(begins), max(ends)
    x = canvas.x(first, last)
    highest = max(100.0, *percents)
    values = markup.nice(highest, 4)
    y = canvas.y(values)
    right, listed = canvas.width - canvas.right, y(100)
    parts = [
        markup.value_axis(canvas, y, values, "{:.0f}%".format),
        markup.time_axis(canvas, x),
    ]
    parts.append(el("line", x1=canvas.left, x2=right, y1=listed, y2=listed, class_="listed"))
    parts.append(markup.text(right, listed - 6, "on demand", "strong", "end"))

    for line in series:
        for run in unbroken(line.data):
            corners, paid = list[tuple[float, float]](), list[float]()
            for begin, end, percent in run:
                height = y(percent)
                corners += [(x(begin), height), (x(end), height)]
                paid.append(percent)

            outline = markup.path(corners)
            stroke = el("path", d=outline, class_=f"stroke {line.class_}")
            least, most = min(paid), max(paid)
            tooltip = f"{line.name}: {least:.0f}% to {most:.0f}% of on-demand"
            parts.append(markup.titled(stroke, tooltip))

    return canvas.drawing(title, *parts)


def unbroken(pieces: Sequence[tuple[int, int, float]]) -> list[list[tuple[int, int, float]]]:
    """Groups of intervals that follow each other without a gap."""
    runs: list[list[tuple[int, int, float]]] = []
    for piece in pieces:
        if runs and runs[-1][-1][1] >= piece[0]:
            runs[-1].append(piece)
        else:
            runs.append([piece])
    return runs


def _stacked(layers: Sequence[Layer]) -> list[list[tuple[int, float]]]:
    """The upper edge of each layer; all layers have the same moments."""
    sums = [0.0] * len(layers[0].data)
    levels = []
    for layer in layers:
        sums = [low + value for low, (_, value) in zip(sums, layer.data, strict=True)]
        levels.append([(at, value) for (at, _), value in zip(layer.data, sums, strict=True)])
    return levels
