"""Parts of the HTML page: sections, tables and figures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from spotctl.show.costs.columns import FigureColumn, headings
from spotctl.show.costs.cost import Report
from spotctl.show.costs.markup import Canvas, Html, el, fragment, legend
from spotctl.show.phrases import moment

_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
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
    """The head of a table column. Text is left-aligned, figures right; a phone hides columns that are `wide_only`."""

    name: str
    is_text: bool = False
    wide_only: bool = False

    @property
    def class_(self) -> str | None:
        """The CSS classes of its cells."""
        names = [name for name, holds in (("text", self.is_text), ("less", self.wide_only)) if holds]
        return " ".join(names) or None


def heads_of(columns: Sequence[FigureColumn], report: Report, wide_only: str) -> list[ColumnHead]:
    """The heads of report columns; `wide_only` names those that a phone hides, separated by blanks."""
    hidden = wide_only.split()
    names = zip(columns, headings(columns, report), strict=True)
    return [ColumnHead(heading, wide_only=column.name in hidden) for column, heading in names]


def table(
    heads: Sequence[ColumnHead], rows: Sequence[Sequence[str]], foot: Sequence[str] = (), caption: str = ""
) -> Html:
    """A table of texts. A table that is too wide for a phone scrolls; the page does not."""
    head = el("tr", *(el("th", column.name, scope="col", class_=column.class_) for column in heads))
    parts = [
        *([el("caption", caption)] if caption else []),
        el("thead", head),
        el("tbody", *(_row(heads, row) for row in rows)),
        *([el("tfoot", _row(heads, foot))] if foot else []),
    ]
    return el("div", el("table", *parts), class_="scroll")


def _row(heads: Sequence[ColumnHead], cells: Sequence[str]) -> Html:
    return el("tr", *(el("td", cell, class_=head.class_) for head, cell in zip(heads, cells, strict=True)))


def times(moments: Sequence[int]) -> list[Html]:
    """Times in the rows of a table. A phone shows the date only where it differs from the one in the row above."""
    shown, day_above = list[Html](), ""
    for at in moments:
        day, _, time = moment(at).removesuffix("Z").partition("T")
        shown.append(fragment(el("span", f"{day} ", class_="less" if day == day_above else "day"), time))
        day_above = day
    return shown


def for_both_widths(draw: Callable[[Canvas], Html], height: int = 280, top: int = 16) -> Html:
    """A chart for screens and paper, and one for phones; the style sheet shows the one that fits."""
    phone = Canvas(340, max(height - 60, 180), left=50, right=4, top=top)
    return fragment(draw(Canvas(960, height, top=top)), draw(phone))


def figure(picture: Html, keys: Sequence[tuple[str, str]] = (), figures: Html | None = None) -> Html:
    """A chart with its legend, and its figures as a table that can be opened."""
    parts = [legend(keys)] if keys else []
    details = [el("details", el("summary", "Figures"), figures)] if figures else []
    return el("figure", *parts, picture, *details)


def section(title: str, *children: Html, is_long: bool = False) -> Html:
    """A part of the page with a heading; tables of a long one may be broken across printed pages."""
    return el("section", el("h2", title), *children, class_="long" if is_long else None)


def tiles_of(tiles: Sequence[tuple[str, str, str]]) -> Html:
    """Figures next to each other: the name of each, its value, and a smaller line below."""
    return el(
        "dl",
        *(
            el("div", el("dt", name), el("dd", value, class_="figure"), el("dd", more, class_="small"))
            for name, value, more in tiles
        ),
        class_="tiles",
    )


def paragraph(text: str, class_: str | None = None) -> Html:
    """A paragraph; `text` may contain markup."""
    return el("p", text, class_=class_)


def subheading(text: str, meta: str = "") -> Html:
    """A heading within a section, with a smaller line below."""
    return el("h3", text, *([el("span", meta, class_="meta")] if meta else []))
