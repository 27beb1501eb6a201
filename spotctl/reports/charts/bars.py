"""Stacked columns: what each run or day cost, by market. And one bar: what a sum is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spotctl.reports.charts import svg


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a bar: its colour, what it is called, and how large it is."""

    class_: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Column:
    """One bar: what stands under it, what it is called in full, and its pieces from below."""

    label: str
    name: str
    parts: tuple[Part, ...]

    @property
    def value(self) -> float:
        """Its height: what was given back makes it no higher."""
        return sum(max(part.value, 0.0) for part in self.parts)


def columns(frame: svg.Frame, title: str, bars: Sequence[Column]) -> str:
    """Dollars as stacked columns side by side."""
    values = svg.nice(max((bar.value for bar in bars), default=0.0), 3 if frame.is_narrow else 4)
    y = svg.y_of(frame, values)
    room = (frame.width - frame.left - frame.right) / max(len(bars), 1)
    width = min(max(room * 0.72, 1.0), 56.0)
    parts = [svg.value_axis(frame, y, values, svg.dollars_axis(values))]
    every = -(-len(bars) // (4 if frame.is_narrow else 10))
    for i, bar in enumerate(bars):
        middle = frame.left + room * (i + 0.5)
        parts.append(_column(y, bar, middle - width / 2, width))
        if i % every == 0:
            parts.append(svg.under(frame, middle, bar.label))
    return frame.drawn(title, *parts)


def _column(y: svg.Scale, bar: Column, x: float, width: float) -> str:
    pieces, base = [], 0.0
    for part in bar.parts:
        if part.value <= 0:
            continue
        top, foot = y(base + part.value), y(base)
        piece = svg.el("rect", x=x, y=top, width=width, height=foot - top, class_=part.class_)
        pieces.append(svg.told(piece, f"{bar.name}: {part.name}, ${part.value:,.4f}"))
        base += part.value
    return "".join(pieces)


def share(title: str, parts: Sequence[Part], height: int = 34) -> str:
    """One bar across that is cut into the pieces of a sum."""
    known = [part for part in parts if part.value > 0]
    total = sum(part.value for part in known) or 1.0
    frame = svg.Frame(1000, height, 0, 0, 0, 0)
    x, pieces = 0.0, []
    for part in known:
        width = 1000 * part.value / total
        rect = svg.el("rect", x=x, y=0, width=max(width - 2, 0.5), height=height, class_=part.class_)
        pieces.append(svg.told(rect, f"{part.name}: ${part.value:,.4f}, {part.value / total:.1%}"))
        x += width
    return frame.stretched(title, *pieces)
