"""Sums of updates to rows of all types of numbers, against Python's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from agileml.errors import BadTrainer
from agileml.params.layout import ArraySpec
from agileml.params.rows import RowBuffer

INTEGERS = ["<i2", "<i4", "<i8", "<u2", "<u4", "<u8"]


@st.composite
def updates(draw: st.DrawFn) -> tuple[str, list[int], list[int]]:
    dtype = draw(st.sampled_from(INTEGERS))
    limits = np.iinfo(dtype)
    number = st.one_of(
        st.integers(int(limits.min), int(limits.max)),
        st.sampled_from([int(limits.min), int(limits.max), int(limits.max) // 2 + 1, 0, 1]),
    )
    values = draw(st.lists(number, min_size=2, max_size=6))
    return (
        dtype,
        draw(st.lists(st.integers(0, 1), min_size=len(values), max_size=len(values))),
        values,
    )


@given(updates())
def test_sums_of_integers_are_exact_or_refused(made: tuple[str, list[int], list[int]]) -> None:
    """What counts is the sum at the end of a call, not the order of its updates."""
    dtype, rows, values = made
    buffer, limits = RowBuffer(ArraySpec("counts", (2, 1), dtype)), np.iinfo(dtype)
    expected = [
        sum(value for at, value in zip(rows, values, strict=True) if at == row) for row in (0, 1)
    ]
    given_rows, given_values = np.array(rows), np.array(values, dtype=dtype)[:, None]
    if all(limits.min <= total <= limits.max for total in expected):
        buffer.add(given_rows, given_values)
        assert buffer.pending(slice(0, 2))[:, 0].tolist() == expected
    else:
        with pytest.raises(BadTrainer, match="beyond the range"):
            buffer.add(given_rows, given_values)


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_fractions_that_occur_twice_are_added(dtype: str) -> None:
    buffer = RowBuffer(ArraySpec("weights", (2, 2), dtype))
    buffer.add(np.array([0]), np.full((1, 2), 0.5, dtype))
    buffer.add(np.array([0, 1, 0]), np.full((3, 2), 0.25, dtype))
    assert buffer.pending(slice(0, 2)).tolist() == [[1.0, 1.0], [0.25, 0.25]]


def test_an_array_that_is_owned_is_not_copied_and_others_stay_as_they_are() -> None:
    buffer = RowBuffer(ArraySpec("weights", (2, 2), "<f4"))
    first, second = (np.full((2, 2), value, np.float32) for value in (1, 2))
    buffer.add_all(first, owned=True)
    buffer.add_all(second, owned=True)
    assert buffer.pending(slice(0, 2)).base is first
    assert (first == 3).all()
    buffer.clear()
    buffer.add_all(second)
    buffer.add_all(second)
    assert (second == 2).all()
    # What is sent must lie in one piece.
    wide = np.ones((2, 4), np.float32)[:, ::2]
    buffer.clear()
    buffer.add_all(wide, owned=True)
    buffer.add_all(wide)
    assert (wide == 1).all()
