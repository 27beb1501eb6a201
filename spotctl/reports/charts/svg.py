"""Elements of SVG, scales and axes. Colours are classes: the page says what they are by day, by night and on paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import floor, log10

from pricing_data.units import DAY, HOUR, MINUTE, to_datetime

NARROW = 600
"""Charts that are less wide are those of a phone: fewer ticks."""

_TEXT_HEIGHT = 4
"""Half of a capital, by which a text stands lower than the line that it names."""

SERIES = 6
"""So many colours can be told apart; what is beyond shares the last."""


def el(name: str, *children: str, **attributes: object) -> str:
    """An element; attributes are written `class_` and `stroke_width`."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value), quote=True)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{words}>{''.join(children)}</{name}>" if children else f"<{name}{words}/>"


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """Words at a point."""
    return el("text", escape(words), x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor)


def told(element: str, words: str) -> str:
    """An element that says something when it is pointed at."""
    return el("g", el("title", escape(words)), element)


def path(points: Sequence[tuple[float, float]]) -> str:
    """Straight lines through points, as path data."""
    return "M" + "L".join(f"{_value(float(x))} {_value(float(y))}" for x, y in points)


def stepped(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a line that holds each value until the next."""
    found = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        found += [(x, before), (x, y)]
    return found


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to places, in a straight line."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The place of a value."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.begin + share * (self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Frame:
    """The room of a chart: its size, and how far from the edges its axes stand."""

    width: int
    height: int
    left: int = 52
    right: int = 12
    top: int = 16
    bottom: int = 26

    @property
    def is_narrow(self) -> bool:
        """Whether it is drawn for a phone."""
        return self.width < NARROW

    def x(self, low: float, high: float) -> Scale:
        """From left to right."""
        return Scale(low, high, self.left, self.width - self.right)

    def y(self, low: float, high: float) -> Scale:
        """From below to above."""
        return Scale(low, high, self.height - self.bottom, self.top)

    def drawn(self, title: str, *children: str) -> str:
        """The picture; `title` is what it shows for those who do not see it."""
        return el(
            "svg",
            *children,
            viewBox=f"0 0 {self.width} {self.height}",
            role="img",
            aria_label=title,
            class_="narrow" if self.is_narrow else "wide",
        )

    def stretched(self, title: str, *children: str) -> str:
        """A picture without text that takes whatever width there is."""
        box, ratio = f"0 0 {self.width} {self.height}", "none"
        return el("svg", *children, viewBox=box, preserveAspectRatio=ratio, role="img", aria_label=title, class_="bar")


def nice(most: float, count: int = 4) -> list[float]:
    """Round values from 0 to beyond the highest: 0, 0.5, 1, 1.5."""
    return _to_beyond(most, _step(most / count, (1, 2, 2.5, 5, 10))) if most > 0 else [0.0, 1.0]


def whole(most: int, count: int = 4) -> list[float]:
    """Whole numbers from 0 to beyond the highest."""
    return _to_beyond(most, max(_step(max(most, 1) / count, (1, 2, 5, 10)), 1.0))


def _step(least: float, factors: tuple[float, ...]) -> float:
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in factors if factor * power >= least * (1 - 1e-9))


def _to_beyond(most: float, step: float) -> list[float]:
    values = [0.0, step]
    while values[-1] < most * (1 - 1e-9):
        values.append(round(values[-1] + step, 12))
    return values


def y_of(frame: Frame, values: Sequence[float]) -> Scale:
    """The upward scale of an axis with these values."""
    return frame.y(values[0], values[-1])


def value_axis(frame: Frame, scale: Scale, values: Sequence[float], shown: Callable[[float], str]) -> str:
    """Lines across, and what they stand for."""
    parts = []
    for value in values:
        y = scale(value)
        class_ = "zero" if value == 0 else "line"
        parts.append(el("line", x1=frame.left, x2=frame.width - frame.right, y1=y, y2=y, class_=class_))
        parts.append(text(frame.left - 8, y + _TEXT_HEIGHT, shown(value), anchor="end"))
    return "".join(parts)


def dollars_axis(values: Sequence[float]) -> Callable[[float], str]:
    """How dollars are written on an axis: as many decimals as tell its values apart."""
    step = values[1] - values[0]
    digits = next((n for n in range(7) if abs(round(step, n) - step) < step * 1e-6), 6)
    # Half dollars are written as cents.
    digits = 2 if digits == 1 else digits
    return lambda value: f"${value:,.{digits}f}"


_STEPS = (
    *(minutes * MINUTE for minutes in (5, 10, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 4, 6, 12)),
    *(days * DAY for days in (1, 2, 7, 14, 30, 90, 365)),
)


def time_axis(frame: Frame, scale: Scale) -> str:
    """Moments of a clock, at round ones; where a day begins it is named."""
    span = scale.high - scale.low
    most = 4 if frame.is_narrow else 8
    step = next((step for step in _STEPS if span / step <= most), _STEPS[-1])
    first = -(-int(scale.low) // step) * step
    parts = []
    shown_day = None
    for at in range(first, int(scale.high) + 1, step):
        moment = to_datetime(at)
        day = f"{moment.day} {moment:%b}"
        words = day if step >= DAY or (moment.hour == moment.minute == 0) else f"{moment:%H:%M}"
        if shown_day is None and step < DAY:
            words = f"{day} {moment:%H:%M}" if words != day else day
        shown_day = day
        parts.append(
            el(
                "line",
                x1=scale(at),
                x2=scale(at),
                y1=frame.height - frame.bottom,
                y2=frame.height - frame.bottom + 4,
                class_="zero",
            )
        )
        parts.append(under(frame, scale(at), words))
    return "".join(parts)


def under(frame: Frame, x: float, words: str) -> str:
    """A text under the axis that does not leave the picture."""
    half = 3.4 * len(words)
    anchor = "start" if x - half < 0 else "end" if x + half > frame.width else "middle"
    place = 0.0 if anchor == "start" else float(frame.width) if anchor == "end" else x
    return text(place, frame.height - 8, words, anchor=anchor)


def series_class(number: int) -> str:
    """The colour of the series of a number."""
    return f"s{min(number, SERIES - 1)}"


def legend(names: Sequence[tuple[str, str]]) -> str:
    """What the colours stand for, as HTML above a chart: pairs of a class and a name."""
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 10 10" aria-hidden="true">'
        f'<rect width="10" height="10" rx="2" class="{class_}"/></svg>{escape(name)}</li>'
        for class_, name in names
    )
    return f'<ul class="legend">{items}</ul>'
