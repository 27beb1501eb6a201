"""Committing a clock: the next version, its changed rows, and the unmodified previous version."""

from __future__ import annotations

import numpy as np
import pytest

from agileml.errors import BadTrainer
from agileml.params.commit import CommitRule, Declarations
from agileml.params.deltas import Delta, RowDelta, assigned
from agileml.params.layout import Layout, PartitionState
from tests.agileml.models import same_bits
from tests.agileml.toys import Decades, Largest, Momentum, Scripted


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


PARAMS = {"dense": np.arange(6.0).reshape(3, 2), "sparse": np.arange(4.0)}


def rule(trainer: Decades, partitions: int = 1) -> CommitRule:
    return CommitRule(Layout.cut(PARAMS, partitions), Declarations.of(trainer))


def part(values: list[float], rows: list[int] | None = None) -> RowDelta:
    return RowDelta(None if rows is None else np.array(rows, np.int32), np.array(values))


def lists(state: PartitionState) -> list[object]:
    return [array.tolist() for array in state]


@pytest.mark.parametrize("summed", [None, [], [None, None]])
def test_an_empty_sum_shares_every_array(summed: Delta | None) -> None:
    state = rule(Decades()).initial(0, PARAMS)
    after, changed = rule(Decades()).advance(0, state, summed, 1)
    assert all(one is other for one, other in zip(state, after, strict=True))
    assert changed == [None, None]


@pytest.mark.parametrize(
    ("trainer", "summed", "expected"),
    [
        (Decades(), [None, part([5, 7], [1, 3])], [0, 6, 2, 10]),
        (Decades(), [None, part([5, 7, 0, 0])], [5, 8, 2, 3]),
        (Largest(), [None, part([5, 1], [1, 3])], [0, 5, 2, 3]),
        (Largest(), [None, part([5, 1, 0, 0])], [5, 1, 2, 3]),
    ],
)
def test_versions_by_hand(trainer: Decades, summed: Delta, expected: list[float]) -> None:
    commit = rule(trainer)
    state = commit.initial(0, PARAMS)
    after, changed = commit.advance(0, state, summed, 1)
    assert after[0] is state[0]
    assert after[1].tolist() == expected
    assert lists(state) == lists(list(PARAMS.values()))
    assert lists(assigned(state, changed)) == lists(after)


def test_slots_follow_the_model_and_count_as_changed() -> None:
    commit = rule(Momentum())
    state = commit.initial(0, PARAMS)
    assert [array.shape for array in state] == [(3, 2), (4,), (3, 2), (3, 2), (4,), (4,)]
    assert lists(commit.model(0, state)) == lists(list(PARAMS.values()))
    summed: Delta = [None, part([8.0], [2])]
    after, changed = commit.advance(0, state, summed, 3)
    # velocity = 0.9 * 0 + 8; the step is half of it.
    assert lists(after)[1:] == [[0, 1, 6, 3], [[0, 0]] * 3, [[3, 3]] * 3, [0, 0, 8, 0], [3] * 4]
    assert not any(array.any() for array in state[2:])
    assert all(
        same_bits(one, other) for one, other in zip(assigned(state, changed), after, strict=True)
    )
    again, _ = commit.advance(0, after, None, 4)
    assert again[4][2] == pytest.approx(7.2)


def test_an_empty_partition_commits() -> None:
    commit = rule(Momentum(), partitions=20)
    empty = next(number for number, segments in enumerate(commit.layout.partitions) if not segments)
    assert commit.advance(empty, commit.initial(empty, PARAMS), None, 1) == ([], [])
