"""Deltas: both forms give the same bits as sums over dense arrays in the given order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, strategies as st

from agileml.params.deltas import (
    ADD,
    AGGREGATIONS,
    MAX,
    Aggregation,
    Delta,
    RowDelta,
    accumulate,
    aggregate,
    assign_into,
    assigned,
    dense,
    inner,
    nbytes,
)
from agileml.params.layout import Array, PartitionState
from tests.agileml.models import DTYPES, numbers, same_bits, seeds

aggregations = st.sampled_from(list(AGGREGATIONS.values()))


def random_state(rng: np.random.Generator) -> PartitionState:
    return [
        numbers(rng, (int(rng.integers(1, 9)), int(rng.integers(1, 4))), dtype) for dtype in DTYPES
    ]


def random_delta(rng: np.random.Generator, state: PartitionState) -> Delta:
    return [random_part(rng, array) for array in state]


def random_part(rng: np.random.Generator, array: Array) -> RowDelta | None:
    form = rng.integers(4)
    if form == 0:
        return None
    if form == 1:
        return RowDelta(None, numbers(rng, array.shape, array.dtype.str))
    rows = np.sort(rng.permutation(len(array))[: rng.integers(1, len(array) + 1)]).astype(np.int32)
    return RowDelta(rows, numbers(rng, (len(rows), *array.shape[1:]), array.dtype.str))


def brute_force(state: PartitionState, deltas: Sequence[Delta], by: Aggregation) -> PartitionState:
    """Number by number, in Python."""
    after = [array.copy() for array in state]
    for index, array in enumerate(after):
        for row in range(len(array)):
            for delta in deltas:
                part = delta[index]
                if part is None:
                    continue
                rows = list(range(len(array))) if part.rows is None else part.rows.tolist()
                if row in rows:
                    array[row] = by.ufunc(array[row], part.values[rows.index(row)])
    return after


def equal(one: PartitionState, other: PartitionState) -> bool:
    return all(same_bits(a, b) for a, b in zip(one, other, strict=True))


@given(seeds, aggregations, st.integers(1, 5))
def test_accumulating_and_aggregating_equal_brute_force(
    seed: int, by: Aggregation, count: int
) -> None:
    rng = np.random.default_rng(seed)
    state = random_state(rng)
    deltas = [random_delta(rng, state) for _ in range(count)]
    untouched = [dense(state, delta, by) for delta in deltas]
    nothing = dense(state, None, by)
    expected = brute_force(nothing, deltas, by)
    total = reduce(lambda one, other: accumulate(one, other, by), deltas, None)
    at_once = aggregate(deltas, by)
    assert at_once is not None
    assert total is not None
    for one, other in zip(at_once, total, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert (one.rows is None) == (other.rows is None)
            assert one.rows is None or other.rows is None or same_bits(one.rows, other.rows)
            assert same_bits(one.values, other.values)
    assert equal(dense(state, total, by), expected)
    assert equal(nothing, dense(state, None, by))
    # The inputs are unmodified.
    assert all(
        equal(before, dense(state, delta, by))
        for before, delta in zip(untouched, deltas, strict=True)
    )


@given(seeds, aggregations)
def test_sparse_and_dense_deltas_give_the_same_bits(seed: int, by: Aggregation) -> None:
    rng = np.random.default_rng(seed)
    state = random_state(rng)
    delta = random_delta(rng, state)
    spelled_out: Delta = [RowDelta(None, array) for array in dense(state, delta, by)]
    sums = [
        accumulate([RowDelta(None, array.copy()) for array in state], one, by)
        for one in (delta, spelled_out)
    ]
    assert equal(*(dense(state, total, by) for total in sums))


@given(seeds)
def test_rows_are_replaced_in_a_copy_as_in_place(seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = random_state(rng)
    before = [array.copy() for array in state]
    values = random_delta(rng, state)
    after = assigned(state, values)
    assert equal(state, before)
    assign_into(state, values)
    assert equal(state, after)


def test_a_replaced_state_shares_what_did_not_change() -> None:
    state = [np.zeros(3), np.zeros(3)]
    after = assigned(state, [None, RowDelta(np.array([1], np.int32), np.array([5.0]))])
    assert after[0] is state[0]
    assert after[1].tolist() == [0, 5, 0]
    assert not state[1].any()


def test_values_of_every_row_make_a_state() -> None:
    values = np.arange(3.0)
    assert assigned([], [RowDelta(None, values)])[0] is values


def test_the_order_of_summation_changes_the_bits() -> None:
    rng = np.random.default_rng(5)
    state = [np.zeros((100, 4), np.float32)]
    deltas: list[Delta] = [[RowDelta(None, numbers(rng, (100, 4), "<f4"))] for _ in range(16)]
    in_order = reduce(accumulate, deltas, None)
    shuffled = reduce(accumulate, [deltas[place] for place in rng.permutation(16)], None)
    one, other = dense(state, in_order)[0], dense(state, shuffled)[0]
    assert not same_bits(one, other)
    assert np.allclose(one, other, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("by", "dtype", "identity"),
    [(ADD, "<f4", "-0.0"), (MAX, "<f8", "-inf"), (MAX, "<i4", "-2147483648")],
)
def test_identities(by: Aggregation, dtype: str, identity: str) -> None:
    assert str(by.identity(np.dtype(dtype))) == identity


def test_empty_deltas_aggregate_to_empty_deltas() -> None:
    assert aggregate([]) is None
    assert aggregate([[None], [None]]) == [None]
    none = RowDelta(np.empty(0, np.int32), np.empty((0, 2), np.float32))
    (total,) = aggregate([[none], [none]]) or [None]
    assert total is not None
    assert total.rows is not None
    assert same_bits(total.values, none.values)


def test_sizes() -> None:
    delta: Delta = [
        None,
        RowDelta(None, np.zeros((3, 2))),
        RowDelta(np.array([4], np.int32), np.zeros((1, 2))),
    ]
    assert nbytes(delta) == 48 + 16 + 4
    assert nbytes(None) == 0


@given(seeds)
def test_the_inner_product_is_that_of_the_dense_forms(seed: int) -> None:
    rng = np.random.default_rng(seed)
    state = [rng.standard_normal((int(rng.integers(1, 9)), 3)) for _ in range(4)]
    one, other = ([_of_floats(rng, array) for array in state] for _ in range(2))
    parts = zip(dense(state, one), dense(state, other), strict=True)
    assert inner(one, other) == pytest.approx(sum(float((a * b).sum()) for a, b in parts))
    assert inner(one, None) == 0


def _of_floats(rng: np.random.Generator, array: Array) -> RowDelta | None:
    part = random_part(rng, array)
    return part and RowDelta(part.rows, rng.standard_normal(part.values.shape))
