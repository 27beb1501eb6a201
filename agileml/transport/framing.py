"""The wire format of messages, and an incremental reader for it.

    magic (4 bytes), header's length (4), body's length (8)      little-endian
    header: MessagePack  [kind, content, [[dtype, shape], ...]]; the content is bytes of its own
    body: the arrays' memory, little-endian, each at a multiple of 64 bytes from the start of the body

Every length is checked against the limits, and the arrays' sizes against the body's, before memory
is allocated.
"""

from __future__ import annotations

import math
import struct
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from agileml.errors import BadFrame, Unsendable

ALIGNMENT = 64


_POOLED_FROM = 256 << 10
"""Smaller buffers are not pooled: the allocator reuses them just as well."""


Array = np.ndarray[Any, Any]


Described = tuple[str, tuple[int, ...]]
"""An array's dtype and shape."""


_PREFIX = struct.Struct("<4sIQ")


_MAGIC = b"AgM2"


_READ_AHEAD = 64 << 10
"""One read may receive many small frames. At most this much of a large body is copied; the rest
arrives in place."""


# |V2 carries bfloat16 numbers, for which numpy has no type.
_DTYPES = {
    code: np.dtype(code)
    for code in (
        "|b1",
        "|i1",
        "|u1",
        "<i2",
        "<u2",
        "<f2",
        "<i4",
        "<u4",
        "<f4",
        "<i8",
        "<u8",
        "<f8",
        "|V2",
    )
}


_NOTHING = memoryview(b"")


_PADDING = memoryview(bytes(ALIGNMENT))


_pack = msgspec.msgpack.Encoder().encode


_unpack = msgspec.msgpack.Decoder(tuple[str, bytes, list[Described]]).decode


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """The largest frame that is sent or accepted, and the largest message that is sent in several
    (`buckets`).
    """

    header_bytes: int = 1 << 20
    body_bytes: int = 128 << 20
    message_bytes: int = 1 << 40
    description_bytes: int = 1 << 40
    """The most bytes of a message in several frames besides its arrays: decoded, they take thirty
    times as much."""
    arrays: int = 4096
    dimensions: int = 8
    kind_length: int = 64


class Frame(NamedTuple):
    """A received message. Its arrays share the frame's memory, which lives as long as one of
    them."""

    kind: str
    header: bytes
    arrays: list[Array]
    nbytes: int


def encode(
    kind: str, header: bytes, arrays: Sequence[Array], limits: FrameLimits
) -> tuple[list[memoryview], int]:
    """A frame as pieces of memory, and their total length. Arrays are referred to, not copied."""
    pieces: list[memoryview] = []
    table: list[Described] = []
    length = 0
    for array in arrays:
        memory = carried(array)
        table.append((memory.dtype.str, memory.shape))
        if not memory.nbytes:
            continue
        gap = -length % ALIGNMENT
        if gap:
            pieces.append(_PADDING[:gap])
        pieces.append(memory.data.cast("B"))
        length += gap + memory.nbytes

    head = _pack((kind, header, table))
    checks = (
        ("characters of its kind", len(kind), limits.kind_length),
        ("bytes of header", len(head), limits.header_bytes),
        ("bytes of arrays", length, limits.body_bytes),
        ("arrays", len(table), limits.arrays),
        (
            "dimensions of an array",
            max((len(shape) for _, shape in table), default=0),
            limits.dimensions,
        ),
    )

    for what, count, most in checks:
        if count > most:
            raise Unsendable(
                f"{kind[: limits.kind_length]}: {count:,} {what}, the limit is {most:,}"
            )

    return [
        memoryview(_PREFIX.pack(_MAGIC, len(head), length) + head),
        *pieces,
    ], _PREFIX.size + len(head) + length


def described(array: Array) -> Described:
    """Dtype and shape of an array as it is sent: little-endian. Raises Unsendable for other kinds
    of numbers.
    """
    code = array.dtype.newbyteorder("<").str
    if code not in _DTYPES:
        raise Unsendable(
            f"arrays of dtype {array.dtype} are not supported; these are: {', '.join(_DTYPES)}"
        )
    return code, array.shape


def carried(array: Array) -> Array:
    """An array as it is sent: little-endian and contiguous, copied only if it is not."""
    code = array.dtype.str
    if code not in _DTYPES:
        array = array.astype(described(array)[0])
    # np.ascontiguousarray would give a scalar array one dimension.
    if array.flags.c_contiguous:
        return array
    return array.copy(order="C")


_Placed = tuple[np.dtype[Any], tuple[int, ...], int]
"""Dtype and shape of an array, and its position in the body."""


def _head(
    header: memoryview, body_bytes: int, limits: FrameLimits
) -> tuple[str, bytes, list[_Placed]]:
    """The kind and the content of a header, and where the arrays are in the body."""
    try:
        kind, content, table = _unpack(header)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadFrame(
            f"a header that does not consist of kind, content and arrays ({error})"
        ) from error

    if len(kind) > limits.kind_length:
        raise BadFrame(f"a kind of {len(kind):,} characters, the limit is {limits.kind_length:,}")
    if len(table) > limits.arrays:
        raise BadFrame(f"{len(table):,} arrays, the limit is {limits.arrays:,}")

    places = list[_Placed]()
    end = 0
    for entry in table:
        dtype, shape, size = checked(entry, limits.dimensions, limits.body_bytes)
        offset = end + -end % ALIGNMENT
        places.append((dtype, shape, offset if size else 0))
        end = offset + size if size else end

    if end != body_bytes:
        raise BadFrame(f"arrays of {end:,} bytes in a body of {body_bytes:,}")
    return kind, content, places


def checked(
    entry: Described, dimensions: int, most_bytes: int
) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Dtype, shape and bytes of an array that a peer describes. Raises BadFrame for those that
    cannot be.
    """
    code, shape = entry
    dtype = _DTYPES.get(code)
    if dtype is None:
        raise BadFrame(f"an array of dtype {code[:20]!r}")
    if len(shape) > dimensions or any(extent < 0 for extent in shape):
        raise BadFrame("an array whose shape is not a list of extents")

    # With an extent of 0 the product hides the others, but numpy checks them as well.
    if math.prod(extent or 1 for extent in shape) * dtype.itemsize > most_bytes:
        raise BadFrame(f"an array of more than {most_bytes:,} bytes")
    return dtype, shape, math.prod(shape) * dtype.itemsize


def scratch_for(limits: FrameLimits) -> memoryview:
    """Memory for data between large bodies; all readers of a thread share it."""
    return memoryview(bytearray(_PREFIX.size + limits.header_bytes + _READ_AHEAD))


class FrameReader:
    """Cuts a stream into frames: receive into `room()`, then say with `took()` how much came."""

    def __init__(self, limits: FrameLimits, pool: BufferPool, scratch: memoryview) -> None:
        self._limits = limits
        self._pool = pool
        self._scratch = scratch
        self._rest = b""
        """The begun frame as far as it is here, until its body is received in place."""
        self._needed = _PREFIX.size
        self._begun: Frame | None = None
        """The frame whose arrays are being received in place."""
        self._missing = _NOTHING

    @property
    def unfinished(self) -> bool:
        """Whether a frame has started and not ended."""
        return self._begun is not None or bool(self._rest)

    @property
    def receiving_body(self) -> bool:
        """Whether `room` is the memory of an array, and not that for reading ahead."""
        return self._begun is not None

    def room(self) -> memoryview:
        """The memory for the next bytes; valid until another reader with the same scratch memory is
        used.
        """
        if self._begun is not None:
            return self._missing
        held = len(self._rest)
        self._scratch[:held] = self._rest
        return self._scratch[held : max(self._needed, held + _READ_AHEAD)]

    def took(self, count: int) -> list[Frame]:
        """The frames completed by `count` more bytes in `room()`. Raises BadFrame: the stream is
        then unusable.
        """
        if self._begun is None:
            data = self._scratch[: len(self._rest) + count]
            self._rest = b""
            return self._cut(data)

        self._missing = self._missing[count:]
        if self._missing:
            return []

        frame = self._begun
        self._begun = None
        # Even an empty view would keep the buffer from returning to its pool.
        self._missing = _NOTHING
        return [frame]

    def _cut(self, data: memoryview) -> list[Frame]:
        frames = []
        start = 0
        while self._begun is None and len(data) - start >= _PREFIX.size:
            magic, header_bytes, body_bytes = _PREFIX.unpack_from(data, start)
            if magic != _MAGIC:
                raise BadFrame("data that is not a frame")
            if header_bytes > self._limits.header_bytes:
                raise BadFrame(
                    f"a header of {header_bytes:,} bytes, the limit is "
                    f"{self._limits.header_bytes:,}"
                )
            if body_bytes > self._limits.body_bytes:
                raise BadFrame(
                    f"arrays of {body_bytes:,} bytes, the limit is {self._limits.body_bytes:,}"
                )
            body_at = start + _PREFIX.size + header_bytes
            if body_at > len(data):
                self._needed = body_at - start
                break
            nbytes = _PREFIX.size + header_bytes + body_bytes
            header = data[start + _PREFIX.size : body_at]
            kind, content, places = _head(header, body_bytes, self._limits)
            start = body_at + body_bytes
            body = self._pool.take(body_bytes) if body_bytes else None
            arrays = [np.ndarray(shape, dtype, body, offset) for dtype, shape, offset in places]
            frame = Frame(kind, content, arrays, nbytes)
            here = data[body_at:start]
            if body is not None:
                body.data[: len(here)] = here
            if body is None or len(here) == body_bytes:
                frames.append(frame)
            else:
                self._begun = frame
                self._missing = body.data[len(here) :]

        if self._begun is None:
            self._rest = bytes(data[start:])
            if len(self._rest) < _PREFIX.size:
                self._needed = _PREFIX.size

        return frames


Bytes = NDArray[np.uint8]


def aligned(size: int) -> Bytes:
    """Fresh memory that starts at a multiple of ALIGNMENT."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    offset = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[offset : offset + size]


def capacity_for(size: int) -> int:
    """The size class of a buffer: at most a quarter larger than `size`, so that similar frames
    share a few classes.
    """
    step = 1 << max(size.bit_length() - 3, 0)
    return -(-size // step) * step


class _LentBuffer:
    """Lends a buffer: arrays over it keep this object alive, and its deletion returns the
    buffer."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, buffer: Bytes) -> None:
        self.__array_interface__ = buffer.__array_interface__


class BufferPool:
    """Idle buffers, up to `most_bytes` in total; the least recently used are dropped first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._idle: list[Bytes] = []
        # Any thread may delete an array; appending to a deque and popping from it are safe without
        # a lock.
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

    def _collect(self) -> None:
        while self._returned:
            self._idle.append(self._returned.popleft())
        held = sum(buffer.size for buffer in self._idle)
        while held > self._most_bytes:
            held -= self._idle.pop(0).size
