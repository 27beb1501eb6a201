"""Messages in buckets: every message comes back whole, no bucket is larger than a frame, nonsense
is refused.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from agileml.errors import BadFrame, Unsendable
from agileml.transport.codec import BUCKET, Assembly, Encoded, fits, split
from agileml.transport.framing import FrameLimits, encode

LIMITS = FrameLimits(header_bytes=1500, body_bytes=1000, arrays=5, message_bytes=1 << 20)
DTYPES = "?", "u1", "<i2", ">i4", "<f4", "<f8"

arrays = st.sampled_from(DTYPES).flatmap(
    lambda code: hnp.arrays(
        np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12)
    )
)
messages = st.tuples(st.text(max_size=10), st.binary(max_size=4000), st.lists(arrays, max_size=12))
sizes = st.integers(65, 3000)


def assembled(frames: list[Encoded], limits: FrameLimits = LIMITS) -> list[Encoded | None]:
    assembly = Assembly(limits)
    return [assembly.add(header, pieces) for _, header, pieces in frames]


@given(messages, sizes)
def test_a_message_comes_back_from_its_buckets(message: Encoded, body: int) -> None:
    limits = FrameLimits(header_bytes=1500, body_bytes=body, arrays=5)
    frames = list(split(message, limits))
    for frame in frames:
        encode(*frame, limits)  # raises Unsendable for a frame over the limits
    if fits(message, limits):
        assert frames == [message]
        return
    assert {kind for kind, _, _ in frames} == {BUCKET}
    *before, whole = assembled(frames, limits)
    assert before == [None] * len(before)
    assert whole is not None
    assert whole[:2] == message[:2]
    for here, there in zip(whole[2], message[2], strict=True):
        assert (here.dtype, here.shape) == (there.dtype.newbyteorder("<"), there.shape)
        assert (here == there).all() or here.tobytes() == there.tobytes()
        assert here.flags.writeable


def test_buckets_are_filled_and_arrays_are_not_copied() -> None:
    array = np.arange(10_000, dtype=np.float32)
    frames = list(split(("k", b"", [array]), LIMITS))
    lengths = [sum(piece.nbytes for piece in pieces) for _, _, pieces in frames]
    assert all(length > 900 for length in lengths[:-1])
    assert all(np.shares_memory(pieces[-1], array) for _, _, pieces in frames)


@pytest.mark.parametrize("dtype", ["M8[s]", "c16", "O"])
def test_other_dtypes_cannot_be_sent(dtype: str) -> None:
    with pytest.raises(Unsendable, match="dtype"):
        list(split(("k", b"", [np.zeros(1000, dtype)]), LIMITS))


def large(value: float, size: int = 1000) -> list[Encoded]:
    return list(split(("k", b"header", [np.full(size, value)]), LIMITS))


def test_a_message_that_was_cut_off_is_dropped_when_another_begins() -> None:
    *_, whole = assembled([*large(1.0)[:3], *large(2.0)])
    assert whole is not None
    assert (whole[2][0] == 2.0).all()


def test_every_bucket_that_is_missing_or_repeated_is_noticed() -> None:
    frames = large(1.0)
    for number in range(1, len(frames) - 1):
        with pytest.raises(BadFrame, match="where byte"):
            assembled(frames[:number] + frames[number + 1 :])
    for number in range(1, len(frames)):
        with pytest.raises(BadFrame, match="where byte"):
            assembled([*frames[: number + 1], *frames[number:]])


def described(table: Any, missing: int = 0, kind: object = "k") -> Encoded:  # noqa: ANN401
    """A first bucket with nothing but a description."""
    description = msgspec.msgpack.encode((kind, b"", table))
    position = (0, len(description), len(description) + missing)
    return BUCKET, msgspec.msgpack.encode(position), [np.frombuffer(description, np.uint8)]


def positioned(*position: object) -> Encoded:
    return BUCKET, msgspec.msgpack.encode(position), [np.zeros(8, np.uint8)]


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        ((BUCKET, b"", []), "without a position"),
        (positioned(0, 8), "without a position"),
        (positioned(0, 8, "9"), "without a position"),
        (positioned(8, 8, 9), "where byte 0 is expected"),
        (positioned(0, 0, 9), "a message of 9 bytes"),
        (positioned(0, -1, 9), "a message of 9 bytes"),
        (positioned(0, 10, 9), "a message of 9 bytes"),
        (positioned(0, 8, 1 << 21), "a message of 2,097,152 bytes, the limit is 1,048,576"),
        (positioned(0, 8, 9), "without a description"),
        (positioned(0, 2, 5), "without a description"),
        ((*positioned(0, 8, 9)[:2], [np.zeros(8, np.int8)]), "does not hold bytes"),
        ((*positioned(0, 8, 9)[:2], [np.zeros((2, 4), np.uint8)]), "does not hold bytes"),
        (described([["<f4", [2]]], 7), "for a message of"),
        (described([["<f4", [2]]], 9), "for a message of"),
        (described([["|O", [2]]], 16), "dtype"),
        (described([["<f4", [-2]]], 8), "shape"),
        (described([["<f4", [1 << 40]]], 8), "an array of more than 1,048,576 bytes"),
        (described([["<f4", [0, 1 << 62]]], 8), "an array of more than 1,048,576 bytes"),
        (described([["<f4", [1] * 9]], 4), "shape"),
        (described([], 0, kind=5), "without a description"),
    ],
)
def test_invalid_buckets_are_refused(frame: Encoded, what: str) -> None:
    with pytest.raises(BadFrame, match=what):
        assembled([frame])


def test_bytes_beyond_the_message_are_refused() -> None:
    kind, header, pieces = described([["<f4", [2]]], 8)
    with pytest.raises(BadFrame, match="more bytes than their message"):
        assembled([(kind, header, [*pieces, np.zeros(9, np.uint8)])])


@given(
    st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=30)), max_size=4),
    st.integers(0, 5),
)
def test_garbage_is_refused_without_other_effects(
    garbage: list[tuple[bytes, bytes]], begun: int
) -> None:
    frames = [(BUCKET, header, [np.frombuffer(piece, np.uint8)]) for header, piece in garbage]
    try:
        assembled([*large(1.0)[:begun], *frames])
    except BadFrame:
        return


def test_positions_follow_each_other() -> None:
    positions = [msgspec.msgpack.decode(header)[0] for _, header, _ in large(1.0)]
    assert all(before < after for before, after in pairwise(positions))
