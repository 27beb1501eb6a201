"""Keys of a job file that the command line gives: a name, a budget, variables, and the values of a
sweep, each of which makes a job of its own.

The changes are made to what the file says, before it is read, so that they are checked as the
file's own keys are. A job of a sweep has the value in its name, and keeps its checkpoint and
outputs in folders with its name, because jobs that share a checkpoint would resume from each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import yaml

from spotctl.files.job.forms import job_name
from spotctl.files.yaml_file import Loc, YamlFile
from spotctl.home.errors import BadRequest

MOST_JOBS = 100


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options of a launch: `--name`, `--budget`, `--env K=V`, and `--sweep K=V,W`."""

    name: str = ""
    budget: str = ""
    env: tuple[str, ...] = ()
    sweep: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.name or self.budget or self.env or self.sweep)


def with_options(file: YamlFile, given: GivenOptions) -> list[YamlFile]:
    """The file with the given keys, once for each combination of the values of a sweep."""
    if not isinstance(file.content, dict) or not given:
        return [file]

    swept = dict(_pairs("--sweep", given.sweep, "lr=1e-3,1e-4"))
    values = [[text.strip() for text in texts.split(",")] for texts in swept.values()]
    points = [dict(zip(swept, point, strict=True)) for point in product(*values)]
    if len(points) > MOST_JOBS:
        raise BadRequest(f"--sweep: makes {len(points)} jobs; {MOST_JOBS} are the most")

    base = given.name or str(file.content.get("name") or "job")
    names = [
        job_name("-".join([base, *map("-".join, point.items())])) if swept else base
        for point in points
    ]
    if len(set(names)) < len(names):
        names = [job_name(f"{base[:40]}-{number}") for number in range(1, len(names) + 1)]

    return [_changed(file, given, name, point) for name, point in zip(names, points, strict=True)]


def _changed(file: YamlFile, given: GivenOptions, name: str, point: Mapping[str, str]) -> YamlFile:
    """The file with the given keys, and with the values of one job of a sweep."""
    content: Any = file.content
    options: dict[Loc, str] = {}
    changes: dict[str, Any] = {}
    if given.name or point:
        changes["name"] = name
        options["name",] = "--name"
    if given.budget:
        changes["budget"] = f"{given.budget.removesuffix('USD').strip()} USD"
        options["budget",] = f"--budget {given.budget}"

    variables = dict(_pairs("--env", given.env, "LR=1e-3"))
    options |= {("env", key): f"--env {key}" for key in variables}
    if content.get("run") is None:
        # A trainer's script gets its values as arguments.
        arguments = {key: yaml.safe_load(text) for key, text in point.items()}
        changes["args"] = {**_mapping(content, "args"), **arguments}
    else:
        variables |= point
        options |= {("env", key): f"--sweep {key}" for key in point}
    if variables:
        changes["env"] = {**_mapping(content, "env"), **variables}

    if point:
        places = _mapping(content, "outputs")
        changes["outputs"] = {key: _below(place, name) for key, place in places.items()}
        checkpoint = _mapping(content, "checkpoint")
        if "path" in checkpoint:
            changes["checkpoint"] = {**checkpoint, "path": _below(checkpoint["path"], name)}

    return replace(file, content={**content, **changes}, options=options)


def _mapping(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    part = content.get(key)
    return part if isinstance(part, dict) else {}


def _below(place: object, name: str) -> object:
    return f"{place.rstrip('/')}/{name}/" if isinstance(place, str) else place


def _pairs(option: str, texts: Sequence[str], example: str) -> Iterable[tuple[str, str]]:
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise BadRequest(f"{option} {text}: is not KEY=VALUE; write it as {option} {example}")
        yield key, value
