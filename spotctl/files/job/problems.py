"""Mistakes in a job file, each as one line: `FILE:LINE: field: what was found; what to write`."""

from collections.abc import Iterable
from dataclasses import dataclass

from spotctl.files.yaml_file import Loc, YamlFile
from spotctl.home.errors import BadRequest

_LONGEST = 60


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake, and the part of the file with it."""

    loc: Loc
    message: str
    is_missing: bool = False


def refusal(file: YamlFile, problems: Iterable[Problem]) -> BadRequest:
    """The error to raise: the first problem in the file, and how many more there are.

    A missing key comes last: most often the key is there, misspelled.
    """
    ordered = sorted(problems, key=lambda problem: (problem.is_missing, file.line(problem.loc)))
    first, more = ordered[0], len(ordered) - 1
    where = f"{file.place(first.loc)}: {'.'.join(map(str, first.loc)) or 'the file'}"
    return BadRequest(f"{where}: {first.message}{f' (and {more} more)' if more else ''}")


def shown(value: object) -> str:
    """A value as the user will recognize it."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
