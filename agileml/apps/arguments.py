"""Arguments of the built-in apps: dataclass fields with bounds and descriptions, set by numbers or text."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from math import inf, isfinite
from typing import Any, TypeVar

from agileml.errors import BadArgument

App = TypeVar("App")


@dataclass(frozen=True, slots=True)
class ArgumentBounds:
    """The lower bound of a value, and whether the bound itself is allowed."""

    least: float
    inclusive: bool = True

    def __str__(self) -> str:
        return "" if self.least == -inf else f" {'of at least' if self.inclusive else 'above'} {self.least:g}"

    def allow(self, value: float) -> bool:
        """Whether a value is within the bound."""
        return value >= self.least if self.inclusive else value > self.least


def whole(default: int, help_text: str, least: int = 1) -> Any:  # noqa: ANN401 - stands for a field of type int
    """A field for a whole number."""
    return field(default=default, metadata={"bounds": ArgumentBounds(least), "help": help_text, "type": int})


def number(default: float, help_text: str, least: float = 0.0, inclusive: bool = False) -> Any:  # noqa: ANN401
    """A field for a finite number."""
    return field(
        default=default, metadata={"bounds": ArgumentBounds(least, inclusive), "help": help_text, "type": float}
    )


def text(default: str, help_text: str) -> Any:  # noqa: ANN401 - stands for a field of type str
    """A field for text."""
    return field(default=default, metadata={"help": help_text, "type": str})


def build(name: str, app: type[App], arguments: Mapping[str, object]) -> App:
    """Creates an app from converted and checked arguments; BadArgument names the argument, its value and its bound."""
    known: dict[str, Field[Any]] = {each.name: each for each in fields(app) if each.init}  # type: ignore[arg-type]
    for argument in arguments:
        if argument not in known:
            described = ", ".join(f"{each.name} ({each.metadata['help']})" for each in known.values())
            raise BadArgument(f"{name} has no argument {argument!r}; it takes {described}")
    return app(**{argument: _convert(name, known[argument], value) for argument, value in arguments.items()})


def _convert(app: str, argument: Field[Any], value: object) -> int | float | str:
    if argument.metadata["type"] is str:
        return str(value)
    bounds: ArgumentBounds = argument.metadata["bounds"]
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
