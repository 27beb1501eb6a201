"""Reading single records of JSON answers: a bad one is counted and named, the good ones beside it are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pricing_data.errors import BadInput, SourceUnavailable

Record = Mapping[str, Any]
T = TypeVar("T")

_LONGEST_EXAMPLE = 160
_NAMES = ("armSkuName", "skuName", "name", "id")


def text(record: Record, name: str) -> str:
    """A field that must hold text."""
    value = record.get(name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{name} is {value!r}, not a text")
    return value.strip()


def number(record: Record, name: str) -> str:
    """The digits of a field that must hold a number, written as one or as text.

    A float prints the digits that it was read from, as long as they are no more than 15: prices have 13 at most.
    """
    value = record.get(name)
    if not isinstance(value, int | float | str):
        raise BadInput(f"{name} is {value!r}, not a number")
    return str(value)


def listed(record: Record, name: str) -> list[Any]:
    """A field that must hold a list."""
    value = record.get(name)
    if not isinstance(value, list):
        raise BadInput(f"{name} is {value!r}, not a list")
    return value


def shortened(message: object) -> str:
    """The first line of a message, cut where it would flood a report."""
    lines = str(message).strip().splitlines()
    line = lines[0].strip().rstrip(".") if lines else ""
    return line if len(line) <= _LONGEST_EXAMPLE else f"{line[:_LONGEST_EXAMPLE]}..."


def _name(record: object) -> str:
    """What a record is about, as far as it says so."""
    names = [record.get(name) for name in _NAMES] if isinstance(record, Mapping) else []
    return next((name for name in names if isinstance(name, str) and name), shortened(repr(record)))


@dataclass
class Rejects:
    """The records of one answer that could not be read."""

    answer: str
    count: int = 0
    example: str = ""

    def good(self, read: Callable[[Record], T], records: Iterable[object]) -> Iterator[T]:
        """What `read` makes of each record; those it refuses are counted."""
        for record in records:
            try:
                if not isinstance(record, Mapping):
                    raise BadInput("it is not an object")
                value = read(record)
            except BadInput as error:
                self.count += 1
                self.example = self.example or f"{_name(record)}: {shortened(error)}"
            else:
                yield value

    def report(self) -> None:
        """Raise if any record was refused; to be called when the good ones are delivered."""
        if self.count:
            raise SourceUnavailable(
                f"{self.answer}: {self.count} broken and skipped, the first: {self.example}"
                " (the rest is kept, the next fetch asks again)"
            )
