"""Option values with several parts, and scenario files."""

from math import isfinite
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from spotctl.files import yaml_file
from spotctl.home.errors import BadRequest


def names(text: str) -> tuple[str, ...]:
    """The distinct names of a comma-separated list.

    >>> names("proteus, bound,proteus")
    ('proteus', 'bound')
    """
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def numbers(option: str, text: str, example: str) -> tuple[float, ...]:
    """The distinct numbers of a comma-separated list."""
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise BadRequest(f"{option} {text!r} is not a list of numbers (write {example})") from None
    return tuple(dict.fromkeys(values))


def amounts(option: str, text: str, example: str) -> dict[str, float]:
    """Reads `name=amount,name=amount`."""
    read: dict[str, float] = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        try:
            value = float(amount)
        except ValueError:
            value = float("nan")
        if not (name and equals and isfinite(value) and value >= 0) or name in read:
            raise BadRequest(
                f"{option} {text!r}: {part.strip()!r} is not TYPE=NUMBER (write {example}, each "
                "type once)"
            )
        read[name] = value

    return read


FileModel = TypeVar("FileModel", bound=BaseModel)


def parsed(path: Path, schema: type[FileModel]) -> FileModel:
    """The content of a YAML file, as its schema has it; the first error names its line."""
    file = yaml_file.read(path)
    try:
        return schema.model_validate(file.content)
    except ValidationError as error:
        # Unknown keys come first: they are often misspelled versions of missing ones.
        mistakes = error.errors()
        unknown = [mistake for mistake in mistakes if mistake["type"] == "extra_forbidden"]
        first, *_ = unknown or mistakes
        place, line = ".".join(map(str, first["loc"])) or "the file", file.line(first["loc"])
        message, more = first["msg"].removeprefix("Value error, "), error.error_count() - 1
        text = f"{path}:{line}: {place}: {message}"
        if more > 0:
            text += f" (and {more} more)"
        raise BadRequest(text) from None


def found_at(scenario: Path, named: Path) -> Path:
    """A file's path: relative to the working directory, else to the scenario's folder."""
    if named.exists():
        return named
    return scenario.parent / named
