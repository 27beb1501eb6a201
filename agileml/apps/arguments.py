"""Arguments of the built-in apps: fields of a dataclass with their bounds, given as numbers or as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from math import inf, isfinite
from typing import Any, TypeVar

from agileml.errors import BadArgument

App = TypeVar("App")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The smallest value that is allowed, and whether it is itself."""

    least: float
    inclusive: bool = True

    def __str__(self) -> str:
        return "" if self.least == -inf else f" {'of at least' if self.inclusive else 'above'} {self.least:g}"

    def allow(self, value: float) -> bool:
        """Whether a value is within."""
        return value >= self.least if self.inclusive else value > self.least


def whole(default: int, help_text: str, least: int = 1) -> Any:  # noqa: ANN401 - stands for a field of type int
    """A field that holds a whole number."""
    return field(default=default, metadata={"bounds": Bounds(least), "help": help_text, "type": int})


def number(default: float, help_text: str, least: float = 0.0, inclusive: bool = False) -> Any:  # noqa: ANN401
    """A field that holds a finite number."""
    return field(default=default, metadata={"bounds": Bounds(least, inclusive), "help": help_text, "type": float})


def build(name: str, app: type[App], arguments: Mapping[str, object]) -> App:
    """An app with its arguments converted and checked."""
    known: dict[str, Field[Any]] = {each.name: each for each in fields(app) if each.init}  # type: ignore[arg-type]
    for argument in arguments:
        if argument not in known:
            raise BadArgument(f"{name} has no argument {argument!r}; it has {', '.join(known)}")
    return app(**{argument: _convert(name, known[argument], value) for argument, value in arguments.items()})


def describe(app: type[object]) -> list[tuple[str, str, str]]:
    """Name, default and meaning of every argument of an app."""
    return [
        (each.name, "" if each.default is MISSING else f"{each.default}", each.metadata["help"])
        for each in fields(app)  # type: ignore[arg-type]
        if each.init
    ]


def _convert(app: str, argument: Field[Any], value: object) -> int | float:
    bounds: Bounds = argument.metadata["bounds"]
    wanted = argument.metadata["type"]
    kind = "whole number" if wanted is int else "number"
    problem = BadArgument(f"{app}: {argument.name} is {value!r}; it must be a {kind}{bounds}")
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        raise problem
    try:
        converted: int | float = wanted(value)
    except (ValueError, OverflowError):
        raise problem from None
    if not isfinite(converted) or not bounds.allow(converted) or (isinstance(value, float) and converted != value):
        raise problem
    return converted
