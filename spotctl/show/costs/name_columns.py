"""How a cost table names its groups: in columns side by side, or nested where the terminal is narrow."""

from collections.abc import Sequence
from dataclasses import dataclass

from spotctl.show.costs.cost import Group
from spotctl.show.costs.grouping import By, Grouping

_GAP = 2
_INDENT = "  "
_LEAST_NAME = 12
_BREAKS = "/-"


@dataclass(frozen=True, slots=True)
class NameRow:
    """The names of a row; without a group it is a heading of the rows below."""

    names: tuple[str, ...]
    group: Group | None


@dataclass(frozen=True, slots=True)
class NameColumns:
    """The headings of the columns with names, and their rows."""

    headings: tuple[str, ...]
    rows: tuple[NameRow, ...]

    @property
    def width(self) -> int:
        """The width of all columns side by side, with the gaps between them."""
        return sum(_widest(column) + _GAP for column in self._columns) - _GAP

    def within(self, width: int) -> "NameColumns":
        """The columns in this width: names that are too long are broken where a person would break them."""
        first, *others = (_widest(column) for column in self._columns)
        room = max(width - sum(others) - _GAP * len(others), _LEAST_NAME)
        if first <= room:
            return self
        rows = (NameRow((_broken(row.names[0], room), *row.names[1:]), row.group) for row in self.rows)
        return NameColumns((_broken(self.headings[0], room), *self.headings[1:]), tuple(rows))

    @property
    def _columns(self) -> list[tuple[str, ...]]:
        return list(zip(self.headings, *(row.names for row in self.rows), strict=True))


def side_by_side(by: Sequence[Grouping], groups: Sequence[Group]) -> NameColumns:
    """A column for each property."""
    return NameColumns(
        tuple(grouping.value for grouping in by), tuple(NameRow(tuple(group.key.values()), group) for group in groups)
    )


def nested(by: Sequence[Grouping], groups: Sequence[Group]) -> NameColumns:
    """One column, with groups below the properties that they share; pricing is short and has a column of its own."""
    levels: list[Grouping] = [grouping for grouping in by if grouping is not By.PRICING] or list(by)
    others = [grouping for grouping in by if grouping not in levels]
    rows, above = list[NameRow](), list[str]()
    for group in groups:
        names = [group.key[grouping] for grouping in levels]
        for level, name in enumerate(names[:-1]):
            if above[: level + 1] != names[: level + 1]:
                rows.append(NameRow((_INDENT * level + name, *("" for _ in others)), None))
        last = _INDENT * (len(levels) - 1) + names[-1]
        rows.append(NameRow((last, *(group.key[grouping] for grouping in others)), group))
        above = names
    return NameColumns(
        (", ".join(grouping.value for grouping in levels), *(grouping.value for grouping in others)), tuple(rows)
    )


def _widest(cells: Sequence[str]) -> int:
    return max(map(len, cells))


def _broken(name: str, room: int) -> str:
    """A name on several lines of this length, which end after a slash or hyphen if possible."""
    rest = name.lstrip()
    indent = name[: len(name) - len(rest)]
    room, lines = room - len(indent), list[str]()
    while len(rest) > room:
        end = max(rest.rfind(mark, 1, room) for mark in _BREAKS) + 1 or room
        lines.append(indent + rest[:end])
        rest = rest[end:]
    return "\n".join([*lines, indent + rest])
