"""Tables without lines, the same in every command."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from spotctl.home.printable import printable

TableCell = str | Text
GAP = "  "
"""Separates the columns of a table."""
_MIN_NAME = 8


def plain_table(*columns: str, names: int = 1, title: str | None = None) -> Table:
    """Columns of names, which are folded where there is no room, and then columns of figures, which
    never are.
    """
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        header_style="bold",
        pad_edge=False,
    )

    for i, column in enumerate(columns):
        is_figure = i >= names
        table.add_column(
            Text(column),
            justify="right" if is_figure else "left",
            no_wrap=is_figure,
            overflow="fold",
        )

    return table


def pairs_table(rows: Iterable[tuple[str, str]]) -> Table:
    """One figure or sentence per row, after its name."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value, overflow="fold"))
    return table


@dataclass(frozen=True, slots=True)
class LongTable:
    """A `plain_table` with one column of names, for thousands of rows: Rich's own takes a
    millisecond for each.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[TableCell]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        widths = [max(map(len, cells)) for cells in zip(self.columns, *self.rows, strict=True)]
        name, *others = widths
        room = options.max_width - sum(others) - len(GAP) * len(others)
        widths[0] = max(min(name, room), _MIN_NAME)
        yield from _line(console, self.columns, widths, Style(bold=True))
        for row in self.rows:
            yield from _line(console, row, widths)


def _line(
    console: Console, cells: Sequence[TableCell], widths: Sequence[int], style: Style | None = None
) -> Iterator[Segment]:
    """A row. Where its name is too long, the rest of that follows below."""
    name, width = cells[0], widths[0]
    parts = [name[:width], " " * (width - len(name))]
    for cell, room in zip(cells[1:], widths[1:], strict=True):
        gap = GAP + " " * (room - len(cell))
        parts += [gap, cell]
    yield from _segments(console, parts, style)
    for start in range(width, len(name), width):
        below = name[start : start + width]
        yield from _segments(console, [below], style)


def _segments(
    console: Console, parts: Iterable[TableCell], style: Style | None
) -> Iterator[Segment]:
    """A line in as few segments as its colors allow."""
    plain = ""
    for part in parts:
        if isinstance(part, str) or not part.spans:
            plain += str(part)
            continue
        yield Segment(plain, style)
        yield from part.render(console)
        plain = ""

    yield Segment(plain, style)
    yield Segment.line()


class PrintableConsole(Console):
    """Shows the control characters of all text, wherever it comes from, as escapes; styles are
    Rich's own.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(printable(segment.text), segment.style)
