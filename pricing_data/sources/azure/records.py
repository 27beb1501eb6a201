"""Reading the fields of single records of JSON answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pricing_data.errors import BadInput

Record = Mapping[str, Any]

_LONGEST = 160
_NAMES = ("armSkuName", "skuName", "name", "id")


def text(record: Record, name: str) -> str:
    """A field that must hold text."""
    value = _field(record, name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{name} is {value!r}, not a text")
    return value.strip()


def number(record: Record, name: str) -> str:
    """The digits of a field that must hold a number, written as one or as text.

    A float prints the digits that it was read from, as long as they are no more than 15: prices have 13 at most.
    """
    value = _field(record, name)
    if not isinstance(value, int | float | str):
        raise BadInput(f"{name} is {value!r}, not a number")
    return str(value)


def listed(record: Record, name: str) -> list[Any]:
    """A field that must hold a list."""
    value = _field(record, name)
    if not isinstance(value, list):
        raise BadInput(f"{name} is {value!r}, not a list")
    return value


def _field(record: object, name: str) -> object:
    """What a record holds under a name; what stands where a record should be is refused."""
    if not isinstance(record, Mapping):
        raise BadInput("it is not an object")
    return record.get(name)


def shortened(message: object) -> str:
    """The first line of a message, cut where it would flood a report."""
    lines = str(message).strip().splitlines()
    line = lines[0].strip().rstrip(".") if lines else ""
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}..."


def named(record: object) -> str:
    """What a record is about, as far as it says so."""
    names = [record.get(name) for name in _NAMES] if isinstance(record, Mapping) else []
    return next((name for name in names if isinstance(name, str) and name), repr(record))
