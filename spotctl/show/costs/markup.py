"""Elements of HTML and SVG, and parts of pages and charts. Any text that is not `Html` is escaped,
and its control characters are shown, so that no caller can forget it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise
from math import ceil, floor, inf, log10

from pricing_data.units import DAY, HOUR, MINUTE, moment, to_datetime
from spotctl.home.printable import printable
from spotctl.show.costs.columns import FigureColumn, headings
from spotctl.show.costs.cost import Report


class Html(str):
    """Markup; any other `str` is text."""

    __slots__ = ()


def el(name: str, *children: str, **attributes: object) -> Html:
    """An element. Attributes are written `class_` and `stroke_width`; those that are None are left
    out.
    """
    written = ""
    for key, value in attributes.items():
        if value is not None:
            attribute = key.rstrip("_").replace("_", "-")
            quoted = escape(printable(number_text(value)), quote=True)
            written += f' {attribute}="{quoted}"'

    if not children:
        return Html(f"<{name}{written}/>")
    content = fragment(*children)
    return Html(f"<{name}{written}>{content}</{name}>")


def fragment(*parts: str) -> Html:
    """Parts one after the other; those that are not `Html` are escaped."""
    escaped = list[str]()
    for part in parts:
        markup = part if isinstance(part, Html) else escape(printable(part))
        escaped.append(markup)
    return Html("".join(escaped))


def number_text(value: object) -> str:
    """Numbers with at most one decimal, which is a tenth of a pixel; anything else as it is."""
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)


NARROW = 600
"""Charts narrower than this are for phones and get fewer ticks."""

_TEXT_HEIGHT = 4
"""Half the height of a capital letter: lowers a label to the middle of its line."""

_CHARACTER = 6.8
"""The width of a digit in a label, in pixels."""

SERIES = 6
"""The number of distinguishable colors; all further series share the last one."""


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> Html:
    """A text at a point; `anchor` is start, middle or end."""
    return el("text", words, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor)


def titled(element: Html, tooltip: str) -> Html:
    """An element with a tooltip."""
    return el("g", el("title", tooltip), element)


def path(points: Sequence[tuple[float, float]]) -> str:
    """Path data of straight lines through points."""
    written = list[str]()
    for point in points:
        x, y = map(float, point)
        written.append(f"{number_text(x)} {number_text(y)}")
    return "M" + "L".join(written)


def stepped(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points of a line that keeps each value until the next point."""
    corners = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        corners += [(x, before), (x, y)]
    return corners


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear map from values to coordinates."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """The coordinate of a value."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return self.begin + share * (self.end - self.begin)


@dataclass(frozen=True, slots=True)
class Canvas:
    """The size of a chart and its margins around the axes, in pixels."""

    width: int
    height: int
    left: int = 52
    right: int = 12
    top: int = 16
    bottom: int = 26

    @property
    def is_narrow(self) -> bool:
        return self.width < NARROW

    def x(self, low: float, high: float) -> Scale:
        """The horizontal scale."""
        return Scale(low, high, self.left, self.width - self.right)

    def y(self, ticks: Sequence[float]) -> Scale:
        """The vertical scale, upward, of an axis with these ticks."""
        return Scale(ticks[0], ticks[-1], self.height - self.bottom, self.top)

    def drawing(self, title: str, *children: Html) -> Html:
        """The SVG element; `title` describes it for screen readers."""
        return el(
            "svg",
            *children,
            viewBox=f"0 0 {self.width} {self.height}",
            role="img",
            aria_label=title,
            class_="narrow" if self.is_narrow else "wide",
        )


def nice(most: float, count: int = 4) -> list[float]:
    """Round tick values from 0 up to at least `most`: 0, 0.5, 1, 1.5."""
    if most > 0:
        return _to_beyond(most, _step(most / count, (1, 2, 2.5, 5, 10)))
    return [0.0, 1.0]


def whole(most: int, count: int = 4) -> list[float]:
    """Whole tick values from 0 up to at least `most`."""
    return _to_beyond(most, max(_step(max(most, 1) / count, (1, 2, 5, 10)), 1.0))


def spanning(low: float, high: float) -> list[float]:
    """Round tick values from at most `low` to at least `high`."""
    step = 1.0
    if high > low:
        step = _step((high - low) / 4, (1, 2, 2.5, 5, 10))
    first, last = floor(low / step), ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return [round(number * step, 12) for number in range(first, last + 1)]


def _step(least: float, factors: tuple[float, ...]) -> float:
    power = 10.0 ** floor(log10(least))
    return next(factor * power for factor in factors if factor * power >= least * (1 - 1e-9))


def _to_beyond(most: float, step: float) -> list[float]:
    values = [0.0, step]
    while values[-1] < most * (1 - 1e-9):
        values.append(round(values[-1] + step, 12))
    return values


def value_axis(
    canvas: Canvas, scale: Scale, values: Sequence[float], label: Callable[[float], str]
) -> Html:
    """Horizontal grid lines with labels."""
    parts = list[Html]()
    for value in values:
        y = scale(value)
        class_ = "zero" if value == 0 else "line"
        parts.append(
            el("line", x1=canvas.left, x2=canvas.width - canvas.right, y1=y, y2=y, class_=class_)
        )
        parts.append(text(canvas.left - 8, y + _TEXT_HEIGHT, label(value), anchor="end"))

    return fragment(*parts)


def dollars_axis(values: Sequence[float]) -> Callable[[float], str]:
    """The labels of a dollar axis: as many decimals as its step needs."""
    step = values[1] - values[0]
    digits = 0
    while digits < 6 and abs(round(step, digits) - step) >= step * 1e-6:
        digits += 1
    if digits == 1:
        # $0.50 rather than $0.5.
        digits = 2
    return f"${{:,.{digits}f}}".format


_STEPS = (
    *(minutes * MINUTE for minutes in (5, 10, 15, 30)),
    *(hours * HOUR for hours in (1, 2, 3, 4, 6, 12)),
    *(days * DAY for days in (1, 2, 7, 14, 30, 90, 365)),
)


def time_axis(canvas: Canvas, scale: Scale) -> Html:
    """Ticks at round times; midnight is labeled with the day."""
    span = scale.high - scale.low
    most = 4 if canvas.is_narrow else 8
    step = next((step for step in _STEPS if span / step <= most), _STEPS[-1])
    first, last = -(-int(scale.low) // step) * step, int(scale.high)
    parts, free_from = list[Html](), -inf

    for at in range(first, last + 1, step):
        x, y = scale(at), canvas.height - canvas.bottom
        parts.append(el("line", x1=x, x2=x, y1=y, y2=y + 4, class_="zero"))
        moment = to_datetime(at)
        label = f"{moment.day} {moment:%b}"
        if step < DAY and (moment.hour or moment.minute):
            time = f"{moment:%H:%M}"
            label = f"{label} {time}" if at == first else time
        half = _CHARACTER / 2 * len(label)
        if x - half >= free_from:
            parts.append(axis_label(canvas, x, label))
            # The first label may have been moved to the right.
            free_from = max(x + half, 2 * half) + _CHARACTER

    return fragment(*parts)


def axis_label(canvas: Canvas, x: float, label: str) -> Html:
    """A label below the axis, moved sideways if its text would leave the chart."""
    half = _CHARACTER / 2 * len(label)
    anchor = "middle"
    if x - half < 0:
        x, anchor = 0.0, "start"
    elif x + half > canvas.width:
        x, anchor = float(canvas.width), "end"
    return text(x, canvas.height - 5, label, anchor=anchor)


def series_class(number: int) -> str:
    """The color class of a series."""
    return f"s{min(number, SERIES - 1)}"


_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="same-origin">
<link rel="icon" href="data:,">
{title}
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def document(title: str, body: Html) -> str:
    """A page with the style of cost reports."""
    style = files("spotctl.show.costs").joinpath("page.css").read_text(encoding="utf-8")
    return _DOCUMENT.format(title=el("title", title), style=style, body=body)


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """The head of a table column. Text is left-aligned, figures right; a phone hides columns that
    are `wide_only`.
    """

    name: str
    is_text: bool = False
    wide_only: bool = False

    @property
    def class_(self) -> str | None:
        """The CSS classes of its cells."""
        names = [
            name for name, holds in (("text", self.is_text), ("less", self.wide_only)) if holds
        ]
        return " ".join(names) or None


def heads_of(columns: Sequence[FigureColumn], report: Report, wide_only: str) -> list[ColumnHead]:
    """The heads of report columns; `wide_only` names those that a phone hides, separated by
    blanks."""
    hidden = wide_only.split()
    names = zip(columns, headings(columns, report), strict=True)
    return [ColumnHead(heading, wide_only=column.name in hidden) for column, heading in names]


def table(
    heads: Sequence[ColumnHead],
    rows: Sequence[Sequence[str]],
    foot: Sequence[str] = (),
    caption: str = "",
) -> Html:
    """A table of texts. A table that is too wide for a phone scrolls; the page does not."""
    parts, head = list[Html](), list[Html]()
    if caption:
        parts.append(el("caption", caption))
    for column in heads:
        head.append(el("th", column.name, scope="col", class_=column.class_))
    parts.append(el("thead", el("tr", *head)))

    body = [_row(heads, row) for row in rows]
    parts.append(el("tbody", *body))
    if foot:
        parts.append(el("tfoot", _row(heads, foot)))
    return el("div", el("table", *parts), class_="scroll")


def _row(heads: Sequence[ColumnHead], cells: Sequence[str]) -> Html:
    shown = zip(heads, cells, strict=True)
    return el("tr", *(el("td", cell, class_=head.class_) for head, cell in shown))


def times(moments: Sequence[int]) -> list[Html]:
    """Times in the rows of a table. A phone shows the date only where it differs from the one in
    the row above.
    """
    shown, day_above = list[Html](), ""
    for at in moments:
        day, _, time = moment(at).removesuffix("Z").partition("T")
        shown.append(
            fragment(el("span", f"{day} ", class_="less" if day == day_above else "day"), time)
        )
        day_above = day
    return shown


def for_both_widths(
    draw: Callable[..., Html], *content: object, height: int = 280, top: int = 16
) -> Html:
    """A chart for screens and paper, and one for phones; the style sheet shows the one that fits.
    `draw` gets a canvas and the content, which begins with the title."""
    lower = max(height - 60, 180)
    screen = Canvas(960, height, top=top)
    phone = Canvas(340, lower, left=50, right=4, top=top)
    return fragment(draw(screen, *content), draw(phone, *content))


def figure(
    picture: Html, keys: Sequence[tuple[str, str]] = (), figures: Html | None = None
) -> Html:
    """A chart with its legend, pairs of a color class and a name, and its figures as a table that
    can be opened.
    """
    parts, items = list[Html](), list[Html]()
    for class_, name in keys:
        color = el("rect", width=10, height=10, rx=2, class_=class_)
        sample = el("svg", color, class_="key", viewBox="0 0 10 10", aria_hidden="true")
        items.append(el("li", sample, name))

    if items:
        parts.append(el("ul", *items, class_="legend"))
    parts.append(picture)
    if figures:
        parts.append(el("details", el("summary", "Figures"), figures))
    return el("figure", *parts)


def section(title: str, *children: Html, is_long: bool = False) -> Html:
    """A part of the page with a heading; tables of a long one may be broken across printed
    pages."""
    return el("section", el("h2", title), *children, class_="long" if is_long else None)


def tiles_of(tiles: Sequence[tuple[str, str, str]]) -> Html:
    """Figures next to each other: the name of each, its value, and a smaller line below."""
    shown = list[Html]()
    for name, value, more in tiles:
        label = el("dt", name)
        figure = el("dd", value, class_="figure")
        small = el("dd", more, class_="small")
        shown.append(el("div", label, figure, small))
    return el("dl", *shown, class_="tiles")


def versus(amounts: Sequence[tuple[str, float, str, str]]) -> Html:
    """Amounts as bars below each other: the name of each, its value, how it is written, and its
    color class.
    """
    most = max((value for _, value, _, _ in amounts), default=0) or 1
    parts = list[Html]()
    for name, value, written, class_ in amounts:
        percent = max(100 * value / most, 0.4)
        bar = el("rect", width=f"{percent:.2f}%", height=14, rx=3, class_=class_)
        picture = el("svg", bar, aria_hidden="true")
        parts += [
            el("dt", name),
            el("dd", picture),
            el("dd", written, class_="amount"),
        ]

    return el("dl", *parts, class_="versus")


def paragraph(text: str, class_: str | None = None) -> Html:
    """A paragraph; `text` may contain markup."""
    return el("p", text, class_=class_)


def subheading(text: str, meta: str = "") -> Html:
    """A heading within a section, with a smaller line below."""
    return el("h3", text, *([el("span", meta, class_="meta")] if meta else []))
