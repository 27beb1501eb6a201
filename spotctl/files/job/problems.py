"""What is wrong with a job file, as one line: `FILE:LINE: field: what was found; what to write`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spotctl.files.yaml_file import YamlFile
from spotctl.home.errors import BadRequest

_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and with which part of the file."""

    loc: tuple[int | str, ...]
    message: str
    is_missing: bool = False


def refusal(file: YamlFile, problems: Iterable[Problem]) -> BadRequest:
    """The error to raise: the first problem in the file, and how many more there are.

    A missing key comes last: most often it is there, misspelled.
    """
    ordered = sorted(problems, key=lambda problem: (problem.is_missing, file.line(problem.loc)))
    first, more = ordered[0], len(ordered) - 1
    where = f"{file.place(first.loc)}: {'.'.join(map(str, first.loc)) or 'the file'}"
    return BadRequest(f"{where}: {first.message}{f' (and {more} more)' if more else ''}")


def shown(found: object) -> str:
    """A value as the user will recognize it."""
    if isinstance(found, dict):
        return "a mapping"
    if isinstance(found, list):
        return "a list"
    if isinstance(found, bool):
        return str(found).lower()
    text = repr(found)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
