"""Sparse reads: which rows are learned and cached, and that no others are ever read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from agileml.params.deltas import Delta, Rows
from agileml.params.layout import Array, ArraySpec, Layout
from agileml.params.reads import MAX_PICKED, MissingRows, RowsRead, picked
from agileml.params.rows import RowNumbers
from agileml.params.view import CacheView, ParamCache
from agileml.protocol.actions import WorkUnit
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from tests.agileml.models import params_of, same_bits, seeds, specs
from tests.agileml.schedules import Schedule

# -- what is learned -------------------------------------------------------------------------------


def selections(rng: np.random.Generator, rows: int) -> slice | RowNumbers:
    if rng.random() < 0.3:
        lo, hi = sorted(rng.integers(0, rows + 1, 2))
        return slice(int(lo), int(hi))
    return (
        rng.integers(0, rows, int(rng.integers(0, 4))).astype(np.intp)
        if rows
        else np.empty(0, np.intp)
    )


@given(specs, st.integers(1, 4), seeds)
@settings(max_examples=60)
def test_wanted_rows_are_those_that_were_read(
    specs: tuple[ArraySpec, ...], partitions: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    layout, lengths = Layout.cut(specs, partitions), [3, 0, 5]
    reads, expected = (
        RowsRead(layout, lengths),
        {shard: set[tuple[str, int]]() for shard in range(3)},
    )
    for low in range(5):
        for shard, length in enumerate(lengths):
            if low < max(length, 1):
                note = reads.learning(shard)
                assert note is not None
                assert reads.wanted({shard}) == [None] * partitions
                for spec in specs:
                    selected = selections(rng, spec.rows)
                    note.note(spec.name, selected)
                    expected[shard] |= {
                        (spec.name, int(row)) for row in np.arange(spec.rows)[selected]
                    }
                reads.passed(shard, low, min(low + 1, length))
    assert all(reads.learning(shard) is None for shard in range(3))
    for shards in ({0}, {0, 2}, {1}, set[int]()):
        wanted = reads.wanted(shards)
        assert reads.wanted(set(shards)) is wanted
        union = set().union(*(expected[shard] for shard in shards))
        for segments, rows in zip(layout.partitions, wanted, strict=True):
            for segment, each in zip(segments, rows or [None] * len(segments), strict=True):
                here = [
                    row for row in range(segment.rows) if (segment.name, segment.lo + row) in union
                ]
                width = layout.spec(segment.name).row_bytes
                if len(here) * (width + 4) > MAX_PICKED * segment.rows * width:
                    assert each is None
                elif rows is not None:
                    assert each is not None
                    assert each.tolist() == here
                else:
                    assert segment.rows == 0 or here != [], (
                        "nothing was worth picking, though nothing is read"
                    )


def test_a_shard_is_known_after_a_pass_over_all_items() -> None:
    reads = RowsRead(Layout.cut([ArraySpec("w", (100, 4), "<f4")], 1), [5])
    for low, high in ((0, 2), (2, 4), (0, 2)):
        note = reads.learning(0)
        assert note is not None
        note.note("w", np.array([low]))
        reads.passed(0, low, high)
    assert reads.wanted({0}) == [None]
    reads.passed(0, 4, 5)
    ((rows,),) = reads.wanted({0})  # type: ignore[misc]
    assert rows is not None
    assert rows.tolist() == [0, 2]
    assert reads.wanted({0, 1}) == [None]


def test_partitions_with_missing_rows_are_wanted_whole_until_the_shards_change() -> None:
    reads = RowsRead(Layout.cut([ArraySpec("w", (100, 4), "<f4")], 2), [1, 1])
    for shard in (0, 1):
        note = reads.learning(shard)
        assert note is not None
        note.note("w", np.array([1, 60]))
        reads.passed(shard, 0, 1)
    before = reads.wanted({0})
    reads.distrust({1})
    assert [rows is None for rows in reads.wanted({0})] == [False, True]
    assert [rows is None for rows in before] == [False, False]
    assert [rows is None for rows in reads.wanted({0, 1})] == [False, False]


# -- what is there ---------------------------------------------------------------------------------


@given(specs, st.integers(1, 4), seeds)
@settings(max_examples=60)
def test_only_rows_of_the_latest_snapshot_can_be_read(
    specs: tuple[ArraySpec, ...], partitions: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    layout = Layout.cut(specs, partitions)
    cache = ParamCache(layout)
    view = CacheView(cache, "app")
    there: dict[tuple[str, int], Any] = {}
    for clock in range(4):
        params = params_of(rng, specs)
        for number, segments in enumerate(layout.partitions):
            wanted = [rows_of(rng, segment.rows) for segment in segments] if clock else None
            cache.assign(number, picked(layout.state_of(number, params), wanted), clock)
            for index, segment in enumerate(segments):
                rows = wanted[index] if wanted else None
                known = range(segment.rows) if rows is None else set(rows.tolist())
                for row in range(segment.rows):
                    values = params[segment.name][segment.lo + row] if row in known else None
                    there[segment.name, segment.lo + row] = values
        for spec in specs:
            requested = selections(rng, spec.rows)
            requested_rows = np.arange(spec.rows)[requested]
            absent = [row for row in requested_rows if there[spec.name, row] is None]
            if absent:
                with pytest.raises(MissingRows):
                    view.read(spec.name, requested)
                homes = [(partition, segment) for partition, _, segment in layout.homes(spec.name)]
                lie = {
                    partition
                    for partition, segment in homes
                    for row in absent
                    if segment.lo <= row < segment.hi
                }
                assert cache.missed == lie
                cache.missed.clear()
            else:
                expected = np.zeros((len(requested_rows), *spec.shape[1:]), spec.dtype)
                for place, row in enumerate(requested_rows):
                    expected[place] = there[spec.name, row]
                assert same_bits(view.read(spec.name, requested), expected)


def rows_of(rng: np.random.Generator, count: int) -> Rows | None:
    return None if rng.random() < 0.3 else np.flatnonzero(rng.random(count) < 0.6).astype(np.int32)


# -- chunks that miss ------------------------------------------------------------------------------


# -- in jobs ---------------------------------------------------------------------------------------


class ReadLog:
    """Records every read of every worker: the age of the rows in clocks, and how much was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.oldest, self.missed, self.done = 0, 0, 0
        self.whole, self.some = 0, 0
        self._versions: dict[int, dict[str, Any]] = {}
        self._clock: int | None = None
        for owner, name in ((ChunkRunner, "run"), (ParamCache, "assign"), (CacheView, "read")):
            monkeypatch.setattr(
                owner, name, self._wrapped(getattr(owner, name), getattr(self, f"_{name}"))
            )

    @staticmethod
    def _wrapped(function: Callable[..., Any], around: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: around(function, *given)

    def _run(
        self,
        function: Callable[..., WorkResult],
        chunk_runner: ChunkRunner,
        work: WorkUnit,
        *rest: Any,  # noqa: ANN401
    ) -> WorkResult:
        self._clock = work.clock
        done = function(chunk_runner, work, *rest)
        self._clock = None
        self.missed += bool(done.missed)
        self.done += not done.missed
        return done

    def _assign(
        self,
        function: Callable[..., None],
        cache: ParamCache,
        partition: int,
        values: Delta,
        at: int,
    ) -> None:
        versions = self._versions.setdefault(
            id(cache), {n: np.full(len(a), -9) for n, a in cache.arrays.items()}
        )
        for segment, part in zip(cache.layout.partitions[partition], values, strict=True):
            assert part is not None
            own = versions[segment.name][segment.lo : segment.hi]
            own[slice(None) if part.rows is None else part.rows] = at
        complete = all(part is not None and part.rows is None for part in values)
        self.whole, self.some = self.whole + complete, self.some + (not complete)
        function(cache, partition, values, at)

    def _read(
        self,
        function: Callable[..., Array],
        view: CacheView,
        name: str,
        rows: Any = None,  # noqa: ANN401
    ) -> Array:
        values = function(view, name, rows)
        # The reference run reads, too.
        if self._clock is not None and len(values):
            versions = self._versions[id(view._cache)][name]
            self.oldest = max(
                self.oldest,
                self._clock - 1 - int(versions[slice(None) if rows is None else rows].min()),
            )
        return values


def test_reading_rows_that_are_not_cached_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParamCache, "require", lambda *_: None)
    with pytest.raises(
        AssertionError, match=r"is not (that of the undisturbed run|what it should be)"
    ):
        run_schedules()


def run_schedules() -> None:
    """Several, because some lose everything before training begins."""
    for seed in range(3, 33):
        Schedule(seed).run()
