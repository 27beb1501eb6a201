"""Declarations of the arrays of a model."""

from __future__ import annotations

import pytest

from agileml.errors import BadTrainer
from agileml.params.declarations import Declarations
from tests.agileml.toys import Largest, Momentum, Scripted


def test_declarations_are_read() -> None:
    plain = Declarations.of(Scripted())
    assert (plain.name, plain.batch, plain.chunk, plain.apply, plain.slots) == (
        "scripted",
        0,
        None,
        None,
        0,
    )
    assert plain.aggregation.name == "add"
    assert Declarations.of(Momentum()).slots == 2
    assert Declarations.of(Largest()).aggregation.name == "max"


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        (
            {"aggregation": "mean"},
            "scripted: unknown aggregation 'mean'; choose one of add, max, min",
        ),
        (
            {"aggregation": "max", "apply": print},
            "scripted: apply must be a method, and needs the aggregation 'add'",
        ),
        ({"apply": 3}, "scripted: apply must be a method"),
        ({"chunk": 0}, "scripted: chunk is 0; it must be a whole number of at least 1"),
        ({"batch": 2.5}, "scripted: batch is 2.5"),
        ({"slots": -1}, "scripted: slots is -1; it must be a whole number of at least 0"),
    ],
)
def test_declarations_are_checked(declared: dict[str, object], problem: str) -> None:
    trainer = Scripted()
    for name, value in declared.items():
        setattr(trainer, name, value)
    with pytest.raises(BadTrainer, match=problem):
        Declarations.of(trainer)
