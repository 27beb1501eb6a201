"""Layouts: every row in one partition, nearly equal bytes, the same layout on every node."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given, strategies as st

from agileml.errors import BadArgument, BadTrainer
from agileml.params.layout import ArraySpec, Layout, Params, Segment
from tests.agileml.models import params_of, same_bits, seeds, specs


@given(specs, st.integers(1, 20))
def test_every_row_has_exactly_one_home(specs: tuple[ArraySpec, ...], count: int) -> None:
    layout = Layout.cut(specs, count)
    seen = [
        (s.name, row)
        for partition in layout.partitions
        for s in partition
        for row in range(s.lo, s.hi)
    ]
    assert len(layout) == count
    assert sorted(seen) == sorted((spec.name, row) for spec in specs for row in range(spec.rows))
    assert all(s.rows > 0 for partition in layout.partitions for s in partition)


@given(specs, st.integers(1, 20))
def test_no_partition_is_further_from_its_share_than_a_row(
    specs: tuple[ArraySpec, ...], count: int
) -> None:
    layout = Layout.cut(specs, count)
    share = sum(spec.nbytes for spec in specs) / count
    widest = max(spec.row_bytes for spec in specs)
    assert all(abs(size - share) <= widest for size in layout.partition_bytes())


@given(specs, st.integers(1, 20), seeds)
def test_states_give_the_model_again(specs: tuple[ArraySpec, ...], count: int, seed: int) -> None:
    params = params_of(np.random.default_rng(seed), specs)
    layout = Layout.cut(params, count)
    placed = layout.allocate()
    for number in range(count):
        layout.place(number, layout.state_of(number, params), placed)
    assert all(same_bits(placed[name], params[name]) for name in params)


@given(specs, st.integers(1, 20))
def test_the_order_of_the_arrays_does_not_matter(specs: tuple[ArraySpec, ...], count: int) -> None:
    assert Layout.cut(tuple(reversed(specs)), count) == Layout.cut(specs, count)


def test_a_cut_by_hand() -> None:
    # 6 rows of 8 bytes and 5 of 8: 88 bytes, 29.33 for each of three, that is, rows 0-3, 4-6, 7-10.
    layout = Layout.cut([ArraySpec("b", (5,), "<i8"), ArraySpec("a", (6, 2), "<f4")], 3)
    assert layout.partitions == (
        (Segment("a", 0, 4),),
        (Segment("a", 4, 6), Segment("b", 0, 1)),
        (Segment("b", 1, 5),),
    )
    assert [(partition, index) for partition, index, _ in layout.homes("b")] == [(1, 1), (2, 0)]


def test_fewer_rows_than_partitions_leave_some_empty() -> None:
    layout = Layout.cut({"a": np.zeros((2, 3))}, 5)
    assert sorted(len(partition) for partition in layout.partitions) == [0, 0, 0, 1, 1]


def test_a_state_is_a_copy() -> None:
    params = {"a": np.zeros(4)}
    Layout.cut(params, 1).state_of(0, params)[0][:] = 1
    assert not params["a"].any()


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([1.0], "parameter 'w' is a list; init must return numpy arrays"),
        (np.float64(1.0) * np.ones(()), "parameter 'w' is a float64"),
        (np.array(1.0), "parameter 'w' has no rows"),
        (np.array(["a"]), "parameter 'w' holds <U1; only floats and integers"),
        (
            np.zeros(2, np.longdouble),
            "parameter 'w' holds float128; only floats and integers of up to 64 bits",
        ),
        (np.array([True]), "parameter 'w' holds bool"),
        (np.broadcast_to(np.float32(0), (2**31,)), "parameter 'w' has 2,147,483,648 rows"),
    ],
)
def test_an_array_without_rows_of_numbers_is_refused(value: object, problem: str) -> None:
    with pytest.raises(BadTrainer, match=problem):
        Layout.cut(cast("Params", {"w": value}), 1)


def test_zero_partitions_are_refused() -> None:
    with pytest.raises(BadArgument, match="0 partitions; there must be at least 1"):
        Layout.cut({"a": np.zeros(4)}, 0)
