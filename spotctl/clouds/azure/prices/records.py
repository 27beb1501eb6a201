"""Reading fields of single records in JSON answers."""

from collections.abc import Mapping
from typing import Any

from pricing_data.errors import BadInput
from spotctl.clouds.errors import ApiRecord

_NAMES = ("armSkuName", "skuName", "name", "id")


def text(record: ApiRecord, name: str) -> str:
    """A field that must contain text."""
    value = _field(record, name)
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{name} is {value!r}, not text")
    return value.strip()


def number(record: ApiRecord, name: str) -> str:
    """The digits of a field that must contain a number, as a JSON number or as text.

    A float prints the digits it was read from if there are at most 15; prices have at most 13.
    """
    value = _field(record, name)
    if not isinstance(value, int | float | str):
        raise BadInput(f"{name} is {value!r}, not a number")
    return str(value)


def listed(record: ApiRecord, name: str) -> list[Any]:
    """A field that must contain a list."""
    value = _field(record, name)
    if not isinstance(value, list):
        raise BadInput(f"{name} is {value!r}, not a list")
    return value


def _field(record: object, name: str) -> object:
    """A field's value, or None; raises `BadInput` if the record is not an object."""
    if not isinstance(record, Mapping):
        raise BadInput("the record is not an object")
    return record.get(name)


def named(record: object) -> str:
    """The name in a record, if there is one; else the record itself."""
    names = [record.get(name) for name in _NAMES] if isinstance(record, Mapping) else []
    return next((name for name in names if isinstance(name, str) and name), repr(record))
