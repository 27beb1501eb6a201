"""Aligned memory for received frames, reused once no array refers to it.

Fresh memory costs a page fault per page, which for large arrays takes as long as the transfer itself. So a large buffer
returns to its pool when the last array over it is deleted.
"""

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
_POOLED_FROM = 256 << 10
"""Smaller buffers are not pooled: the allocator reuses them just as well."""

Bytes = NDArray[np.uint8]


def aligned(size: int) -> Bytes:
    """Fresh memory that starts at a multiple of ALIGNMENT."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    offset = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[offset : offset + size]


def capacity_for(size: int) -> int:
    """The size class of a buffer: at most a quarter larger than `size`, so that similar frames share a few classes."""
    step = 1 << max(size.bit_length() - 3, 0)
    return -(-size // step) * step


class _LentBuffer:
    """Lends a buffer: arrays over it keep this object alive, and its deletion returns the buffer."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, buffer: Bytes) -> None:
        self.__array_interface__ = buffer.__array_interface__


class BufferPool:
    """Idle buffers, up to `most_bytes` in total; the least recently used are dropped first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._idle: list[Bytes] = []
        # Any thread may delete an array; appending to a deque and popping from it are safe without a lock.
        self._returned: deque[Bytes] = deque()

    def take(self, size: int) -> Bytes:
        """Aligned, uninitialized memory of `size` bytes. Only for the thread that owns the pool."""
        if size < _POOLED_FROM or size > self._most_bytes:
            return aligned(size)
        self._collect()
        capacity = capacity_for(size)
        buffer = next((buffer for buffer in reversed(self._idle) if buffer.size == capacity), None)
        if buffer is None:
            buffer = aligned(capacity)
        else:
            self._idle = [other for other in self._idle if other is not buffer]
        lease = _LentBuffer(buffer)
        weakref.finalize(lease, self._returned.append, buffer).atexit = False
        return np.asarray(lease)[:size]

    @property
    def idle_bytes(self) -> int:
        """Bytes of the pool's unused buffers."""
        self._collect()
        return sum(buffer.size for buffer in self._idle)

    def _collect(self) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
        held = sum(buffer.size for buffer in self._idle)
        while held > self._most_bytes:
            held -= self._idle.pop(0).size
