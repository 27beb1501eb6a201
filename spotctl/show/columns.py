"""Columns: each figure of an answer is declared once; its table, its JSON, its CSV and its
documentation follow.

An answer is a tuple of columns:

    POINT = (
        Column("hours", "length of the jobs", heading="hours", show="{:g}"),
        Column("cost_low", "lower end of the 95% interval", "cost.low"),
        Column("at", "moment of the decision", form=format_time),
    )
    ANSWER = (Column("points", "strategies by length", each=POINT),)

`table(POINT, points)` prints what has a heading, and `as_json(ANSWER, {"points": points})` all of
it. The reference is made from the same tuples (`docs/json_commands.py` names them), so a figure
without a meaning cannot be printed.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table
    from rich.text import Text

RowT = TypeVar("RowT")
UNKNOWN = "-"
"""Stands in tables where a value is not known."""


@dataclass(frozen=True, slots=True)
class Column(Generic[RowT]):
    """A figure of an object: an answer, or a row of one."""

    key: str
    """Its key in JSON and in CSV; `*` for all entries of a mapping whose keys are data."""
    meaning: str = ""
    """Its meaning in the documentation; empty if the class of the rows says so behind its field."""
    value: str | Callable[[RowT], Any] | None = None
    """Where it comes from: a path of attributes, entries and positions, such as `rent.offer.market`
    or `steps.0`, or a function; empty: the row; None: the attribute or entry with that key."""
    form: Callable[[Any], Any] | None = None
    """How JSON has a value that is known, such as `str` or `format_time`; None: as it is."""
    per: int | None = None
    """The unit in which JSON has the number, such as `HOUR` for hours of a time in microseconds."""
    value_at: Callable[[RowT, int], Any] | None = None
    """Where it comes from, if it depends on the present time, which the caller then passes as
    `now`."""
    heading: str | None = None
    """Its heading in tables, or its name where each figure has a line of its own; None: it is only
    in JSON."""
    show: str | Callable[[Any], str | Text] = "{}"
    """How a cell shows the value: a format, or a function."""
    cell: Callable[[RowT], str | Text] | None = None
    """The cell of a row, where it shows more than the value."""
    unknown: str = UNKNOWN
    """The text of a cell whose row has no value."""
    empty: str = ""
    """The text of a cell whose value is an empty text."""
    rank: int = 0
    """A narrow terminal leaves out the columns with the highest ranks, but none of rank 0."""
    of: Fields | None = None
    """The fields of the value, if it is an object."""
    each: Fields | None = None
    """The fields of each element of the value, if it is a list."""
    named: Column[Any] | str | None = None
    """If the value is a mapping: the column of each of its values, or only what these mean."""
    optional: bool = False
    """Whether JSON leaves the key out if there is no value; otherwise the value is null."""
    only: str = ""
    """The path of a value without which JSON leaves the key out; empty: every row has the key."""

    def read(self, row: RowT, now: int = 0) -> Any:  # noqa: ANN401  # a figure is any value
        if self.value_at is not None:
            return self.value_at(row, now)
        if self.value is None:
            return at_path(row, self.key)
        if isinstance(self.value, str):
            if self.value:
                return at_path(row, *self.value.split("."))
            return row
        return self.value(row)

    def text(self, row: RowT, now: int = 0) -> str | Text:
        """The cell of a row."""
        if self.cell is not None:
            return self.cell(row)
        value = self.read(row, now)
        if value is None:
            return self.unknown
        if value == "":
            return self.empty
        if isinstance(self.show, str):
            return self.show.format(value)
        return self.show(value)

    def json(self, value: Any, now: int = 0) -> Any:  # noqa: ANN401  # JSON is any value
        """The value as JSON, with the fields inside it."""
        if value is not None and self.form is not None:
            value = self.form(value)
        if value is None:
            return None
        if self.of is not None:
            return as_json(self.of, value, now)
        if self.each is not None:
            return [as_json(self.each, element, now) for element in value]
        if isinstance(self.named, Column):
            return {name: self.named.json(inner, now) for name, inner in value.items()}

        return finite(value if self.per is None else value / self.per)


WALL_SECONDS: Column[Any] = Column("wall_seconds", "time that the command took")

Fields = tuple[Column[Any] | type, ...] | type
"""The fields of an object in JSON: columns, or all fields of a class, where each is followed by its
meaning."""


# A row is any value.
def as_json(fields: Fields, row: Any, now: int = 0) -> dict[str, Any]:  # noqa: ANN401
    """The JSON of an object, in the order of its fields; unknown values are null."""
    if isinstance(fields, type):
        whole = asdict(row) if is_dataclass(row) and not isinstance(row, type) else row
        return {name: finite(at_path(whole, name)) for name in fields.__annotations__}

    entries: dict[str, Any] = {}
    for column in fields:
        if isinstance(column, type):
            entries |= as_json(column, row)
            continue
        if column.only and at_path(row, *column.only.split(".")) is None:
            continue
        if column.key == "*":
            entries |= {name: column.json(row[name], now) for name in row}
            continue
        value = column.json(column.read(row, now), now)
        if value is not None or not column.optional:
            entries[column.key] = value

    return entries


def at_path(row: Any, *path: str) -> Any:  # noqa: ANN401  # a row and its parts are any values
    """The value at a path of attributes, entries of mappings and positions; None from the first
    part on that is None.
    """
    for part in path:
        if row is None:
            return None
        if isinstance(row, Mapping):
            row = row[part]
        elif part.isdigit():
            row = row[int(part)]
        else:
            row = getattr(row, part)

    return row


def texts(values: Iterable[object]) -> list[str]:
    """Each value as text, for columns whose values are lists of markets, files and the like."""
    return [str(value) for value in values]


def if_any(value: Any) -> Any:  # noqa: ANN401  # a text, a list or a mapping
    """The value, or None if it is empty."""
    return value or None


def finite(value: Any) -> Any:  # noqa: ANN401  # JSON is any value
    """The value itself, or None (null in JSON) for infinity and NaN, which JSON cannot express."""
    if isinstance(value, float) and not isfinite(value):
        return None
    return value


def chosen(columns: tuple[Column[RowT], ...], keys: str) -> tuple[Column[RowT], ...]:
    """The columns with these keys, separated by blanks, in this order."""
    by_key = {column.key: column for column in columns}
    return tuple(by_key[key] for key in keys.split())


def table(
    columns: Sequence[Column[RowT]],
    rows: Sequence[RowT],
    width: int | None = None,
    *,
    names: int = 1,
    now: int = 0,
) -> Table:
    """A line for each row; the first `names` columns hold names. Within a width, a table leaves
    columns out.
    """
    from spotctl.show.layout import plain_table  # rich, which JSON does not need

    first = [column for column in columns if column.heading is not None][:names]
    shown = fitting(columns, rows, width, now)
    headings = [column.heading or "" for column, _ in shown]
    made = plain_table(*headings, names=sum(column in first for column, _ in shown))
    for row in zip(*(cells for _, cells in shown), strict=True):
        made.add_row(*row)

    return made


def fitting(
    columns: Sequence[Column[RowT]], rows: Sequence[RowT], width: int | None, now: int = 0
) -> list[tuple[Column[RowT], list[str | Text]]]:
    """The columns with a heading that fit next to each other, each with its cells; all of them
    without a width.
    """
    from spotctl.show.layout import GAP  # rich, which JSON does not need

    shown: list[tuple[Column[RowT], list[str | Text]]] = []
    for column in columns:
        if column.heading is not None:
            cells = [column.text(row, now) for row in rows]
            shown.append((column, cells))

    while width is not None and any(column.rank for column, _ in shown):
        needed = len(GAP) * (len(shown) - 1)
        for column, cells in shown:
            texts = (column.heading or "", *cells)
            needed += max(map(len, texts))
        if needed <= width:
            break
        shown.remove(max(shown, key=lambda pair: pair[0].rank))

    return shown


def save_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Writes a file with the keys of the first row, and a line for each row; unknown values are
    empty.
    """
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ())
        writer.writeheader()
        writer.writerows(rows)
