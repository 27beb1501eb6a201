"""Stacked bars of dollars side by side, and one horizontal bar that shows the shares of a sum."""

from collections.abc import Sequence
from dataclasses import dataclass

from spotctl.show.costs.charts import svg
from spotctl.show.costs.html import Html, el, fragment

_SHARE_HEIGHT = 34


_SHORT_LABEL = 6
"""Characters of `21 Nov`."""


@dataclass(frozen=True, slots=True)
class BarPart:
    """A part of a bar: its color class, name and value."""

    class_: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A stacked bar: the label under it, its full name, and its parts from the bottom up."""

    label: str
    name: str
    parts: tuple[BarPart, ...]

    @property
    def value(self) -> float:
        """The height of the bar. Refunds, which are negative, do not count."""
        return sum(max(part.value, 0.0) for part in self.parts)


def stacked_bars(canvas: svg.Canvas, title: str, bars: Sequence[Bar]) -> Html:
    """Dollars as stacked bars side by side."""
    values = svg.nice(max((bar.value for bar in bars), default=0.0), 3 if canvas.is_narrow else 4)
    y = svg.y_of(canvas, values)
    spacing = (canvas.width - canvas.left - canvas.right) / max(len(bars), 1)
    width = min(max(spacing * 0.72, 1.0), 56.0)
    parts = [svg.value_axis(canvas, y, values, svg.dollars_axis(values))]
    # Months have longer labels than days.
    on_phones = 4 if all(len(bar.label) <= _SHORT_LABEL for bar in bars) else 3
    every = -(-len(bars) // (on_phones if canvas.is_narrow else 10))
    for i, bar in enumerate(bars):
        middle = canvas.left + spacing * (i + 0.5)
        parts.append(_bar(y, bar, middle - width / 2, width))
        if i % every == 0:
            parts.append(svg.axis_label(canvas, middle, bar.label))
    return canvas.drawing(title, *parts)


def _bar(y: svg.Scale, bar: Bar, x: float, width: float) -> Html:
    pieces, base = list[Html](), 0.0
    for part in bar.parts:
        if part.value <= 0:
            continue
        top, foot = y(base + part.value), y(base)
        piece = el("rect", x=x, y=top, width=width, height=foot - top, class_=part.class_)
        pieces.append(svg.titled(piece, f"{bar.name}: {part.name}, ${part.value:,.4f}"))
        base += part.value
    return fragment(*pieces)


def share_bar(title: str, parts: Sequence[BarPart]) -> Html:
    """A horizontal bar that is divided into the parts of a sum."""
    known = [part for part in parts if part.value > 0]
    total = sum(part.value for part in known) or 1.0
    canvas = svg.Canvas(1000, _SHARE_HEIGHT, 0, 0, 0, 0)
    x, pieces = 0.0, []
    for part in known:
        width = 1000 * part.value / total
        rect = el("rect", x=x, y=0, width=max(width - 2, 0.5), height=_SHARE_HEIGHT, class_=part.class_)
        pieces.append(svg.titled(rect, f"{part.name}: ${part.value:,.4f}, {part.value / total:.1%}"))
        x += width
    return canvas.stretched(title, *pieces)
