"""Encodes dataclasses as frames and decodes them, with msgspec's MessagePack.

In a header each array is replaced by its number; the arrays themselves travel in the frame's body.
Decoding checks every type, because data from a network may be anything: a scalar type in an
annotation such as `NDArray[np.float32]` is checked, too. Fields may have any type that msgspec can
check, and numpy arrays.
"""

import dataclasses
import typing
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from agileml.errors import AgileMLError, BadMessage, Unsendable
from agileml.transport.framing import Array


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
