"""Jobs as plain data: only listed classes are made."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from agileml.errors import BadArgument, BadInput
from agileml.runtime.attach import _PLACES, read, written
from agileml.work import WorkPlan
from tests.agileml.runtime.test_attach import in_folder

FORGED = [
    ["system", "true"],
    ["Popen", ["args", "true"]],
    ["WorkPlan", ["no", 1]],
    [],
    [[1]],
    ["map", 3],
]


@pytest.mark.parametrize("data", FORGED, ids=str)
def test_only_classes_of_the_list_are_made(data: object) -> None:
    with pytest.raises(BadInput, match="not the bytes of a published job"):
        read(msgspec.msgpack.encode(data))


def test_what_is_no_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds a WorkPlan, not a job"):
        in_folder(tmp_path, written(WorkPlan((4,), 2, 0)))


def test_an_argument_that_is_no_data_cannot_be_published() -> None:
    with pytest.raises(BadArgument, match="cannot be sent to nodes of other computers"):
        written({"rate": lambda: 3})


def test_every_class_of_the_list_is_where_the_list_says() -> None:
    """A class that has moved could neither be written nor be made."""
    for place, names in _PLACES.items():
        module = import_module(place)
        assert {name: getattr(module, name).__module__ for name in names} == dict.fromkeys(
            names, place
        )
