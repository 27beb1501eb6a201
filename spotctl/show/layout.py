"""Tables without lines, the same in every command."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text


def plain_table(*columns: str, names: int = 1, title: str | None = None) -> Table:
    """Columns of names, which are folded where there is no room, and then columns of figures, which never are."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        is_figure = i >= names
        table.add_column(Text(column), justify="right" if is_figure else "left", no_wrap=is_figure, overflow="fold")
    return table


def pairs_table(rows: Iterable[tuple[str, str]]) -> Table:
    """One figure or sentence per row, after its name."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="bold"), Text(value))
    return table
