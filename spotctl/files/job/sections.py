"""Sections of a job file: from one declaration of each key follow reading, writing, errors and the
JSON Schema.

A section is a frozen dataclass whose fields are declared with `key`. Each key has a shape: a form,
a list or mapping of forms, another section, or one of several sections whose keys stand in the
section itself.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, TypeVar, cast

from spotctl.files.job.conversions import meant
from spotctl.files.job.forms import Form
from spotctl.files.yaml_file import Loc, Problem, shown

T = TypeVar("T")
Given = dict[str, Any]
"""The values that a section gives, by field; a section's own are nested."""


@dataclass(frozen=True, eq=False)
class ListOf:
    """A list without repetitions."""

    item: Form
    may_be_empty: bool = False
    word: str = ""
    """A word that may stand for the list, such as `any`."""


@dataclass(frozen=True, eq=False)
class MapOf:
    """A mapping whose names have a form, too."""

    name: Form
    value: Form


@dataclass(frozen=True, eq=False)
class OneOf:
    """The keys of the section that another key selects; those of the other sections are refused."""

    selector: "Key"
    sections: Mapping[str, type]


@dataclass(frozen=True, eq=False)
class Key:
    """A key with the description and the examples that editors and errors show."""

    name: str
    shape: Form | ListOf | MapOf | OneOf | type
    description: str
    examples: tuple[object, ...]
    is_needed: bool = False
    is_secret: bool = False
    """Whether an error must not show the value."""
    misplaced: str = ""
    """The cure where the key stands with another selected section."""
    field: str = ""
    """The name of what it declares in the section's class."""
    only_for: str | None = None
    """The selected section that it belongs to."""


def key(
    shape: Form | ListOf | MapOf | OneOf | type,
    description: str,
    *examples: object,
    name: str = "",
    default: object = None,
    is_needed: bool = False,
    is_secret: bool = False,
    misplaced: str = "",
) -> Any:  # noqa: ANN401 - stands for a field of any type
    """Declares a key that may be left out or be empty, or with `is_needed`, one that every file
    must have.
    """
    metadata = {"key": Key(name, shape, description, examples, is_needed, is_secret, misplaced)}
    if is_needed:
        return dataclasses.field(metadata=metadata)
    if default == {}:
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@cache
def fields_of(section: type) -> Mapping[str, Key]:
    """The declared keys by field."""
    return {
        field.name: dataclasses.replace(
            declared, name=declared.name or field.name, field=field.name
        )
        for field in dataclasses.fields(section)
        if (declared := field.metadata.get("key"))
    }


@cache
def keys_of(section: type) -> Mapping[str, tuple[Key, ...]]:
    """By their names, the keys that may stand in a section, in every spelling. One name may have
    two shapes: a list or a section."""
    keys: list[Key] = []
    for declared in fields_of(section).values():
        shape = declared.shape
        if not isinstance(shape, OneOf):
            keys.append(declared)
            continue
        keys.append(dataclasses.replace(shape.selector, field=shape.selector.name))
        for case, part in shape.sections.items():
            keys += [
                dataclasses.replace(inner, only_for=case)
                for inner in chain(*keys_of(part).values())
            ]

    for name, path in getattr(section, "spellings", {}).items():
        holder = section
        for step in path[:-1]:
            inner = (option.shape for option in fields_of(holder).values() if option.name == step)
            holder = next(shape for shape in inner if isinstance(shape, type))
        spelled = next(option for option in fields_of(holder).values() if option.name == path[-1])
        description = (
            f"Another spelling of {': {'.join(path)}{'}' * (len(path) - 1)}. {spelled.description}"
        )
        keys.append(dataclasses.replace(spelled, name=name, description=description))

    by_name: dict[str, tuple[Key, ...]] = {}
    for declared in keys:
        by_name[declared.name] = (*by_name.get(declared.name, ()), declared)
    return by_name


def selected(section: type) -> OneOf | None:
    """The section's choice among sections, if it has one."""
    shapes = (declared.shape for declared in fields_of(section).values())
    return next((shape for shape in shapes if isinstance(shape, OneOf)), None)


# -- reading ---------------------------------------------------------------------------------------


_GONE = {
    "signed_with": "checkpoints have no signatures; remove it (the policy of the bucket says who may write)"
}
"""Keys that job files had, with what to do now."""


class Reader:
    """Reads sections and collects everything that is wrong with them."""

    def __init__(self, root: type) -> None:
        self.root = root
        self.problems: list[Problem] = []

    def section(self, section: type, written: object, loc: Loc = ()) -> Given:
        """The values that a section gives; collects its problems."""
        if not isinstance(written, dict):
            self._refuse_shape(loc, written, "a mapping")
            return {}

        known = keys_of(section)
        for name in written:
            if name not in known:
                self.problems.append(Problem((*loc, name), self._unknown(loc, section, name)))

        given: Given = {}
        for name, shapes in known.items():
            value = written.get(name)
            fitting = (
                option
                for option in shapes
                if isinstance(option.shape, type) == isinstance(value, dict)
            )
            declared = next(fitting, shapes[0])
            if name in written and (value is not None or declared.is_needed):
                self._read(declared, value, (*loc, name), given)
            elif declared.is_needed and declared.only_for is None:
                self.problems.append(missing((*loc, name), declared))

        self._check_case(section, written, given)
        return given

    def _check_case(self, section: type, written: Mapping[str, object], given: Given) -> None:
        """Collects the keys of sections that another key does not select, and those that the
        selected one lacks.
        """
        choice = selected(section)
        if choice is None or (case := given.get(choice.selector.name)) is None:
            return
        for name, shapes in keys_of(section).items():
            declared = shapes[0]
            for option in shapes:
                if option.only_for in (None, case):
                    declared = option
                    break
            if declared.only_for not in (None, case) and written.get(name) is not None:
                cure = declared.misplaced or f"remove it, or change {choice.selector.name}"
                message = f"is not allowed with {choice.selector.name}: {case}; {cure}"
                self.problems.append(Problem((name,), message))
            if declared.only_for == case and declared.is_needed and name not in written:
                self.problems.append(missing((name,), declared))

    def _read(self, declared: Key, value: object, loc: Loc, given: Given) -> None:
        shape, before = declared.shape, len(self.problems)
        content: object = None
        if isinstance(shape, Form):
            content = self._form(shape, value, loc)
        elif isinstance(shape, ListOf):
            if shape.word and value == shape.word:
                content = (shape.word,)
            elif not isinstance(value, list) or not (value or shape.may_be_empty):
                self._refuse_shape(loc, value, "a list", declared)
            else:
                content = tuple(
                    self._form(shape.item, item, (*loc, i), is_secret=declared.is_secret)
                    for i, item in enumerate(value)
                )
        elif not isinstance(value, dict):
            self._refuse_shape(loc, value, "a mapping", declared)
        elif isinstance(shape, MapOf):
            content = {
                self._form(shape.name, name, (*loc, name)): self._form(
                    shape.value, item, (*loc, name)
                )
                for name, item in value.items()
            }
        else:
            content = self.section(cast("type", shape), value, loc)

        if len(self.problems) == before:
            given[declared.field] = content

    def _form(self, form: Form, value: object, loc: Loc, *, is_secret: bool = False) -> object:
        try:
            if value is None and not form.may_be_empty:
                raise ValueError("is empty")
            return form.read(value)
        except ValueError as error:
            wrong, quoted = str(error), "this entry" if is_secret else shown(value)
            if "{found}" in wrong:
                wrong = wrong.replace("{found}", quoted)
            elif value is not None:
                wrong = f"{quoted} {wrong}"
            self.problems.append(Problem(loc, f"{wrong}; expected {form.expected}"))
            return None

    def _refuse_shape(
        self, loc: Loc, value: object, wanted: str, declared: Key | None = None
    ) -> None:
        is_empty = value is None or value == []
        quoted = "" if declared is not None and declared.is_secret else f", found {shown(value)}"
        said = "is empty" if is_empty else f"expected {wanted}{quoted}"
        cure = "keys with values (spotctl init writes a starter file)"
        if declared is not None:
            cure = example(declared)

        self.problems.append(Problem(loc, f"{said}; write {cure}"))

    def _unknown(self, loc: Loc, section: type, name: object) -> str:
        known, given = list(keys_of(section)), str(name)
        below = [
            option
            for shapes in keys_of(section).values()
            for option in shapes
            if isinstance(option.shape, type)
        ]

        home = None
        for option in below:
            if given in keys_of(cast("type", option.shape)):
                home = option.name
                break
        if given in _GONE:
            return f"unknown key: {_GONE[given]}"

        if loc:
            inside = f" (it belongs below {home}, as in {home}: {{{given}: ...}})" if home else ""
            moved = " (it belongs at the top level)" if given in keys_of(self.root) else ""
            hint = inside or meant(given, known) or moved
            return f"unknown key{hint}; expected one of {', '.join(known)}"
        if home is None and (hint := meant(given, known)):
            return f"unknown key{hint}; spotctl schema lists all keys"

        return (
            "unknown key at the top level; expected "
            f"{f'{home}.{given}' if home else 'one of ' + ', '.join(known)}"
        )


def missing(loc: Loc, declared: Key) -> Problem:
    """A key that must be there and is not."""
    return Problem(loc, f"is missing; write {example(declared)}", is_missing=True)


def example(declared: Key) -> str:
    """The key as it may be written."""
    return flow({declared.name: declared.examples[0]})


def flow(content: Mapping[str, object]) -> str:
    """A mapping as YAML on one line."""
    import yaml

    dumped: str = yaml.safe_dump(
        dict(content), default_flow_style=True, sort_keys=False, width=1000
    )
    return dumped.strip()[1:-1]


# -- building and writing --------------------------------------------------------------------------


def build(section: type[T], given: Given) -> T:
    """The section with given values, and its defaults for the others."""
    values: Given = {}
    for field, declared in fields_of(cast("type", section)).items():
        shape = declared.shape
        if isinstance(shape, OneOf):
            values[field] = build(shape.sections[given[shape.selector.name]], given)
        elif field in given:
            values[field] = build(shape, given[field]) if isinstance(shape, type) else given[field]
    return section(**values)


def written(part: object) -> dict[str, Any]:
    """A section as a file would say it, in values that JSON can hold: without what is empty, but
    with 0 and false.
    """
    content: dict[str, Any] = {}
    for field, declared in fields_of(cast("type", type(part))).items():
        value, shape = getattr(part, field), declared.shape
        if isinstance(shape, OneOf):
            case = next(
                case for case, section in shape.sections.items() if isinstance(value, section)
            )
            content |= {shape.selector.name: str(case), **written(value)}
            continue
        if value is None:
            continue

        said: object
        if isinstance(shape, Form):
            said = shape.write(value)
        elif isinstance(shape, ListOf):
            said = shape.word
            if value != (shape.word,):
                said = [shape.item.write(item) for item in value]
        elif isinstance(shape, MapOf):
            said = {name: shape.value.write(item) for name, item in value.items()}
        else:
            said = written(value)
        if said not in ({}, []):
            content[declared.name] = said

    return content
