"""Charts over time: machines with stages and evictions, prices relative to on-demand, and cumulative cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from spotctl.show.costs.charts import svg
from spotctl.show.costs.html import Html, el, fragment

_BAND = 20
"""Height of the band above the machines that shows the stages."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A series that is stacked on the one before: its color class, name, and value from each moment on."""

    class_: str
    name: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class EvictionMark:
    """Machines that were evicted at one moment, with a tooltip."""

    at: int
    warned: bool
    tooltip: str


@dataclass(frozen=True, slots=True)
class StageBand:
    """The time in which the job was in one stage."""

    begin: int
    end: int
    number: int


def footprint(
    canvas: svg.Canvas, title: str, layers: Sequence[Layer], stages: Sequence[StageBand], marks: Sequence[EvictionMark]
) -> Html:
    """Machines over time as stacked steps, with a band of stages above and a mark for each eviction."""
    begin, end = _span(layers)
    x = canvas.x(begin, end)
    levels = _stacked(layers)
    values = svg.whole(max((int(top) for _, top in levels[-1]), default=0), 3 if canvas.is_narrow else 4)
    y = svg.y_of(canvas, values)
    parts = [svg.value_axis(canvas, y, values, lambda value: f"{value:,.0f}"), svg.time_axis(canvas, x)]
    floor = [(at, 0.0) for at, _ in levels[0]]
    for layer, top in zip(layers, levels, strict=True):
        parts.append(svg.titled(_area(x, y, floor, top, end, layer.class_), layer.name))
        floor = top
    parts += [_stage(canvas, x, stage) for stage in stages]
    parts += [_mark(canvas, x, mark) for mark in marks]
    return canvas.drawing(title, *parts)


def cumulative(canvas: svg.Canvas, title: str, layers: Sequence[Layer]) -> Html:
    """Cumulative dollars, stacked by layer."""
    begin, end = _span(layers)
    x = canvas.x(begin, end)
    levels = _stacked(layers)
    values = svg.nice(max(top for _, top in levels[-1]), 3 if canvas.is_narrow else 4)
    y = svg.y_of(canvas, values)
    parts = [svg.value_axis(canvas, y, values, svg.dollars_axis(values)), svg.time_axis(canvas, x)]
    floor = [(at, 0.0) for at, _ in levels[0]]
    for layer, top in zip(layers, levels, strict=True):
        there = [(x(at), y(value)) for at, value in top]
        back = [(x(at), y(value)) for at, value in reversed(floor)]
        shape = el("path", d=svg.path([*there, *back]) + "Z", class_=layer.class_)
        parts.append(svg.titled(shape, layer.name))
        floor = top
    return canvas.drawing(title, *parts)


@dataclass(frozen=True, slots=True)
class PriceLine:
    """The prices paid in one market: (begin, end, percent of on-demand) for each interval."""

    class_: str
    name: str
    pieces: tuple[tuple[int, int, float], ...]


def prices(canvas: svg.Canvas, title: str, series: Sequence[PriceLine]) -> Html:
    """Prices paid while machines were held, in percent of the on-demand price, which is a dashed line."""
    pieces = [piece for line in series for piece in line.pieces]
    x = canvas.x(min(begin for begin, _, _ in pieces), max(end for _, end, _ in pieces))
    values = svg.nice(max(100.0, *(percent for _, _, percent in pieces)), 4)
    y = svg.y_of(canvas, values)
    parts = [svg.value_axis(canvas, y, values, lambda value: f"{value:.0f}%"), svg.time_axis(canvas, x)]
    parts.append(el("line", x1=canvas.left, x2=canvas.width - canvas.right, y1=y(100), y2=y(100), class_="listed"))
    parts.append(svg.text(canvas.width - canvas.right, y(100) - 6, "on demand", "strong", "end"))
    for line in series:
        parts += [
            svg.titled(
                el("path", d=svg.path(_joined(x, y, run)), class_=f"stroke {line.class_}"),
                f"{line.name}: {min(p for _, _, p in run):.0f}% to {max(p for _, _, p in run):.0f}% of on-demand",
            )
            for run in unbroken(line.pieces)
        ]
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


def _joined(x: svg.Scale, y: svg.Scale, run: Sequence[tuple[int, int, float]]) -> list[tuple[float, float]]:
    return [point for begin, end, percent in run for point in ((x(begin), y(percent)), (x(end), y(percent)))]


def _span(layers: Sequence[Layer]) -> tuple[int, int]:
    moments = [at for layer in layers for at, _ in layer.points]
    return min(moments), max(moments)


def _stacked(layers: Sequence[Layer]) -> list[list[tuple[int, float]]]:
    """The upper edge of each layer; all layers have the same moments."""
    sums = [0.0] * len(layers[0].points)
    levels = []
    for layer in layers:
        sums = [low + value for low, (_, value) in zip(sums, layer.points, strict=True)]
        levels.append([(at, value) for (at, _), value in zip(layer.points, sums, strict=True)])
    return levels


def _area(
    x: svg.Scale,
    y: svg.Scale,
    floor: Sequence[tuple[int, float]],
    top: Sequence[tuple[int, float]],
    end: int,
    class_: str,
) -> Html:
    there = svg.stepped([*((x(at), y(value)) for at, value in top), (x(end), y(top[-1][1]))])
    back = svg.stepped([*((x(at), y(value)) for at, value in floor), (x(end), y(floor[-1][1]))])
    return el("path", d=svg.path([*there, *reversed(back)]) + "Z", class_=class_)


def _stage(canvas: svg.Canvas, x: svg.Scale, stage: StageBand) -> Html:
    begin, end = x(stage.begin), x(stage.end)
    top = canvas.top - _BAND - 14
    band = el("rect", x=begin, y=top, width=max(end - begin - 1, 0.5), height=_BAND, class_=f"stage{stage.number}")
    name = f"stage {stage.number}"
    length = end - begin
    words = name if length > 52 else str(stage.number) if length > 14 else ""
    label = svg.text((begin + end) / 2, top + 14, words, "band", "middle") if words else Html()
    return svg.titled(fragment(band, label), name)


def _mark(canvas: svg.Canvas, x: svg.Scale, mark: EvictionMark) -> Html:
    """A triangle: filled for an eviction without warning, empty with one."""
    at, top = x(mark.at), canvas.top - 11
    points = f"{at - 5:.1f},{top:.1f} {at + 5:.1f},{top:.1f} {at:.1f},{top + 9:.1f}"
    line = el("line", x1=at, x2=at, y1=top + 9, y2=canvas.height - canvas.bottom, class_="evicted")
    shape = el("polygon", points=points, class_="warned" if mark.warned else "unwarned")
    return svg.titled(fragment(line, shape), mark.tooltip)
