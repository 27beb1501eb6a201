"""Memory for frames comes back when, and only when, the last array over it is gone."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
from hypothesis import given, strategies as st

from agileml.transport.framing import ALIGNMENT, BufferPool, aligned, capacity_for
from tests.agileml.transport.peers import idle_bytes

SIZE = 1 << 20


def address(array: Any) -> int:  # noqa: ANN401
    return int(array.__array_interface__["data"][0])


def test_memory_is_reused_once_no_view_is_left() -> None:
    pool = BufferPool(4 * SIZE)
    first = pool.take(SIZE)
    place = address(first)
    view = np.ndarray((10,), np.float32, first, 64)[2:5]
    del first
    gc.collect()
    assert idle_bytes(pool) == 0
    other = pool.take(SIZE)
    assert address(other) != place
    view[:] = 7
    del view
    assert idle_bytes(pool) == SIZE
    assert address(pool.take(SIZE)) == place


def test_a_pool_keeps_at_most_its_limit() -> None:
    pool = BufferPool(3 * SIZE)
    held = [pool.take(SIZE) for _ in range(5)]
    held.clear()
    assert idle_bytes(pool) == 3 * SIZE
    big = pool.take(4 * SIZE)
    assert big.size == 4 * SIZE
    del big
    assert idle_bytes(pool) == 3 * SIZE


def test_arrays_may_be_deleted_in_any_thread() -> None:
    pool = BufferPool(64 * SIZE)
    for _ in range(20):
        held = [pool.take(SIZE) for _ in range(8)]
        threads = [threading.Thread(target=held.pop) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert idle_bytes(pool) == 8 * SIZE


@given(st.integers(0, 1 << 22))
def test_memory_is_aligned_and_has_the_requested_size(size: int) -> None:
    for buffer in (aligned(size), BufferPool(1 << 24).take(size)):
        assert buffer.size == size
        assert not size or address(buffer) % ALIGNMENT == 0


@given(st.integers(1, 1 << 40))
def test_size_classes_waste_at_most_a_quarter(size: int) -> None:
    capacity = capacity_for(size)
    assert size <= capacity <= size + size // 4 + 1
    assert capacity_for(capacity) == capacity
