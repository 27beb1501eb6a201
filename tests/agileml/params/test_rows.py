"""Rows are read and added as numpy does it, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from agileml.params.rows import FAST_DTYPES, add_rows, rows_of


@given(
    st.sampled_from(sorted(FAST_DTYPES, key=str)),
    st.sampled_from([(7,), (7, 3), (1, 4), (7, 2, 3), (7, 0)]),
    st.integers(0, 40),
    st.integers(0, 1000),
)
def test_adding_rows_gives_the_same_bits_as_numpy(
    dtype: np.dtype, shape: tuple[int, ...], count: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    array = (rng.standard_normal(shape) * 10.0 ** rng.uniform(-6, 6, shape)).astype(dtype)
    array[rng.random(shape) < 0.3] = -0.0
    rows = rng.integers(0, len(array), count)
    values = (rng.standard_normal((count, *shape[1:])) * 10.0 ** rng.uniform(-6, 6)).astype(dtype)
    expected = array.copy()
    np.add.at(expected, rows, values)
    add_rows(array, rows, values)
    assert array.tobytes() == expected.tobytes()


def test_values_may_be_read_only_and_in_any_order_in_memory() -> None:
    rows = np.array([2, 0, 2])
    for values in (
        np.broadcast_to(np.float32(2), (3, 4)),
        np.ones((4, 3), np.float32).T,
        np.ones((6, 4), "f4")[::2],
    ):
        array, expected = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)
        add_rows(array, rows, values)
        np.add.at(expected, rows, values)
        assert (array == expected).all()


@pytest.mark.parametrize("rows", [slice(1, 3), np.array([3, 0, 3]), np.array([], np.intp)])
def test_rows_are_those_of_numpy(rows: slice | np.ndarray) -> None:
    array = np.arange(12.0).reshape(4, 3)
    assert (rows_of(array, rows) == array[rows]).all()
