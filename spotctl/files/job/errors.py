"""What is wrong with a job.yaml, as one line: `FILE:LINE: field: what was found; what is allowed`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from spotctl.errors import BadRequest
from spotctl.files.job.forms import UNREADABLE
from spotctl.files.job.parts import IS_LIST, IS_MAPPING, JobFile
from spotctl.files.job.units import meant
from spotctl.files.yaml_file import YamlFile

_LONGEST = 60
_KEY = "[key]"
"""Pydantic's last step to a key of a mapping, as against its value."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong, and with which part of the file."""

    loc: tuple[int | str, ...]
    message: str
    is_missing: bool = False


def refusal(file: YamlFile, problems: Iterable[Problem]) -> BadRequest:
    """The error to raise: what stands first, and how much else there is. What is missing is most often misspelt."""
    found = sorted(problems, key=lambda problem: (problem.is_missing, file.line(problem.loc)))
    first, more = found[0], len(found) - 1
    where = f"{file.path}:{file.line(first.loc)}: {'.'.join(map(str, first.loc)) or 'the file'}"
    return BadRequest(f"{where}: {first.message}{f' (and {more} more)' if more else ''}")


def problems_of(error: ValidationError) -> list[Problem]:
    """Everything that does not fit the parts of a job file."""
    return [_problem(detail) for detail in error.errors(include_url=False)]


def missing(*loc: str) -> Problem:
    """A key that must be there and is not."""
    return Problem(loc, f"is missing; write {_example(loc)}", is_missing=True)


def _problem(detail: ErrorDetails) -> Problem:
    loc = tuple(step for step in detail["loc"] if step not in (IS_LIST, IS_MAPPING, _KEY))
    found = "what stands there" if loc[:1] == ("secrets",) else shown(detail["input"])
    match detail["type"]:
        case _ if not loc:
            return Problem(loc, f"{found} is no job; write keys with values (spotctl init makes a file to begin with)")
        case "missing":
            return missing(*map(str, loc))
        case "extra_forbidden" | "invalid_key":
            return Problem(loc, _unknown(loc))
        case "too_short":
            return Problem(loc, f"is empty; write {_example(loc)}")
        case _ if detail["type"] == UNREADABLE:
            told = detail["ctx"]
            said = told["wrong"] if detail["input"] is None else f"{found} {told['wrong']}"
            return Problem(loc, f"{said}; allowed is {told['allowed']}")
        case _:
            wanted = "a list" if detail["type"] == "list_type" else "a mapping"
            said = "is empty" if detail["input"] is None else f"{found} is not {wanted}"
            return Problem(loc, f"{said}; write {_example(loc)}")


def shown(found: object) -> str:
    """A value as a person knows it again."""
    if isinstance(found, dict):
        return "a mapping"
    if isinstance(found, list):
        return "a list"
    if isinstance(found, bool):
        return str(found).lower()
    text = repr(found)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _unknown(loc: tuple[int | str, ...]) -> str:
    *place, key = map(str, loc)
    known = list(_part_at(place).model_fields)
    if place:
        moved = " (it belongs at the top level)" if key in JobFile.model_fields else ""
        return f"is no key there{meant(key, known) or moved}; allowed are {', '.join(known)}"
    if hint := meant(key, known):
        return f"is no key{hint}; spotctl schema lists all that are allowed"
    homes = [name for name, field in JobFile.model_fields.items() if key in _keys_of(field)]
    allowed = f"is {homes[0]}.{key}" if homes else f"are {', '.join(known)}"
    return f"is no key at the top level; allowed {allowed}"


def _example(loc: tuple[int | str, ...]) -> str:
    """The key as it may be written."""
    import yaml

    *place, key = map(str, loc)
    field = _part_at(place).model_fields[key]
    assert field.examples, f"{'.'.join(map(str, loc))} has no example"
    flow: str = yaml.safe_dump({key: field.examples[0]}, default_flow_style=True, sort_keys=False, width=1000)
    return flow.strip()[1:-1]


def _part_at(place: Iterable[str]) -> type[BaseModel]:
    part: type[BaseModel] = JobFile
    for step in place:
        part = next(_parts_in(part.model_fields[step].annotation))
    return part


def _keys_of(field: FieldInfo) -> set[str]:
    return {key for part in _parts_in(field.annotation) for key in part.model_fields}


def _parts_in(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401 - annotations have no common type
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _parts_in(inner)
