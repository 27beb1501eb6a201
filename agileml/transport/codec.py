"""Encodes dataclasses as frames and decodes them, with msgspec's MessagePack, and cuts messages
larger than a frame.

In a header each array is replaced by its number; the arrays themselves travel in the frame's body.
Decoding checks every type, because data from a network may be anything: a scalar type in an
annotation such as `NDArray[np.float32]` is checked, too. Fields may have any type that msgspec can
check, and numpy arrays.

A message larger than a frame becomes several that are sent one after another, its buckets:

    header of each bucket: MessagePack
        [position of its first byte, bytes of the description, bytes of the message]
    the message: its description, MessagePack [kind, header, [[dtype, shape], ...]],
        and then the arrays' memory

Arrays are cut without being copied, and put together in the memory that the message then uses.
Buckets of a link keep their order, and a message is complete or lost with its link, as one of a
single frame is.
"""

import dataclasses
import typing
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from agileml.errors import AgileMLError, BadFrame, BadMessage, Unsendable
from agileml.transport.framing import (
    ALIGNMENT,
    Array,
    Bytes,
    Described,
    FrameLimits,
    aligned,
    carried,
    checked,
    described,
)


class Codec:
    """The messages of a protocol: dataclasses, each identified by its name, its kind. Used by one
    thread.

    Raises TypeError for a field that cannot be sent.
    """

    def __init__(self, messages: Iterable[type] = ()) -> None:
        self._kinds: dict[type, str] = {}
        self._decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {}
        self._encoder = msgspec.msgpack.Encoder(enc_hook=self._carry)
        self._arrays: list[Array] = []
        self._taken = 0
        messages = list(messages)
        _check_fields(messages)

        for message in messages:
            kind = message.__name__
            if kind in self._decoders:
                raise TypeError(f"kind {kind!r} is already registered")
            if not dataclasses.is_dataclass(message):
                raise TypeError(f"{kind} is not a dataclass")
            self._decoders[kind] = msgspec.msgpack.Decoder(message, dec_hook=self._taken_array)
            self._kinds[message] = kind

    def encode(self, message: object) -> tuple[str, bytes, list[Array]]:
        """Kind, header and arrays for `Endpoint.send`. The arrays are not copied."""
        kind = self._kinds.get(type(message))
        if kind is None:
            raise Unsendable(f"{type(message).__name__} is not a registered message")
        arrays = self._arrays = []
        try:
            return kind, self._encoder.encode(message), arrays
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Unsendable(f"{kind}: {error}") from error

    def decode(self, kind: str, header: bytes, arrays: list[Array]) -> object:
        """The message of a frame. Raises BadMessage if it is invalid."""
        decoder = self._decoders.get(kind)
        if decoder is None:
            raise BadMessage(f"unknown message kind {kind!r}")

        self._arrays = arrays
        self._taken = 0
        try:
            message = decoder.decode(header)
        except (msgspec.DecodeError, AgileMLError, ValueError, TypeError) as error:
            # msgspec's message with the path first: `Push.parts[0].partition: Expected ...`.
            what, _, path = str(error).partition(" - at `$")
            raise BadMessage(f"{kind}{path.rstrip('`')}: {what}") from error
        except RecursionError as error:
            raise BadMessage(f"{kind}: nested too deeply") from error
        finally:
            self._arrays = []

        if self._taken < len(arrays):
            raise BadMessage(f"{kind}: more arrays than the message uses")
        return message

    def _carry(self, value: object) -> int:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"{type(value).__name__} cannot be sent")
        self._arrays.append(value)
        return len(self._arrays) - 1

    def _taken_array(self, annotation: Any, number: object) -> Array:  # noqa: ANN401
        if type(number) is not int or number != self._taken or number >= len(self._arrays):
            raise ValueError("expected the number of the next array")
        array = self._arrays[number]
        self._taken += 1
        scalar = _scalar(annotation)
        if not issubclass(array.dtype.type, scalar):
            raise ValueError(f"expected an array of {scalar.__name__}, got one of {array.dtype}")
        return array


@lru_cache
def _scalar(annotation: Any) -> type[np.generic]:  # noqa: ANN401
    """The scalar type that `NDArray[...]` declares; `np.generic` for any."""
    arguments = typing.get_args(annotation)
    scalars = typing.get_args(arguments[1]) if len(arguments) == 2 else ()
    declared = scalars[0] if scalars else np.generic
    if isinstance(declared, type) and issubclass(declared, np.generic):
        return declared
    return np.generic


def _check_fields(messages: list[type]) -> None:
    """Raises TypeError if a field, at any depth, has a type for which neither msgspec nor this
    codec has a rule.
    """
    seen: set[int] = set()
    # All at once, because they share types, and every process of a job does this when it starts.
    for message, root in zip(messages, msgspec.inspect.multi_type_info(messages), strict=True):
        left: list[object] = [root]
        while left:
            info = left.pop()
            if id(info) in seen:
                continue
            seen.add(id(info))
            if isinstance(info, msgspec.inspect.CustomType):
                if info.cls is not np.ndarray:
                    raise TypeError(
                        f"{message.__name__}: fields of type {info.cls.__name__} are not supported"
                    )
            elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field):
                # `type`, `fields`, `item_types` and so on: whatever holds further types.
                for name in info.__struct_fields__:
                    value = getattr(info, name)
                    left.extend(value if isinstance(value, tuple) else (value,))


BUCKET = "bucket"
"""The kind of a frame that holds a part of a message."""

Encoded = tuple[str, bytes, list[Array]]
"""Kind, header and arrays of a message, as `Endpoint.send` takes them."""

_HEADER_BYTES_PER_ARRAY = 128
"""More than an array's dtype and shape take in a header."""

_pack = msgspec.msgpack.Encoder().encode
_read_position = msgspec.msgpack.Decoder(tuple[int, int, int]).decode
_read_description = msgspec.msgpack.Decoder(tuple[str, bytes, list[Described]]).decode


def split(message: Encoded, limits: FrameLimits) -> Iterator[Encoded]:
    """The frames of a message: itself, or buckets if it is larger than a frame may be."""
    if fits(message, limits):
        yield message
    else:
        kind, header, arrays = message
        description = _pack((kind, header, [described(array) for array in arrays]))
        total = len(description) + sum([array.nbytes for array in arrays])
        start = 0
        flat = (carried(array).reshape(-1).view(np.uint8) for array in arrays)
        for pieces in _cut(chain([np.frombuffer(description, np.uint8)], flat), limits):
            yield BUCKET, _pack((start, len(description), total)), pieces
            start += sum([piece.size for piece in pieces])


def fits(message: Encoded, limits: FrameLimits) -> bool:
    """Whether one frame can hold a message. In doubt it does not."""
    _, header, arrays = message
    count = len(arrays)
    return (
        count <= limits.arrays
        and len(header) + _HEADER_BYTES_PER_ARRAY * (count + 1) <= limits.header_bytes
        and sum([array.nbytes for array in arrays]) + ALIGNMENT * count <= limits.body_bytes
    )


def _cut(memory: Iterable[Array], limits: FrameLimits) -> Iterator[list[Array]]:
    """Pieces of the memory in order, as many at a time as a frame can hold."""
    most = min(limits.arrays, max(1, limits.header_bytes // _HEADER_BYTES_PER_ARRAY - 1))
    pieces: list[Array] = []
    used = 0
    for left in memory:
        while left.size:
            start = used + -used % ALIGNMENT
            if len(pieces) == most or start >= limits.body_bytes:
                yield pieces
                pieces = []
                used = 0
                continue
            piece, left = left[: limits.body_bytes - start], left[limits.body_bytes - start :]  # noqa: PLW2901
            pieces.append(piece)
            used = start + piece.size

    if pieces:
        yield pieces


class Assembly:
    """The messages of one link that arrive in buckets."""

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._begin(0, 0)

    def _begin(self, description_bytes: int, total: int) -> None:
        self._expected = (0, description_bytes, total)
        self._description = bytearray()
        self._message: Encoded | None = None
        self._missing: list[Bytes] = []
        """Memory of arrays that is still to be filled, the next last."""

    def add(self, header: bytes, pieces: Iterable[Array]) -> Encoded | None:
        """The message that this bucket completes, if it does. Raises BadFrame; the link is then
        unusable.
        """
        try:
            position = _read_position(header)
        except msgspec.DecodeError as error:
            raise BadFrame(f"a bucket without a position ({error})") from error

        if position[0] == 0:
            # An earlier message that was not completed is gone.
            _, description_bytes, total = position
            self._begin(description_bytes, total)
            if not 0 < description_bytes <= total <= self._limits.message_bytes:
                raise BadFrame(
                    f"a message of {total:,} bytes, the limit is {self._limits.message_bytes:,}"
                )
            if description_bytes > (most := self._limits.description_bytes):
                raise BadFrame(
                    f"a message described in {description_bytes:,} bytes, the limit is {most:,}"
                )

        if position != self._expected:
            raise BadFrame(
                f"a bucket at byte {position[0]:,} where byte {self._expected[0]:,} is expected"
            )

        for piece in pieces:
            if piece.dtype != np.uint8 or piece.ndim != 1:
                raise BadFrame("a bucket that does not hold bytes")
            self._fill(piece)
            self._expected = (self._expected[0] + piece.size, *self._expected[1:])

        if self._expected[0] < self._expected[2]:
            return None

        message = self._message
        self._begin(0, 0)
        return message

    def _fill(self, piece: Bytes) -> None:
        missing = self._expected[1] - len(self._description)
        if missing:
            self._description += piece[:missing].data
            piece = piece[missing:]
            if len(self._description) < self._expected[1]:
                return

            # The description is complete: the arrays get their memory.
            limits = self._limits
            try:
                kind, header, table = _read_description(self._description)
            except (msgspec.DecodeError, ValueError) as error:
                raise BadFrame(f"a message in buckets without a description ({error})") from error
            entries = [checked(entry, limits.dimensions, limits.message_bytes) for entry in table]
            length = self._expected[1] + sum([size for _, _, size in entries])
            if length != self._expected[2]:
                raise BadFrame(
                    f"buckets of {self._expected[2]:,} bytes for a message of {length:,}"
                )
            try:
                # The system takes memory for large ones only when their bytes arrive.
                memory = [aligned(size) for _, _, size in entries]
            except MemoryError as error:
                raise BadFrame(
                    f"a message of {length:,} bytes, for which there is no memory"
                ) from error
            self._missing = [part for part in reversed(memory) if part.size]
            arrays = [
                np.ndarray(shape, dtype, part)
                for (dtype, shape, _), part in zip(entries, memory, strict=True)
            ]
            self._message = kind, header, arrays

        while piece.size:
            if not self._missing:
                raise BadFrame("buckets with more bytes than their message")
            room = self._missing.pop()
            count = min(room.size, piece.size)
            room[:count] = piece[:count]
            piece = piece[count:]
            if count < room.size:
                self._missing.append(room[count:])
