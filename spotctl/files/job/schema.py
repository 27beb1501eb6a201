"""The JSON Schema of job files, from which editors complete and check one."""

from collections.abc import Iterable, Mapping
from inspect import getdoc
from typing import Any, TypeVar

from bidbrain.strategies.names import DEADLINE
from spotctl.files.job.forms import Form
from spotctl.files.job.programs import Stop
from spotctl.files.job.sections import Key, ListOf, MapOf, OneOf, keys_of, selected
from spotctl.files.job.spec import OLD_NAMES, JobSpec
from spotctl.files.job.values import RAY, Objective, ProgramKind

Schema = dict[str, Any]
T = TypeVar("T")


def schema() -> Schema:
    """The schema, in the dialect of 2020-12."""
    definitions: dict[str, Schema] = {}
    root = _section(JobSpec, definitions)
    for old, new in OLD_NAMES.items():
        now = root["properties"][new]
        root["properties"][old] = {**now, "description": f"The old name of {new}.", "deprecated": True}
    choice = selected(JobSpec)
    assert choice is not None
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": definitions,
        **root,
        "title": "spotctl job",
        "allOf": [
            *(_case(choice, kind) for kind in choice.sections),
            *_TOGETHER,
            *({"not": {"required": [*names]}} for names in OLD_NAMES.items()),
        ],
    }


def _section(section: type, definitions: dict[str, Schema]) -> Schema:
    keys = keys_of(section)
    schema: Schema = {
        "type": "object",
        "description": (getdoc(section) or "").partition("\n\n")[0],
        "properties": {name: _key(shapes, definitions) for name, shapes in keys.items()},
        "additionalProperties": False,
    }
    required = [name for name, (first, *_) in keys.items() if first.is_needed and first.only_for is None]
    if required:
        schema["required"] = required
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


def _case(choice: OneOf, kind: str) -> Schema:
    """The keys that a file of this kind must have, and those that it must not have."""
    own = keys_of(choice.sections[kind])
    others = [
        name
        for case, section in choice.sections.items()
        for name in keys_of(section)
        if case != kind and name not in own
    ]
    needed = [name for name, (first, *_) in own.items() if first.is_needed]
    return _where(choice.selector.name, kind, _keys(needed, others))


def _where(key: str, value: str, then: Schema) -> Schema:
    """The schema that applies where a key has this value."""
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _keys(needed: Iterable[str], barred: Iterable[str] = ()) -> Schema:
    """A mapping in which some keys must stand, and others must not."""
    said: Mapping[str, Schema] = {name: {"not": {"type": "null"}} for name in needed}
    return {"required": [*said], "properties": {**said, **{name: {"type": "null"} for name in barred}}}


_TOGETHER = (
    {
        "if": {"properties": {"engine": {"const": RAY}}, "required": ["engine"]},
        "else": {"properties": {"resources": _keys(["clouds"])}},
    },
    _where("kind", ProgramKind.AGILEML, {"properties": {"resources": _keys(["machines"])}}),
    _where("objective", Objective.MIN_COST_SLO, _keys(["deadline"])),
    _where("objective", Objective.MAKESPAN_WITHIN_BUDGET, _keys(["budget"])),
    _where("strategy", DEADLINE, _keys(["deadline"])),
)
