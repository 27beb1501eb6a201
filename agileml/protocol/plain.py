"""Values as data: what a job publishes for its nodes, without code and without classes but those of
a list.

A value is a number, a text, bytes or None, or a list that begins with the name of its kind:
`tuple`, `list`, `map`, `path`, or one of the classes below with its fields. Reading makes no other
object, from whatever bytes; a class checks its fields itself.

What must never happen: a class gets into the list whose making runs code that its fields name.
"""

import importlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import msgspec

from agileml.errors import BadArgument, BadInput

_PLACES = {
    "agileml.apps.registry": ("TrainerSource",),
    "agileml.job": ("Convergence", "Stopping", "TrainingJob"),
    "agileml.params.layout": ("ArraySpec", "Layout", "Segment"),
    "agileml.pipeline.optimizers": ("Optimizer",),
    "agileml.pipeline.run.fleet_job": ("ModelSource", "PipelineRole"),
    "agileml.policies.flexrr": ("Reassignment",),
    "agileml.policies.stage": ("Thresholds",),
    "agileml.policies.stragglers": ("Stragglers",),
    "agileml.roles.node": ("JobSettings",),
    "agileml.runtime.attach": ("PublishedJob",),
    "agileml.runtime.node_process": ("TrainerRole",),
    "agileml.runtime.rendezvous": ("FolderRendezvous",),
    "agileml.slowdowns": ("Disrupt", "PowerLaw", "Replay", "SlowServer", "SlowWorker", "Uneven"),
    "agileml.transport.addresses": ("TcpAddress",),
    "agileml.work": ("WorkPlan",),
}
_CLASSES = {name: place for place, names in _PLACES.items() for name in names}


def written(value: object) -> bytes:
    """A value as bytes. Raises BadArgument for one that is not made of data."""
    return msgspec.msgpack.encode(_data_of(value))


def read(content: bytes) -> Any:  # noqa: ANN401 - the value that was written
    """The value of these bytes. Raises BadInput if they are no value."""
    try:
        return _value_of(msgspec.msgpack.decode(content))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise BadInput(f"these are not the bytes of a published job: {error}") from error


def _data_of(value: object) -> object:
    match value:
        case None | bool() | str() | bytes():
            return value
        case int() | float():
            # Also a number of numpy that counts as one of Python.
            return int(value) if isinstance(value, int) else float(value)
        case tuple() | list():
            return [type(value).__name__, *map(_data_of, value)]
        case Mapping():
            return ["map", *([_data_of(key), _data_of(item)] for key, item in value.items())]
        case Path():
            return ["path", str(value)]

    name = type(value).__name__
    if _CLASSES.get(name) != type(value).__module__ or not is_dataclass(value):
        raise BadArgument(
            f"{value!r:.80} cannot be sent to nodes of other computers: use numbers, texts, lists "
            "and maps of them"
        )

    return [
        name,
        *(
            [field.name, _data_of(getattr(value, field.name))]
            for field in fields(value)
            if field.init
        ),
    ]


def _value_of(data: Any) -> Any:  # noqa: ANN401 - whatever was decoded
    if not isinstance(data, list):
        return data

    kind, *rest = data
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](map(_value_of, rest))
    if kind == "path":
        return Path(*rest)

    pairs = {_value_of(name): _value_of(item) for name, item in rest}
    if kind == "map":
        return pairs
    return getattr(importlib.import_module(_CLASSES[kind]), kind)(**pairs)
