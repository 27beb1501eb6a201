"""From a job file to a `JobSpec`, and from the event log's copy of one; the JSON Schema of job
files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from inspect import getdoc
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote
from warnings import warn

from bidbrain.strategies.names import DEADLINE
from pricing_data.market import api_region, is_region_of
from spotctl.files.job import sections
from spotctl.files.job.checks import code_problems, launch_problems, problems
from spotctl.files.job.conversions import meant
from spotctl.files.job.data_places import overlap_problems
from spotctl.files.job.environment import packages_of, with_image
from spotctl.files.job.forms import Form
from spotctl.files.job.given_options import GivenOptions, with_options
from spotctl.files.job.programs import Command, Stop
from spotctl.files.job.resources import Resources
from spotctl.files.job.sections import Given, Key, ListOf, MapOf, Reader, keys_of, selected
from spotctl.files.job.spec import ANY, OLD_NAMES, JobSpec, Range
from spotctl.files.job.values import MLFLOW, RAY, Nodes, Objective, ProgramKind
from spotctl.files.yaml_file import Problem, YamlFile, parse, read, refusal
from spotctl.home.errors import BadRequest, OldName, UnreadableJob

_FILE = "file://"
_HAS_SCHEME = re.compile(r"\w+://")


def load(path: Path, *, home: Path | None = None, to_launch: bool = False) -> JobSpec:
    """The job that a file describes; BadRequest names each mistake, its line and a cure.

    A job `to_launch` has the files with which its command begins; a plan does without them. Nothing
    of the job may be written into the `home` of spotctl.
    """
    ((spec, _),) = load_all([path], GivenOptions(), home=home, to_launch=to_launch)
    return spec


def load_all(
    paths: Sequence[Path],
    given: GivenOptions,
    *,
    home: Path | None = None,
    to_launch: bool = False,
) -> list[tuple[JobSpec, Path]]:
    """The jobs that files describe with the options that the command line gives, each with its
    file.
    """
    if given.name and len(paths) > 1:
        raise BadRequest(f"--name {given.name}: names one job, and there are {len(paths)} files")

    jobs = []
    for path in paths:
        for file in with_options(_job_file(path), given):
            spec = _checked(file, home)
            if to_launch and (mistakes := launch_problems(spec)):
                raise refusal(file, mistakes)
            jobs.append((spec, path))
    return jobs


def _job_file(path: Path) -> YamlFile:
    if path.suffix == ".py":
        job = path.with_suffix(".yaml").name
        raise BadRequest(
            f"{path}: is a script; spotctl init {path} {job} writes its job file, and spotctl "
            f"launch {job} runs it"
        )

    file = read(path)
    content = file.content if isinstance(file.content, dict) else {}
    resources = content.get("resources")
    keys = {*content, *resources} if isinstance(resources, dict) else set()
    if "clouds" not in keys and keys & _OF_OTHER_TOOLS:
        raise BadRequest(
            f"{path}: is a task of another tool; spotctl init {path} job.yaml writes its job file"
        )
    return file


def loads(text: str, path: Path, home: Path | None = None) -> JobSpec:
    """The job that some YAML describes; `path` is the file that it is from, or will be written
    to."""
    return _checked(parse(text, path), home)


def from_fields(fields: Mapping[str, Any], home: Path | None = None) -> JobSpec:
    """The job that a program describes with the fields of a job file; paths are relative to the
    working directory.
    """
    name = Path("job")
    try:
        # JSON is YAML, so fields get the same checks as a file.
        text = json.dumps(fields, ensure_ascii=False, default=_field_text)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"{name}: cannot be written as a job file: {error}") from error
    return _checked(replace(parse(text, name), has_lines=False), home)


def _field_text(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r} of type {type(value).__name__}; write it as in a job file")


def restored(content: Mapping[str, Any], origin: Path) -> JobSpec:
    """The job that `written` gave, also by an earlier version. The job's code may be gone: ending a
    run needs none.

    UnreadableJob: something is missing or not as it should be.
    """
    checkpoint = content.get("checkpoint")
    if isinstance(checkpoint, Mapping):
        # A checkpoint that an earlier version has signed is read as any other.
        kept = {name: value for name, value in checkpoint.items() if name != "signed_with"}
        content = {**content, "checkpoint": kept}

    try:
        return sections.build(
            JobSpec, _with_counts(_given(_in_todays_keys(YamlFile(origin, dict(content), None))))
        )
    except (BadRequest, TypeError, ValueError, AttributeError, LookupError) as error:
        why = str(error).removeprefix(f"{origin}:1: ")
        raise UnreadableJob(
            f"job {content.get('name', '?')}: its job file in the log cannot be read: {why}"
        ) from error


def written(spec: JobSpec) -> dict[str, Any]:
    """A job as a file would say it, in values that JSON can hold: what the event log keeps."""
    content = sections.written(spec)
    if not spec.is_local:
        del content["local"]
    return content


def _checked(file: YamlFile, home: Path | None) -> JobSpec:
    if file.content is None:
        raise BadRequest(
            f"{file.path}:1: the file is empty; write a job (spotctl init writes a starter file)"
        )

    file = _in_todays_keys(file)
    given, folder = _given(file), file.path.parent.resolve()
    spec = with_image(sections.build(JobSpec, _with_counts(given)))
    if mistakes := problems(spec, given):
        raise refusal(file, mistakes)

    # Absolute paths, and regions as their cloud spells them.
    program, resources = spec.program, spec.resources
    if isinstance(program, Command) and program.checkpoint is not None:
        place = replace(program.checkpoint, path=_location(program.checkpoint.path, folder))
        program = replace(program, checkpoint=place)

    clouds, named = resources.clouds, resources.regions
    if named != (ANY,) and clouds != ("local",):
        spelled = []
        for region in named:
            own = next(cloud for cloud in clouds if is_region_of(cloud, region))
            spelled.append(api_region(own, region))
        resources = replace(resources, regions=tuple(dict.fromkeys(spelled)))

    track = dict(spec.track)
    place_of_runs = track.get(MLFLOW)
    if place_of_runs and not re.match(r"[a-z+]+:|databricks$", place_of_runs):
        # MLflow's place may be a folder, which is a path like any other of the file.
        track[MLFLOW] = str(_path(place_of_runs, folder))

    spec = replace(
        spec,
        program=program,
        resources=resources,
        workdir=_path(str(spec.workdir), folder),
        data={name: _location(place, folder) for name, place in spec.data.items()},
        outputs={name: _location(place, folder) for name, place in spec.outputs.items()},
        track=track,
    )

    if mistakes := [*code_problems(spec), *overlap_problems(spec, home)]:
        raise refusal(file, mistakes)
    try:
        return replace(spec, environment=packages_of(spec))
    except BadRequest as error:
        raise refusal(file, [Problem(("environment",), str(error))]) from None


def _in_todays_keys(file: YamlFile) -> YamlFile:
    """The file with its old names of keys and other spellings replaced."""
    for old, new in OLD_NAMES.items():
        if isinstance(file.content, dict) and old in file.content:
            if new in file.content:
                raise refusal(
                    file,
                    [
                        Problem(
                            (old,), f"is the old name of {new}, which is there too; keep {new} only"
                        )
                    ],
                )
            if file.root is not None:
                warn(
                    f"{file.place((old,))}: {old}: is called {new} now; rename it",
                    OldName,
                    stacklevel=4,
                )
            file = file.moved((old,), (new,))

    for above, section in (((), Command), (("resources",), Resources)):
        for name, path in section.spellings.items():
            part = file.content
            for step in above:
                part = part.get(step) if isinstance(part, dict) else None
            if isinstance(part, dict) and part.get(name) is not None:
                file = file.moved((*above, name), (*above, *path))

    content = file.content
    if isinstance(content, dict) and "kind" not in content:
        said = [kind for kind, names in _SAYING_KIND.items() if not names.isdisjoint(content)]
        return replace(file, content={**content, "kind": str(said[0])}) if len(said) == 1 else file

    return file


def _given(file: YamlFile) -> Given:
    reader = Reader(JobSpec)
    content = file.content
    if isinstance(content, dict):
        content = dict(content)
        if isinstance(env := content.get("env"), dict):
            content["env"] = env | {
                name: text for name, text in file.texts("env").items() if name in env
            }
        if isinstance(made := content.get("trainer"), dict) and len(made) == 1:
            # A framework's function is the job's app, and says how many steps there are.
            content = {"app": next(iter(made.values())), "stop": {}} | content

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
    machines = Range(nodes.least, nodes.most)
    if is_training:
        machines = resources.get("machines", Range(0))
    return {**given, "resources": {**resources, "machines": machines, "reliable": reliable}}


def _location(place: str, folder: Path) -> str:
    if place.startswith(_FILE):
        return str(Path(unquote(place.removeprefix(_FILE))).resolve())
    return place if _HAS_SCHEME.match(place) else str(_path(place, folder))


def _path(place: str, folder: Path) -> Path:
    path = Path(place)
    return (path.expanduser() if place.startswith("~/") else folder / path).resolve()


Schema = dict[str, Any]
T = TypeVar("T")


def schema() -> Schema:
    """The schema, in the dialect of 2020-12."""
    definitions: dict[str, Schema] = {}
    root = _section(JobSpec, definitions)
    for old, new in OLD_NAMES.items():
        renamed = {"description": f"The old name of {new}.", "deprecated": True}
        root["properties"][old] = root["properties"][new] | renamed

    choice = selected(JobSpec)
    assert choice is not None

    # The keys that a file of each kind must have, and those that it must not have.
    keys = {kind: keys_of(section) for kind, section in choice.sections.items()}
    rules = []
    for kind, own in keys.items():
        theirs = chain(*(names for other, names in keys.items() if other != kind))
        others = [name for name in theirs if name not in own]
        needed = [name for name, (first, *_) in own.items() if first.is_needed]
        then = _keys([name for name in needed if name not in _OF_FRAMEWORK], others)
        if "trainer" in own:
            then["anyOf"] = [_keys(["trainer"]), _keys(_OF_FRAMEWORK)]
        rules.append(_where_kind(kind, then))

    rules += _TOGETHER
    rules += [{"not": {"required": [*names]}} for names in OLD_NAMES.items()]
    rules += [{"not": _keys([name, *path])} for name, path in Command.spellings.items()]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        **root,
        "title": "spotctl job",
        "allOf": rules,
    }


def explained(name: str) -> dict[str, Schema]:
    """The schemas of the keys with a name and of those below them, by where they are: `every` is
    checkpoint.every.

    BadRequest: no key has this name.
    """
    whole = schema()
    keys: dict[str, Schema] = {}

    def walk(part: Schema, above: str) -> None:
        for key, value in part["properties"].items():
            keys[f"{above}{key}"] = value
            for shape in (value, *value.get("anyOf", ())):
                if "$ref" in shape:
                    walk(whole["$defs"][shape["$ref"].rpartition("/")[2]], f"{above}{key}.")

    walk(whole, "")
    fitting = [name] if name in keys else [key for key in keys if key.endswith(f".{name}")]
    if not fitting:
        raise BadRequest(
            f"schema: no key is called {name!r}{meant(name, keys)}; spotctl schema lists all"
        )

    return {
        key: value
        for key, value in keys.items()
        if key in fitting or key.rpartition(".")[0] in fitting
    }


def _section(section: type, definitions: dict[str, Schema]) -> Schema:
    keys = keys_of(section)
    schema: Schema = {
        "type": "object",
        "description": (getdoc(section) or "").partition("\n\n")[0],
        "properties": {name: _key(shapes, definitions) for name, shapes in keys.items()},
        "additionalProperties": False,
    }

    choice = selected(section)
    required = [
        name for name, (first, *_) in keys.items() if first.is_needed and first.only_for is None
    ]

    if choice is not None:
        required.remove(choice.selector.name)
        schema["anyOf"] = [
            _keys([name]) for name in (choice.selector.name, *chain(*_SAYING_KIND.values()))
        ]

    if required:
        schema["required"] = required
    if section is Resources:
        schema["allOf"] = [{"not": _keys(Resources.spellings)}]
    return schema | ({"minProperties": 1} if section is Stop else {})


def _key(options: tuple[Key, ...], definitions: dict[str, Schema]) -> Schema:
    first = options[0]
    shapes = _once(_shape(option, definitions) for option in options)
    if not first.is_needed or first.only_for is not None:
        shapes.append({"type": "null"})
    schema = shapes[0] if len(shapes) == 1 else {"anyOf": shapes}

    return {
        **schema,
        "description": " ".join(_once(option.description for option in options)),
        "examples": _once(example for option in options for example in option.examples),
    }


def _once(values: Iterable[T]) -> list[T]:
    """The values without repetitions: two kinds of programs may have a key in common."""
    kept: list[T] = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept


def _shape(key: Key, definitions: dict[str, Schema]) -> Schema:
    shape = key.shape
    if isinstance(shape, Form):
        return dict(shape.schema)
    if isinstance(shape, ListOf):
        least = {} if shape.may_be_empty else {"minItems": 1}
        items = {"type": "array", "items": dict(shape.item.schema), "uniqueItems": True, **least}
        return {"anyOf": [{"const": shape.word}, items]} if shape.word else items
    if isinstance(shape, MapOf):
        values = {str(shape.name.schema["pattern"]): dict(shape.value.schema)}
        return {"type": "object", "patternProperties": values, "additionalProperties": False}

    assert isinstance(shape, type)
    definitions.setdefault(shape.__name__, {})
    definitions[shape.__name__] = _section(shape, definitions)
    return {"$ref": f"#/$defs/{shape.__name__}"}


def _where(key: str, value: str, then: Schema) -> Schema:
    """The schema that applies where a key has this value."""
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _where_kind(kind: str, then: Schema) -> Schema:
    """The schema that applies to a kind of job, whether the file says `kind` or has a key that says
    it.
    """
    said = [
        {"not": {"required": ["kind"]}, **_keys([name])}
        for name in sorted(_SAYING_KIND[ProgramKind(kind)])
    ]
    named = {"properties": {"kind": {"const": kind}}, "required": ["kind"]}
    return {"if": {"anyOf": [named, *said]}, "then": then}


def _keys(needed: Iterable[str], barred: Iterable[str] = ()) -> Schema:
    """A mapping in which some keys must stand, and others must not."""
    said: Mapping[str, Schema] = {name: {"not": {"type": "null"}} for name in needed}
    return {
        "required": [*said],
        "properties": {**said, **{name: {"type": "null"} for name in barred}},
    }


_OF_OTHER_TOOLS = set(
    "any_of backends commands cpus envs file_mounts infra instance_type ordered use_spot".split()
)
"""Keys that tasks of SkyPilot and dstack have, and no job has."""

_SAYING_KIND = {ProgramKind.COMMAND: {"run"}, ProgramKind.AGILEML: {"app", "trainer"}}
"""Keys that tell the kind of a job where the file does not name it."""

_OF_FRAMEWORK = ("app", "stop")
"""Keys that a training needs unless a framework's trainer says them."""

_TOGETHER = (
    {
        "if": {"properties": {"engine": {"const": RAY}}, "required": ["engine"]},
        "else": {"properties": {"resources": _keys(["clouds"])}},
    },
    _where_kind(ProgramKind.AGILEML, {"properties": {"resources": _keys(["machines"])}}),
    _where("objective", Objective.MIN_COST_SLO, _keys(["deadline"])),
    _where("objective", Objective.MAKESPAN_WITHIN_BUDGET, _keys(["budget"])),
    _where("strategy", DEADLINE, _keys(["deadline"])),
)
