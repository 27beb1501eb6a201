"""Memory that frames are received into, aligned, and used again once nobody looks at it.

Fresh memory costs a page fault for every page, which takes as long as the transfer itself for large arrays. So a large
buffer goes back to its pool when the last array over it is gone.
"""

from __future__ import annotations

import weakref
from collections import deque

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
_POOLED_FROM = 256 << 10
"""Below this size, the allocator's own reuse is as good."""

Bytes = NDArray[np.uint8]


def aligned(size: int) -> Bytes:
    """Fresh memory that begins at a multiple of ALIGNMENT."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    offset = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[offset : offset + size]


def capacity_for(size: int) -> int:
    """The size class of a buffer: at most a quarter more than asked, so that few classes serve similar frames."""
    step = 1 << max(size.bit_length() - 3, 0)
    return -(-size // step) * step


class _Lease:
    """Lends a buffer: the arrays made over it hold this object, whose end brings the buffer back."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, buffer: Bytes) -> None:
        self.__array_interface__ = buffer.__array_interface__


class BufferPool:
    """Buffers waiting for their next frame, at most `most_bytes` of them; the longest unused go first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._idle: list[Bytes] = []
        # Arrays die in any thread; only appending and popping at an end of a deque is safe there without a lock.
        self._returned: deque[Bytes] = deque()

    def take(self, size: int) -> Bytes:
        """Aligned memory of `size` bytes, with anything in it. Only for the thread that owns the pool."""
        if size < _POOLED_FROM or size > self._most_bytes:
            return aligned(size)
        self._collect()
        capacity = capacity_for(size)
        buffer = next((buffer for buffer in reversed(self._idle) if buffer.size == capacity), None)
        if buffer is None:
            buffer = aligned(capacity)
        else:
            self._idle = [other for other in self._idle if other is not buffer]
        lease = _Lease(buffer)
        weakref.finalize(lease, self._returned.append, buffer).atexit = False
        return np.asarray(lease)[:size]

    @property
    def idle_bytes(self) -> int:
        """What the pool holds and nobody uses."""
        self._collect()
        return sum(buffer.size for buffer in self._idle)

    def _collect(self) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
        held = sum(buffer.size for buffer in self._idle)
        while held > self._most_bytes:
            held -= self._idle.pop(0).size
