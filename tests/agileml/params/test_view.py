"""Reads and updates of a step, compared with dense arrays and one addition at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agileml.errors import BadTrainer, NotFinite
from agileml.params.deltas import ADD, AGGREGATIONS, Aggregation, Delta, dense
from agileml.params.layout import Array, ArraySpec, Layout, Params
from agileml.params.view import NEVER, ChunkView, ParamCache, RowSelection, WriteBack
from tests.agileml.models import numbers, params_of, same_bits, seeds, specs

aggregations = st.sampled_from(list(AGGREGATIONS.values()))
Update = tuple[str, Any, Array]


def filled(params: Params, partitions: int) -> ParamCache:
    cache = ParamCache(Layout.cut(params, partitions))
    for number in range(partitions):
        cache.fill(number, cache.layout.state_of(number, params), 0)
    return cache


def random_update(rng: np.random.Generator, params: Params) -> Update:
    name = str(rng.choice(sorted(params)))
    count = len(params[name])
    form = rng.integers(4)
    rows: Any = None
    numbered = np.arange(count)
    if form == 1:
        rows = slice(
            int(rng.integers(0, count + 1)),
            int(rng.integers(0, count + 2)),
            int(rng.integers(1, 3)),
        )
        numbered = numbered[rows]
    elif form > 1 and count:
        numbered = rng.integers(0, count, int(rng.integers(0, 6)))
        rows = numbered if form == 2 else numbered.tolist()
    return (
        name,
        rows,
        numbers(rng, (len(numbered), *params[name].shape[1:]), params[name].dtype.str),
    )


def brute_force(layout: Layout, updates: Sequence[Update], by: Aggregation) -> Params:
    """The updates applied to whole arrays, one row at a time."""
    totals = layout.allocate()
    for array in totals.values():
        array[...] = by.identity(array.dtype)
    for name, rows, delta in updates:
        array = totals[name]
        numbered = np.arange(len(array))[rows if rows is not None else slice(None)]
        for row, values in zip(numbered, delta, strict=True):
            array[row] = by.ufunc(array[row], values)
    return totals


def spelled_out(layout: Layout, deltas: dict[int, Delta], by: Aggregation) -> Params:
    totals = layout.allocate()
    for number in range(len(layout)):
        layout.place(number, dense(layout.views(number, totals), deltas.get(number), by), totals)
    return totals


def equal(one: Params, other: Params) -> bool:
    return one.keys() == other.keys() and all(same_bits(one[name], other[name]) for name in one)


@given(specs, st.integers(1, 5), seeds, aggregations, st.integers(0, 6))
def test_a_chunk_reads_its_own_updates_and_returns_them(
    specs: tuple[ArraySpec, ...], partitions: int, seed: int, by: Aggregation, count: int
) -> None:
    rng = np.random.default_rng(seed)
    params = params_of(rng, specs)
    cache = filled(params, partitions)
    view = ChunkView(cache, "app", by)
    for clock in (1, 2, 3):  # again and again, on the same memory
        view.begin(clock)
        updates = [random_update(rng, params) for _ in range(count)]
        for number, (name, rows, delta) in enumerate(updates, 1):
            view.update(name, rows, delta)
            own = brute_force(cache.layout, updates[:number], by)
            for each, rows_read in [random_update(rng, params)[:2] for _ in range(2)]:
                selected = rows_read if rows_read is not None else slice(None)
                expected = by.ufunc(params[each][selected], own[each][selected])
                assert same_bits(view.read(each, rows_read), expected)
        assert equal(
            spelled_out(cache.layout, view.own.take(), by), brute_force(cache.layout, updates, by)
        )
        assert equal(cache.arrays, params)


@given(specs, st.integers(1, 5), seeds, aggregations)
@settings(max_examples=50)
def test_chunks_written_back_equal_the_sum_of_their_updates(
    specs: tuple[ArraySpec, ...], partitions: int, seed: int, by: Aggregation
) -> None:
    rng = np.random.default_rng(seed)
    params = params_of(rng, specs)
    cache = filled(params, partitions)
    view, write_back = ChunkView(cache, "app", by), WriteBack(cache.layout, by)
    for clock in (1, 2):
        total = brute_force(cache.layout, [], by)
        for _ in range(4):
            updates = [random_update(rng, params) for _ in range(2)]
            view.begin(clock)
            for name, rows, delta in updates:
                view.update(name, rows, delta)
            write_back.collect(clock, view)
            assert view.own.take() == {}
            chunk = brute_force(cache.layout, updates, by)
            total = {name: by.ufunc(total[name], chunk[name]) for name in total}
        assert equal(spelled_out(cache.layout, write_back.take(clock), by), total)
    assert write_back.take(2) == {}


def test_clocks_are_written_back_separately() -> None:
    cache = filled({"w": np.zeros(8)}, 2)
    view, write_back = ChunkView(cache, "app"), WriteBack(cache.layout)
    for clock, row in ((1, 1), (2, 6), (1, 1)):
        view.begin(clock)
        view.update("w", [row], np.ones(1))
        write_back.collect(clock, view)
    assert spelled_out(cache.layout, write_back.take(1), ADD)["w"].tolist() == [
        0,
        2,
        0,
        0,
        0,
        0,
        0,
        0,
    ]
    assert spelled_out(cache.layout, write_back.take(2), ADD)["w"].tolist() == [
        0,
        0,
        0,
        0,
        0,
        0,
        1,
        0,
    ]
    assert write_back.take(2) == {}
    for clock, row in ((2, 5), (3, 6)):
        view.begin(clock)
        view.update("w", [row], np.ones(1))
        write_back.collect(clock, view)
    assert spelled_out(cache.layout, write_back.take(2), ADD)["w"].tolist() == [
        0,
        0,
        0,
        0,
        0,
        1,
        0,
        0,
    ]


def test_taken_rows_are_relative_to_the_segment_sorted_and_unique() -> None:
    cache = filled({"w": np.zeros((20, 2), np.float32)}, 2)
    view = ChunkView(cache, "app")
    view.begin(1)
    view.update("w", [13, 11, 2, 13], np.ones((4, 2), np.float32))
    harvest = view.own.take()
    first, second = harvest[0][0], harvest[1][0]
    assert first is not None
    assert second is not None
    assert first.rows is not None
    assert second.rows is not None
    assert (first.rows.tolist(), second.rows.tolist()) == ([2], [1, 3])
    assert second.rows.dtype == np.int32
    assert second.values.tolist() == [[1, 1], [2, 2]]


def test_with_more_than_half_of_the_rows_a_delta_is_dense() -> None:
    cache = filled({"w": np.zeros(10)}, 1)
    view = ChunkView(cache, "app")
    for rows, is_dense in ((5, False), (6, True)):
        view.begin(1)
        view.update("w", range(rows), np.ones(rows))
        part = view.own.take()[0][0]
        assert part is not None
        assert (part.rows is None) == is_dense


@pytest.mark.parametrize("rows", [None, slice(0, 3), [0, 1, 2, 3, 4, 5, 6]])
def test_the_caller_owns_the_taken_updates(rows: list[int] | slice | None) -> None:
    view = ChunkView(filled({"w": np.zeros(8)}, 2), "app")
    view.begin(1)
    delta = np.ones(8)[slice(None) if rows is None else rows]
    view.update("w", rows, delta)
    delta[:] = 7
    harvest = view.own.take()
    before = [part.values.copy() for delta_of in harvest.values() for part in delta_of if part]
    view.begin(2)
    view.update("w", None, np.full(8, 9.0))
    after = [part.values for delta_of in harvest.values() for part in delta_of if part]
    assert all(np.array_equal(a, b) and (a <= 1).all() for a, b in zip(before, after, strict=True))


def test_a_failed_chunk_leaves_no_updates() -> None:
    view = ChunkView(filled({"w": np.zeros(8)}, 1), "app")
    for rows in (None, [3]):
        view.begin(1)
        view.update("w", rows, np.ones(8 if rows is None else 1))
        view.begin(1)
        assert not view.read("w").any()
        assert view.own.take() == {}


def test_values_are_read_only() -> None:
    view = ChunkView(filled({"w": np.zeros(8)}, 1), "app")
    view.begin(1)
    for _ in range(2):
        for rows in (None, slice(1, 3), [1]):
            with pytest.raises(ValueError, match="read-only"):
                view.read("w", rows)[0] = 1
        view.update("w", None, np.ones(8))


def test_a_cache_is_as_old_as_its_oldest_partition() -> None:
    params = {"w": np.arange(8.0)}
    cache = ParamCache(Layout.cut(params, 2))
    assert min(cache.clocks) == NEVER
    cache.fill(0, cache.layout.state_of(0, params), 3)
    cache.fill(1, cache.layout.state_of(1, params), 2)
    assert min(cache.clocks) == 2
    view = ChunkView(cache, "app")
    view.begin(1)
    view.update("w", [5], np.ones(1))
    cache.assign(1, view.own.take()[1], 3)
    assert min(cache.clocks) == 3
    assert cache.arrays["w"].tolist() == [0, 1, 2, 3, 4, 1, 6, 7]


@pytest.mark.parametrize(
    ("name", "rows", "delta", "problem"),
    [
        (
            "v",
            None,
            np.ones((4, 2)),
            "app, clock 7, parameter 'v': no such parameter; init returned n, w",
        ),
        (
            "w",
            [0, 4],
            np.ones((2, 2)),
            "app, clock 7, parameter 'w': rows 0 to 4 requested; it has rows 0 to 3",
        ),
        ("w", [-1], np.ones((1, 2)), "rows -1 to -1 requested"),
        (
            "w",
            [0.5],
            np.ones((1, 2)),
            "rows must be a list of whole numbers, a slice or None, not float64",
        ),
        ("w", [True, False], np.ones((2, 2)), "not bool"),
        ("w", 1, np.ones((1, 2)), r"not int64 of shape \(\)"),
        ("w", [1], np.ones(2), r"an update of shape \(2,\) for rows of shape \(1, 2\)"),
        ("w", None, 1.0, r"an update of shape \(\) for rows of shape \(4, 2\)"),
        ("w", [1], np.ones((1, 2), complex), "an update of complex128 for an array of float32"),
        ("n", [1], np.ones(1), "an update of float64 for an array of int64"),
    ],
)
def test_wrong_names_rows_and_shapes_are_refused(
    name: str, rows: RowSelection, delta: Array, problem: str
) -> None:
    view = ChunkView(
        filled({"w": np.zeros((4, 2), np.float32), "n": np.zeros(3, np.int64)}, 2), "app"
    )
    view.begin(7)
    with pytest.raises(BadTrainer, match=problem):
        view.update(name, rows, delta)
    assert view.own.take() == {}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_non_finite_update_is_refused(value: float) -> None:
    view = ChunkView(filled({"w": np.zeros(4)}, 2), "app")
    view.begin(7)
    with pytest.raises(
        NotFinite, match="app, clock 7, parameter 'w': the update holds NaN or infinity"
    ):
        view.update("w", [1], np.array([value]))


def test_an_update_too_large_for_the_parameters_type_is_refused() -> None:
    view = ChunkView(filled({"w": np.zeros(4, np.float32)}, 1), "app")
    view.begin(1)
    with pytest.raises(NotFinite):
        view.update("w", None, np.full(4, 1e300))


def test_a_float64_gradient_is_rounded_to_the_parameters_type() -> None:
    view = ChunkView(filled({"w": np.zeros(4, np.float32)}, 1), "app")
    view.begin(1)
    view.update("w", [1, 1], np.array([0.1, 0.2]))
    assert view.read("w", [1]).tolist() == [np.float32(0.1) + np.float32(0.2)]
