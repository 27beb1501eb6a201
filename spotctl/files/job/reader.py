"""From a job file to a `JobSpec`, and from the event log's copy of one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from warnings import warn

from pricing_data.market import api_region, is_region_of
from spotctl.files.job import sections
from spotctl.files.job.checks import code_problems, launch_problems, problems
from spotctl.files.job.programs import Command
from spotctl.files.job.sections import Given, Reader
from spotctl.files.job.spec import ANY, OLD_NAMES, JobSpec, ProgramKind, Range
from spotctl.files.job.values import MLFLOW, Nodes
from spotctl.files.yaml_file import Problem, YamlFile, parse, read, refusal
from spotctl.home.errors import BadRequest, OldName

_FILE = "file://"
_HAS_SCHEME = re.compile(r"\w+://")


def load(path: Path, *, to_launch: bool = False) -> JobSpec:
    """The job that a file describes; BadRequest names the first mistake, its line and a cure.

    A job `to_launch` has the files with which its command begins; a plan does without them.
    """
    file = read(path)
    spec = _checked(file)
    if to_launch and (mistakes := launch_problems(spec)):
        raise refusal(file, mistakes)
    return spec


def loads(text: str, path: Path) -> JobSpec:
    """The job that some YAML describes; `path` is the file that it is from, or will be written to."""
    return _checked(parse(text, path))


def from_fields(fields: Mapping[str, Any]) -> JobSpec:
    """The job that a program describes with the fields of a job file; paths are relative to the working directory."""
    name = Path("job")
    try:
        # JSON is YAML, so fields get the same checks as a file.
        text = json.dumps(fields, ensure_ascii=False, default=_field_text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"{name}: cannot be written as a job file: {error}") from error
    return _checked(replace(parse(text, name), has_lines=False))


def _field_text(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} of type {type(value).__name__}; write it as in a job file")


def restored(content: Mapping[str, Any], origin: Path) -> JobSpec:
    """The job that `written` gave, also by an earlier version. The job's code may be gone: ending a run needs none."""
    checkpoint = content.get("checkpoint")
    if isinstance(checkpoint, Mapping):
        # A checkpoint that an earlier version has signed is read as any other.
        kept = {name: value for name, value in checkpoint.items() if name != "signed_with"}
        content = {**content, "checkpoint": kept}
    return sections.build(JobSpec, _with_counts(_given(YamlFile(origin, dict(content), None))))


def written(spec: JobSpec) -> dict[str, Any]:
    """A job as a file would say it, in values that JSON can hold: what the event log keeps."""
    content = sections.written(spec)
    if not spec.is_local:
        del content["local"]
    return content


def _checked(file: YamlFile) -> JobSpec:
    if file.content is None:
        raise BadRequest(f"{file.path}:1: the file is empty; write a job (spotctl init writes a starter file)")
    given, folder = _given(file), file.path.parent.resolve()
    spec = sections.build(JobSpec, _with_counts(given))
    if mistakes := problems(spec, given):
        raise refusal(file, mistakes)
    spec = _resolved(spec, folder)
    if mistakes := code_problems(spec):
        raise refusal(file, mistakes)
    return spec


def _given(file: YamlFile) -> Given:
    reader = Reader(JobSpec)
    for old, new in OLD_NAMES.items():
        if isinstance(file.content, dict) and old in file.content:
            if new in file.content:
                raise refusal(file, [Problem((old,), f"is the old name of {new}, which is there too; keep {new} only")])
            if file.root is not None:
                warn(f"{file.place((old,))}: {old}: is called {new} now; rename it", OldName, stacklevel=4)
            file = file.renamed(old, new)
    content = file.content
    if isinstance(content, dict):
        content = dict(content)
        if isinstance(env := content.get("env"), dict):
            content["env"] = env | {name: text for name, text in file.texts("env").items() if name in env}
    given = reader.section(JobSpec, content)
    if reader.problems:
        raise refusal(file, reader.problems)
    return given


def _with_counts(given: Given) -> Given:
    """Adds the numbers of machines that follow from the kind where the file leaves them out."""
    resources, nodes = given["resources"], given.get("nodes", Nodes(1, 1))
    is_training = given["kind"] is ProgramKind.AGILEML
    # Layers of a split model have copies; of another one, a machine may have to keep the model.
    is_split = not given.keys().isdisjoint({"parallel_auto", "parallel_as_given"})
    is_open = resources.get("clouds") == ("local",) and given.get("engine") is None
    usual = 0 if is_split or not is_training else None if is_open else 1
    reliable = {"machines": usual, **resources.get("reliable", {})}
    # Without `machines`, a training is refused by a later check.
    machines = resources.get("machines", Range(0)) if is_training else Range(nodes.least, nodes.most)
    return {**given, "resources": {**resources, "machines": machines, "reliable": reliable}}


def _resolved(spec: JobSpec, folder: Path) -> JobSpec:
    """The job with absolute paths, and regions as their cloud spells them."""
    program = spec.program
    if isinstance(program, Command) and program.checkpoint is not None:
        place = replace(program.checkpoint, path=_location(program.checkpoint.path, folder))
        program = replace(program, checkpoint=place)
    clouds = spec.resources.clouds
    named = spec.resources.regions
    regions = named
    if named != (ANY,) and clouds != ("local",):
        own = [next(cloud for cloud in clouds if is_region_of(cloud, region)) for region in named]
        regions = tuple(dict.fromkeys(map(api_region, own, named)))
    return replace(
        spec,
        program=program,
        resources=replace(spec.resources, regions=regions),
        workdir=_path(str(spec.workdir), folder),
        data={name: _location(place, folder) for name, place in spec.data.items()},
        outputs={name: _location(place, folder) for name, place in spec.outputs.items()},
        track={name: _tracked(name, place, folder) for name, place in spec.track.items()},
    )


def _location(place: str, folder: Path) -> str:
    if place.startswith(_FILE):
        return str(Path(unquote(place.removeprefix(_FILE))).resolve())
    return place if _HAS_SCHEME.match(place) else str(_path(place, folder))


def _tracked(tracker: str, place: str, folder: Path) -> str:
    """The place of a tracker; MLflow's may be a folder, which is a path like any other of the file."""
    is_folder = tracker == MLFLOW and place and not re.match(r"[a-z+]+:|databricks$", place)
    return str(_path(place, folder)) if is_folder else place


def _path(place: str, folder: Path) -> Path:
    path = Path(place)
    return (path.expanduser() if place.startswith("~/") else folder / path).resolve()
