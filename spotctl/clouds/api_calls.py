"""Shared by the doors to all clouds: a call and a record as they describe them, and texts of errors."""

from collections.abc import Mapping
from typing import Any, NamedTuple

ApiRecord = Mapping[str, Any]
"""One record of an answer, as the JSON of an API gives it."""


class ApiCall(NamedTuple):
    """A call to a cloud, as error messages describe it: what is requested, and the permission that allows it."""

    what: str
    permission: str


def is_plain_http(endpoint: str | None) -> bool:
    """Whether a token sent to this endpoint could be read on the way; such endpoints are called without credentials."""
    return endpoint is not None and endpoint.lower().startswith("http://")


def first_line(error: BaseException, longest: int = 300) -> str:
    """The first line of an error's text, cut at `longest` characters: a proxy may answer with a whole page of HTML."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    line = lines[0].strip().rstrip(".")
    return line if len(line) <= longest else f"{line[:longest]}..."


def on_one_line(error: BaseException, longest: int = 300) -> str:
    """The whole text of an error without line breaks, cut at `longest` characters."""
    return " ".join(str(error).split())[:longest]
