"""Frames: what is sent comes back whatever the pieces it arrives in, and data that is not a frame
is refused.
"""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from agileml.errors import BadFrame, Unsendable
from agileml.transport.framing import (
    BufferPool,
    Frame,
    FrameLimits,
    FrameReader,
    encode,
    scratch_for,
)
from tests.agileml.transport.peers import idle_bytes

DTYPES = "?", "i1", "u1", "<i2", "<u2", "<f2", "<i4", "<u4", "<f4", "<i8", "<u8", "<f8"
SMALL = FrameLimits(header_bytes=2000, body_bytes=10_000, arrays=5, dimensions=3, kind_length=8)

arrays = st.sampled_from(DTYPES).flatmap(
    lambda code: hnp.arrays(
        np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=7)
    )
)
messages = st.lists(
    st.tuples(st.text(max_size=20), st.binary(max_size=50), st.lists(arrays, max_size=4)),
    min_size=1,
    max_size=5,
)


def reader(limits: FrameLimits | None = None) -> FrameReader:
    limits = limits or FrameLimits()
    return FrameReader(limits, BufferPool(1 << 24), scratch_for(limits))


def fed(taker: FrameReader, data: bytes, sizes: list[int]) -> list[Frame]:
    """What a reader makes of data that arrives in pieces of these sizes, again and again."""
    frames: list[Frame] = []
    turn = 0
    while data:
        room = taker.room()
        count = min(len(room), len(data), sizes[turn % len(sizes)])
        room[:count] = data[:count]
        frames += taker.took(count)
        data = data[count:]
        turn += 1
    return frames


def raw(
    content: Any,  # noqa: ANN401
    body: bytes = b"",
    body_bytes: int | None = None,
    magic: bytes = b"AgM2",
) -> bytes:
    header = content if isinstance(content, bytes) else msgspec.msgpack.encode(content)
    return (
        struct.pack("<4sIQ", magic, len(header), len(body) if body_bytes is None else body_bytes)
        + header
        + body
    )


def wire(kind: str, header: bytes, carried: list[Any], limits: FrameLimits | None = None) -> bytes:
    pieces, length = encode(kind, header, carried, limits or FrameLimits())
    data = b"".join(pieces)
    assert len(data) == length
    return data


@given(messages, st.lists(st.integers(1, 3000), min_size=1, max_size=5))
def test_messages_survive_any_fragmentation_of_the_stream(
    sent: list[tuple[str, bytes, list[Any]]], sizes: list[int]
) -> None:
    taker = reader()
    data = [wire(*message) for message in sent]
    frames = fed(taker, b"".join(data), sizes)
    assert len(frames) == len(sent)
    assert not taker.unfinished
    for frame, (kind, header, carried), whole in zip(frames, sent, data, strict=True):
        assert (frame.kind, frame.header, frame.nbytes) == (kind, header, len(whole))
        for here, there in zip(frame.arrays, carried, strict=True):
            assert (here.dtype, here.shape) == (there.dtype, there.shape)
            assert here.tobytes() == there.tobytes()
            assert here.flags.writeable
            assert not here.size or here.__array_interface__["data"][0] % 64 == 0


@given(messages, st.data())
def test_a_truncated_stream_is_unfinished(
    sent: list[tuple[str, bytes, list[Any]]], data: st.DataObject
) -> None:
    whole = wire(*sent[0])
    length = data.draw(st.integers(1, len(whole) - 1))
    taker = reader()
    assert fed(taker, whole[:length], [997]) == []
    assert taker.unfinished


def test_large_arrays_are_not_copied() -> None:
    array = np.arange(100_000, dtype=np.float64)
    pieces, _ = encode("k", b"", [array], FrameLimits())
    assert np.shares_memory(np.frombuffer(pieces[-1], np.uint8), array)
    taker = reader()
    data = b"".join(pieces)
    room = taker.room()
    room[:200] = data[:200]
    assert taker.took(200) == []
    place = np.frombuffer(taker.room(), np.uint8)
    taker.room()[:] = data[200:]
    (frame,) = taker.took(len(place))
    assert np.shares_memory(place, frame.arrays[0])
    assert (frame.arrays[0] == array).all()


def test_other_memory_orders_are_converted() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    awkward = [array[:, ::2], array.T, array.astype(">i4"), np.broadcast_to(np.float32(3), (2, 2))]
    (frame,) = fed(reader(), wire("k", b"", awkward), [50])
    for here, there in zip(frame.arrays, awkward, strict=True):
        assert (here == there).all()
        assert here.dtype.str in {"<i4", "<f4"}


@pytest.mark.parametrize(
    "array",
    [
        np.array([object()]),
        np.zeros(2, complex),
        np.zeros(2, "M8[s]"),
        np.array(["text"]),
        np.zeros(2, "i4,i4"),
    ],
)
def test_other_dtypes_cannot_be_sent(array: Any) -> None:  # noqa: ANN401
    with pytest.raises(Unsendable, match="dtype"):
        encode("k", b"", [array], FrameLimits())


@pytest.mark.parametrize(
    ("kind", "header", "carried", "what"),
    [
        ("k" * 9, b"", [], "characters of its kind"),
        ("k", b"x" * 2000, [], "bytes of header"),
        ("k", b"", [np.zeros(10_001, np.uint8)], "bytes of arrays"),
        ("k", b"", [np.zeros(1)] * 6, "6 arrays"),
        ("k", b"", [np.zeros((1, 1, 1, 1))], "dimensions"),
    ],
)
def test_messages_that_the_peer_would_refuse_are_not_sent(
    kind: str, header: bytes, carried: list[Any], what: str
) -> None:
    with pytest.raises(Unsendable, match=what):
        encode(kind, header, carried, SMALL)


HUGE = 1 << 62


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "not a frame"),
        (raw(["k", b"", []], magic=b"AgM3"), "not a frame"),
        (struct.pack("<4sIQ", b"AgM2", 2001, 0), "header of 2,001 bytes"),
        (struct.pack("<4sIQ", b"AgM2", 0xFFFFFFFF, 0), "header of"),
        (struct.pack("<4sIQ", b"AgM2", 10, 10_001), "arrays of 10,001 bytes"),
        (struct.pack("<4sIQ", b"AgM2", 10, (1 << 64) - 1), "arrays of"),
        (raw(b""), "not consist of kind, content and arrays"),
        (raw(b"\xff\xfe"), "not consist of kind"),
        (raw(b"\x91" * 1500), "not consist of kind"),
        (raw(b"\xc0" * 1900), "not consist of kind"),
        (raw({"kind": "k"}), "not consist of kind"),
        (raw(["k", b""]), "not consist of kind"),
        (raw([1, b"", []]), "not consist of kind"),
        (raw(["k" * 9, b"", []]), "a kind of 9 characters"),
        (raw(["k", None, []]), "not consist of kind"),
        (raw(["k", b"", {}]), "not consist of kind"),
        (raw(["k", b"", [["<f4", [0]]] * 6]), "6 arrays"),
        (raw(["k", b"", ["<f4"]]), "not consist of kind"),
        (raw(["k", b"", [["<f4", 3]]]), "not consist of kind"),
        (raw(["k", b"", [["|O", [1]]]], b"12345678"), "dtype '|O'"),
        (raw(["k", b"", [[">f4", [1]]]], b"1234"), "dtype '>f4'"),
        (raw(["k", b"", [["V4", [1]]]], b"1234"), "dtype 'V4'"),
        (raw(["k", b"", [["<f4", [-1]]]]), "shape"),
        (raw(["k", b"", [["<f4", [1.0]]]], b"1234"), "not consist of kind"),
        (raw(["k", b"", [["<f4", [True]]]], b"1234"), "not consist of kind"),
        (raw(["k", b"", [["<f4", [1, 1, 1, 1]]]], b"1234"), "shape"),
        (raw(["k", b"", [["<f4", [HUGE, HUGE]]]]), "more than 10,000 bytes"),
        (raw(["k", b"", [["<f4", [0, HUGE]]]]), "more than 10,000 bytes"),
        (raw(["k", b"", [["<f4", [HUGE, 4]]]], body_bytes=0), "more than 10,000 bytes"),
        (raw(["k", b"", [["<f4", [2]]]], b"1234"), "8 bytes in a body of 4"),
        (raw(["k", b"", []], b"1234"), "0 bytes in a body of 4"),
        (raw(["k", b"", [["<f4", [1]], ["<f4", [1]]]], b"12345678"), "68 bytes in a body of 8"),
    ],
)
def test_invalid_frames_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(BadFrame, match=what.replace("|", r"\|")):
        fed(reader(SMALL), data, [len(data)])


@given(st.binary(min_size=1, max_size=400), st.integers(1, 50))
def test_garbage_is_refused_without_other_effects(garbage: bytes, size: int) -> None:
    for data in (garbage, raw(garbage), raw(["k", b"", []], garbage)):
        try:
            fed(reader(SMALL), data, [size])
        except BadFrame:
            continue


def test_memory_is_allocated_only_after_the_header_was_checked() -> None:
    class Watched(BufferPool):
        taken = 0

        def take(self, size: int) -> Any:  # noqa: ANN401
            self.taken += size
            return super().take(size)

    pool = Watched(0)
    for data in (
        raw(["k", b"", [["<f4", [2000]]]], body_bytes=9000),
        raw(["k", b"", [["|O", [4]]]], body_bytes=32),
    ):
        with pytest.raises(BadFrame):
            fed(FrameReader(SMALL, pool, scratch_for(SMALL)), data, [7])
    assert pool.taken == 0


def test_a_reader_keeps_no_reference_to_delivered_frames() -> None:
    pool = BufferPool(1 << 24)
    limits = FrameLimits()
    taker = FrameReader(limits, pool, scratch_for(limits))
    frames = fed(taker, wire("k", b"", [np.ones(200_000)]), [100_000])
    assert idle_bytes(pool) == 0
    frames.clear()
    assert idle_bytes(pool) > 1_600_000
