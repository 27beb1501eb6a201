"""Encodes frozen dataclasses as frames and decodes them.

The encoding of a class is derived once from its annotations: its fields in order as a JSON list, each array replaced
by its number. Decoding checks every type, because data from a network may be anything.

Fields may be bool, int, float, str, None, enumerations, literals, numpy arrays (`NDArray[np.float32]` is checked),
other dataclasses, `list[...]`, `tuple[...]`, `dict[str, ...]`, unions of these, and Any for what is plain JSON.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Literal, NamedTuple, NoReturn, Union

import numpy as np

from agileml.errors import AgileMLError
from agileml.transport.errors import BadMessage, Unsendable
from agileml.transport.framing import Array, Json

Value = Any
"""The value of a field."""
Arrays = Iterator[tuple[int, Array]]
Write = Callable[[Any, list[Array]], Json]
Read = Callable[[Json, Arrays], Any]


class _Form(NamedTuple):
    """How a type is encoded and decoded. Without `write` the value is valid JSON already."""

    write: Write | None
    read: Read
    python: type


class Codec:
    """The messages of a protocol, each identified by its kind."""

    def __init__(self, messages: Iterable[type] = ()) -> None:
        self._forms: dict[type, _Form] = {}
        self._kinds: dict[type, str] = {}
        self._readers: dict[str, Read] = {}
        for message in messages:
            self.register(message)

    def register(self, message: type, kind: str | None = None) -> None:
        """Adds a dataclass; its kind is the name of the class unless given. Raises TypeError for unsupported fields."""
        kind = kind or message.__name__
        if kind in self._readers:
            raise TypeError(f"kind {kind!r} is already registered")
        if not dataclasses.is_dataclass(message):
            raise TypeError(f"{message.__name__} is not a dataclass")
        self._readers[kind] = self._form(message, message.__name__).read
        self._kinds[message] = kind

    def encode(self, message: object) -> tuple[str, Json, list[Array]]:
        """Kind, header and arrays for `Endpoint.send`. The arrays are not copied."""
        cls = type(message)
        kind = self._kinds.get(cls)
        if kind is None:
            raise Unsendable(f"{cls.__name__} is not a registered message")
        arrays: list[Array] = []
        write = self._forms[cls].write
        assert write is not None
        return kind, write(message, arrays), arrays

    def decode(self, kind: str, header: Json, arrays: list[Array]) -> object:
        """The message of a frame. Raises BadMessage if it is invalid."""
        read = self._readers.get(kind)
        if read is None:
            raise BadMessage(f"unknown message kind {kind!r}")
        left = iter(enumerate(arrays))
        try:
            message = read(header, left)
        except RecursionError as error:
            raise BadMessage(f"{kind}: nested too deeply") from error
        if next(left, None) is not None:
            raise BadMessage(f"{kind}: more arrays than the message uses")
        return message

    # -- supported types -----------------------------------------------------------------------------------------------

    def _form(self, annotation: Value, where: str) -> _Form:
        origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
        generic: dict[object, Callable[[tuple[Value, ...], str], _Form]] = {
            Union: self._union,
            types.UnionType: self._union,
            tuple: self._tuple,
            list: self._list,
            dict: self._dict,
            Literal: _literal,
            np.ndarray: _array,
        }
        if origin in generic:
            return generic[origin](arguments, where)
        if annotation in _SIMPLE:
            return _SIMPLE[annotation]
        if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
            return self._dataclass(annotation)
        if isinstance(annotation, type) and issubclass(annotation, Enum):
            return _enumeration(annotation)
        raise TypeError(f"{where}: fields of type {annotation} are not supported")

    def _dataclass(self, cls: type) -> _Form:
        if cls in self._forms:
            return self._forms[cls]

        # Registered before its fields, so that a class may contain itself.
        def write_later(value: Value, arrays: list[Array]) -> Json:
            return write(value, arrays)

        def read_later(value: Json, arrays: Arrays) -> Value:
            return read(value, arrays)

        self._forms[cls] = _Form(write_later, read_later, cls)
        hints = typing.get_type_hints(cls)
        fields = dataclasses.fields(cls)
        if any(field.kw_only or not field.init for field in fields):
            raise TypeError(f"{cls.__name__}: keyword-only and computed fields are not supported")
        forms = {field.name: self._form(hints[field.name], f"{cls.__name__}.{field.name}") for field in fields}
        write, read = _object_writer(forms), _object_reader(cls, forms)
        self._forms[cls] = _Form(write, read, cls)
        return self._forms[cls]

    def _list(self, arguments: tuple[Value, ...], where: str) -> _Form:
        write, read, _ = self._form(arguments[0], where)

        def read_list(value: Json, arrays: Arrays) -> list[Any]:
            if type(value) is not list:
                _wrong(value, "a list")
            return [read(element, arrays) for element in value]

        if write is None:
            return _Form(None, read_list, list)
        return _Form(lambda value, arrays: [write(element, arrays) for element in value], read_list, list)

    def _tuple(self, arguments: tuple[Value, ...], where: str) -> _Form:
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            form = self._list(arguments[:1], where)
            return _Form(form.write, lambda value, arrays: tuple(form.read(value, arrays)), tuple)
        forms = [self._form(argument, where) for argument in arguments]
        reads = [form.read for form in forms]

        def read_tuple(value: Json, arrays: Arrays) -> tuple[Any, ...]:
            if type(value) is not list or len(value) != len(reads):
                _wrong(value, f"a list of {len(reads)}")
            return tuple([read(element, arrays) for read, element in zip(reads, value, strict=True)])

        if all(form.write is None for form in forms):
            return _Form(None, read_tuple, tuple)
        writes = [form.write or _as_it_is for form in forms]
        return _Form(
            lambda value, arrays: [write(element, arrays) for write, element in zip(writes, value, strict=True)],
            read_tuple,
            tuple,
        )

    def _dict(self, arguments: tuple[Value, ...], where: str) -> _Form:
        if arguments[0] is not str:
            raise TypeError(f"{where}: dict keys must be str; {arguments[0]} is not supported")
        write, read, _ = self._form(arguments[1], where)

        def read_dict(value: Json, arrays: Arrays) -> dict[str, Any]:
            if type(value) is not dict:
                _wrong(value, "an object")
            return {key: read(element, arrays) for key, element in value.items()}

        if write is None:
            return _Form(None, read_dict, dict)
        return _Form(
            lambda value, arrays: {key: write(element, arrays) for key, element in value.items()}, read_dict, dict
        )

    def _union(self, arguments: tuple[Value, ...], where: str) -> _Form:
        forms = [self._form(argument, where) for argument in arguments if argument is not types.NoneType]
        inner = forms[0] if len(forms) == 1 else _tagged(forms, where)
        return _optional(inner) if len(forms) < len(arguments) else inner


# -- types without a registry --------------------------------------------------------------------------------------


def _wrong(value: Json, expected: str) -> NoReturn:
    raise BadMessage(f"{type(value).__name__} {str(value)[:40]!r} where {expected} is expected")


def _as_it_is(value: Value, _: list[Array]) -> Json:
    return value


def _scalar(python: type, expected: str) -> _Form:
    def read(value: Json, _: Arrays) -> Value:
        # Not isinstance: a bool is not accepted as an int.
        if type(value) is not python:
            _wrong(value, expected)
        return value

    return _Form(None, read, python)


def _read_float(value: Json, _: Arrays) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        _wrong(value, "a number")
    try:
        return float(value)
    except OverflowError:
        _wrong("an int", "a number of 64 bits")


def _array(arguments: tuple[Value, ...], _: str) -> _Form:
    scalars = typing.get_args(arguments[1]) if len(arguments) == 2 else ()
    scalar = scalars[0] if scalars and issubclass(scalars[0], np.generic) else np.generic

    def write(value: Array, arrays: list[Array]) -> int:
        if not isinstance(value, np.ndarray):
            raise Unsendable(f"{type(value).__name__} where an array is declared")
        arrays.append(value)
        return len(arrays) - 1

    def read(value: Json, arrays: Arrays) -> Array:
        number, array = next(arrays, (None, None))
        if array is None or type(value) is not int or value != number:
            _wrong(value, "the number of the next array")
        if scalar is not np.generic and not issubclass(array.dtype.type, scalar):
            _wrong(array.dtype, f"an array of {scalar.__name__}")
        return array

    return _Form(write, read, np.ndarray)


_SIMPLE: dict[Any, _Form] = {
    bool: _scalar(bool, "true or false"),
    int: _scalar(int, "a whole number"),
    float: _Form(None, _read_float, float),
    str: _scalar(str, "a string"),
    types.NoneType: _scalar(types.NoneType, "null"),
    np.ndarray: _array((), ""),
    Any: _Form(None, _as_it_is, object),  # type: ignore[arg-type]
}


def _literal(values: tuple[Value, ...], _: str) -> _Form:
    known = {(type(value), value) for value in values}

    def read(value: Json, _: Arrays) -> Value:
        if isinstance(value, list | dict) or (type(value), value) not in known:
            _wrong(value, f"one of {', '.join(map(repr, values))}")
        return value

    return _Form(None, read, type(values[0]))


def _enumeration(cls: type[Enum]) -> _Form:
    members = {(type(member.value), member.value): member for member in cls}

    def read(value: Json, _: Arrays) -> Enum:
        member = None if isinstance(value, list | dict) else members.get((type(value), value))
        if member is None:
            _wrong(value, f"a value of {cls.__name__}")
        return member

    return _Form(lambda value, _: value.value, read, cls)


def _optional(form: _Form) -> _Form:
    write, read = form.write, form.read

    def read_optional(value: Json, arrays: Arrays) -> Value:
        return None if value is None else read(value, arrays)

    if write is None:
        return _Form(None, read_optional, form.python)
    return _Form(lambda value, arrays: None if value is None else write(value, arrays), read_optional, types.NoneType)


def _tagged(forms: list[_Form], where: str) -> _Form:
    """A union: the number of the alternative, and the value."""
    numbers = {form.python: number for number, form in enumerate(forms)}
    if len(numbers) < len(forms):
        raise TypeError(f"{where}: alternatives of the same Python type cannot be distinguished")
    writes = [form.write or _as_it_is for form in forms]
    reads = [form.read for form in forms]

    def write(value: Value, arrays: list[Array]) -> Json:
        number = numbers.get(type(value))
        if number is None:
            raise Unsendable(f"{where}: {type(value).__name__} is not one of the declared alternatives")
        return number, writes[number](value, arrays)

    def read(value: Json, arrays: Arrays) -> Value:
        if type(value) is not list or len(value) != 2 or type(value[0]) is not int or not 0 <= value[0] < len(reads):
            _wrong(value, "an alternative and its value")
        return reads[value[0]](value[1], arrays)

    return _Form(write, read, object)


def _object_writer(forms: Mapping[str, _Form]) -> Write:
    names = list(forms)
    fields = attrgetter(*names) if names else (lambda _: ())
    alone = len(names) == 1
    special = [(number, form.write) for number, form in enumerate(forms.values()) if form.write is not None]

    def write(value: Value, arrays: list[Array]) -> list[Json]:
        written = [fields(value)] if alone else list(fields(value))
        for number, write_field in special:
            written[number] = write_field(written[number], arrays)
        return written

    return write


def _object_reader(cls: type, forms: Mapping[str, _Form]) -> Read:
    names = list(forms)
    reads = [form.read for form in forms.values()]

    def read(value: Json, arrays: Arrays) -> Value:
        if type(value) is not list or len(value) != len(reads):
            _wrong(value, f"the {len(reads)} fields of {cls.__name__}")
        fields: list[Any] = []
        try:
            for read_field, element in zip(reads, value, strict=True):
                fields.append(read_field(element, arrays))
        except BadMessage as error:
            raise BadMessage(f"{cls.__name__}.{names[len(fields)]}: {error}") from error
        try:
            return cls(*fields)
        except (AgileMLError, ValueError, TypeError) as error:
            raise BadMessage(f"{cls.__name__}: {error}") from error

    return read
