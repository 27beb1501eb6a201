"""What changes at moments: machines with the job's stages and evictions, prices beside on-demand, money as it goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotctl.reports.charts import svg

_BAND = 20
"""Height of the strip above a footprint that shows the stages."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A series that lies on the one before: its colour, its name, and its value from each moment on."""

    class_: str
    name: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened: when, whether it was warned of, and what is said of it."""

    at: int
    warned: bool
    words: str


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time with a number that names it."""

    begin: int
    end: int
    number: int


def footprint(
    frame: svg.Frame, title: str, layers: Sequence[Layer], phases: Sequence[Phase], marks: Sequence[Mark]
) -> str:
    """Machines over time as stacked steps, the stages in a strip above, evictions as marks under it."""
    begin, end = _span(layers)
    x = frame.x(begin, end)
    levels = _stacked(layers)
    values = svg.whole(max((int(top) for _, top in levels[-1]), default=0), 3 if frame.is_narrow else 4)
    y = svg.y_of(frame, values)
    parts = [svg.value_axis(frame, y, values, lambda value: f"{value:,.0f}"), svg.time_axis(frame, x)]
    floor = [(at, 0.0) for at, _ in levels[0]]
    for layer, top in zip(layers, levels, strict=True):
        parts.append(svg.told(_area(x, y, floor, top, end, layer.class_), layer.name))
        floor = top
    parts += [_phase(frame, x, phase) for phase in phases]
    parts += [_mark(frame, x, mark) for mark in marks]
    return frame.drawn(title, *parts)


def cumulative(frame: svg.Frame, title: str, layers: Sequence[Layer]) -> str:
    """Dollars as they add up, by layer."""
    begin, end = _span(layers)
    x = frame.x(begin, end)
    levels = _stacked(layers)
    values = svg.nice(max(top for _, top in levels[-1]), 3 if frame.is_narrow else 4)
    y = svg.y_of(frame, values)
    parts = [svg.value_axis(frame, y, values, svg.dollars_axis(values)), svg.time_axis(frame, x)]
    floor = [(at, 0.0) for at, _ in levels[0]]
    for layer, top in zip(layers, levels, strict=True):
        there = [(x(at), y(value)) for at, value in top]
        back = [(x(at), y(value)) for at, value in reversed(floor)]
        shape = svg.el("path", d=svg.path([*there, *back]) + "Z", class_=layer.class_)
        parts.append(svg.told(shape, layer.name))
        floor = top
    return frame.drawn(title, *parts)


@dataclass(frozen=True, slots=True)
class Held:
    """Stretches of time in which a price was paid, in percent of on-demand: begin, end, percent."""

    class_: str
    name: str
    pieces: tuple[tuple[int, int, float], ...]


def prices(frame: svg.Frame, title: str, series: Sequence[Held]) -> str:
    """Prices paid while machines were held, in percent of what they cost on demand, which is a line of its own."""
    pieces = [piece for one in series for piece in one.pieces]
    x = frame.x(min(begin for begin, _, _ in pieces), max(end for _, end, _ in pieces))
    values = svg.nice(max(100.0, *(percent for _, _, percent in pieces)), 4)
    y = svg.y_of(frame, values)
    parts = [svg.value_axis(frame, y, values, lambda value: f"{value:.0f}%"), svg.time_axis(frame, x)]
    parts.append(svg.el("line", x1=frame.left, x2=frame.width - frame.right, y1=y(100), y2=y(100), class_="listed"))
    parts.append(svg.text(frame.width - frame.right, y(100) - 6, "on demand", "strong", "end"))
    for one in series:
        lines = [
            svg.told(
                svg.el("path", d=svg.path(_joined(x, y, run)), class_=f"stroke {one.class_}"),
                f"{one.name}: {min(p for _, _, p in run):.0f}% to {max(p for _, _, p in run):.0f}% of on-demand",
            )
            for run in unbroken(one.pieces)
        ]
        parts += lines
    return frame.drawn(title, *parts)


def unbroken(pieces: Sequence[tuple[int, int, float]]) -> list[list[tuple[int, int, float]]]:
    """Pieces in runs between which nothing was held."""
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
    """Each layer on top of the ones before; all have the same moments."""
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
) -> str:
    there = svg.stepped([*((x(at), y(value)) for at, value in top), (x(end), y(top[-1][1]))])
    back = svg.stepped([*((x(at), y(value)) for at, value in floor), (x(end), y(floor[-1][1]))])
    return svg.el("path", d=svg.path([*there, *reversed(back)]) + "Z", class_=class_)


def _phase(frame: svg.Frame, x: svg.Scale, phase: Phase) -> str:
    begin, end = x(phase.begin), x(phase.end)
    top = frame.top - _BAND - 14
    strip = svg.el("rect", x=begin, y=top, width=max(end - begin - 1, 0.5), height=_BAND, class_=f"stage{phase.number}")
    name = f"stage {phase.number}"
    room = end - begin
    words = name if room > 52 else str(phase.number) if room > 14 else ""
    label = svg.text((begin + end) / 2, top + 14, words, "band", "middle") if words else ""
    return svg.told(strip + label, name)


def _mark(frame: svg.Frame, x: svg.Scale, mark: Mark) -> str:
    """Taken without a warning is a filled triangle, with one an empty one."""
    at, top = x(mark.at), frame.top - 11
    points = f"{at - 5:.1f},{top:.1f} {at + 5:.1f},{top:.1f} {at:.1f},{top + 9:.1f}"
    line = svg.el("line", x1=at, x2=at, y1=top + 9, y2=frame.height - frame.bottom, class_="taken")
    shape = svg.el("polygon", points=points, class_="warned" if mark.warned else "unwarned")
    return svg.told(line + shape, mark.words)
