"""Messages to frames and back: every value survives, every wrong type is refused."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from agileml.errors import BadFrame, BadMessage, Unsendable
from agileml.params.deltas import RowDelta
from agileml.protocol import messages
from agileml.transport.codec import BUCKET, Assembly, Codec, Encoded, fits, split
from agileml.transport.framing import FrameLimits, encode


class Stage(Enum):
    ONE = 1
    TWO = 2


@dataclass(frozen=True, slots=True)
class Nothing:
    pass


@dataclass(frozen=True, slots=True)
class Tree:
    value: int
    children: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    rows: NDArray[np.int32] | None
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Everything:
    flag: bool
    count: int
    share: float
    name: str
    nothing: None
    maybe: str | None
    stage: Stage
    mode: Literal["bsp", "ssp", 3]
    pair: tuple[int, str]
    covers: tuple[tuple[int, int, int], ...]
    table: dict[str, list[float]]
    either: int | str | Tree | None
    plain: Any
    tree: Tree
    delta: list[Rows | None]
    state: list[np.ndarray[Any, Any]]
    named: dict[str, tuple[int, NDArray[np.float32]]]


CODEC = Codec([Nothing, Tree, Everything])

whole = st.integers(-(1 << 63), (1 << 63) - 1)
trees = st.recursive(
    st.builds(Tree, whole),
    lambda inner: st.builds(Tree, whole, st.tuples(inner, inner)),
    max_leaves=6,
)
floats = hnp.arrays(np.float32, hnp.array_shapes(max_dims=2, max_side=4))
numbers = st.floats(allow_nan=False)
everything = st.builds(
    Everything,
    flag=st.booleans(),
    count=whole,
    share=numbers,
    name=st.text(),
    nothing=st.none(),
    maybe=st.none() | st.text(),
    stage=st.sampled_from(Stage),
    mode=st.sampled_from(["bsp", "ssp", 3]),
    pair=st.tuples(whole, st.text()),
    covers=st.lists(st.tuples(whole, whole, whole), max_size=3).map(tuple),
    table=st.dictionaries(st.text(), st.lists(numbers, max_size=3), max_size=3),
    either=st.none() | whole | st.text() | trees,
    plain=st.none() | st.lists(whole, max_size=3),
    tree=trees,
    delta=st.lists(
        st.none() | st.builds(Rows, st.none() | hnp.arrays(np.int32, 3), floats), max_size=4
    ),
    state=st.lists(floats, max_size=3),
    named=st.dictionaries(st.text(), st.tuples(whole, floats), max_size=2),
)


def through(message: object, codec: Codec = CODEC) -> Any:  # noqa: ANN401
    kind, header, arrays = codec.encode(message)
    return codec.decode(kind, header, arrays)


def same(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Equal in type and value; arrays: the very same ones."""
    if isinstance(one, np.ndarray):
        return one is other
    if type(one) is not type(other):
        return False
    if dataclasses.is_dataclass(one):
        return all(
            same(getattr(one, each.name), getattr(other, each.name))
            for each in dataclasses.fields(one)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


@given(everything)
def test_every_message_comes_back_as_it_was(message: Everything) -> None:
    assert same(through(message), message)


def test_messages_without_fields_and_special_floats() -> None:
    assert through(Nothing()) == Nothing()
    codec = Codec([WithDefault])
    assert math.isnan(through(WithDefault(math.nan), codec).share)
    assert through(WithDefault(math.inf), codec).share == math.inf
    whole_number = codec.decode("WithDefault", msgspec.msgpack.encode({"share": 3}), [])
    assert isinstance(whole_number, WithDefault)
    assert type(whole_number.share) is float


@dataclass(frozen=True)
class WithDefault:
    share: float


def registered() -> list[type]:
    return [
        each
        for each in vars(messages).values()
        if dataclasses.is_dataclass(each) and isinstance(each, type)
    ]


def test_all_messages_of_the_protocol_are_supported() -> None:
    codec = Codec(registered())
    rows = RowDelta(np.arange(3, dtype=np.int32), np.ones((3, 2), np.float32))
    dense = RowDelta(None, np.ones(5))
    delta = [rows, None, dense]
    push = messages.Push(
        1,
        "w",
        7,
        ((0, 0, 4), (1, 2, 3)),
        (messages.PartitionUpdate(2, (messages.UpdateEntry(0, 1, delta),)),),
        8,
    )
    kind, _, arrays = codec.encode(push)
    assert kind == "Push"
    assert len(arrays) == 3
    assert same(through(push, codec), push)


WRONG: dict[str, list[Any]] = {
    "flag": [1, None, "true"],
    "count": [True, 1.0, None, "1", [1]],
    "share": [True, "1", None],
    "name": [1, None],
    "nothing": [0, False],
    "maybe": [1, []],
    "stage": [3, "ONE", None, [1], True],
    "mode": ["asp", True, [], {}],
    "pair": [[1], [1, "a", 2], ["a", 1], {}, None],
    "covers": [[[1, 2]], [1], 5, None, {"0": [1, 2, 3]}],
    "table": [[], {"a": [None]}, {"a": "1"}],
    "either": [5.5, [0, "a"], True, {"value": "a"}],
    "tree": [
        None,
        [],
        1,
        {"children": []},
        {"value": 1, "children": [2]},
        {"value": 1, "children": [{}]},
    ],
    "delta": [
        None,
        [{}],
        [5],
        [{"rows": 0, "values": 0}],
        [{"rows": "0", "values": 1}],
        [{"rows": 0, "values": True}],
    ],
    "state": [[7], [None], ["0"], [[0]], [0]],
    "named": [{"a": [1]}, {"a": [0, 5]}],
}


def sample() -> tuple[str, dict[str, Any], list[Any]]:
    rows = Rows(np.arange(2, dtype=np.int32), np.ones(2, np.float32))
    kind, header, arrays = CODEC.encode(
        Everything(
            True,
            1,
            0.5,
            "n",
            None,
            None,
            Stage.ONE,
            3,
            (1, "a"),
            ((1, 2, 3),),
            {},
            None,
            None,
            Tree(1),
            [rows],
            [],
            {},
        )
    )
    return kind, msgspec.msgpack.decode(header), arrays


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRONG.items() for value in values]
)
def test_a_wrong_type_is_refused_with_the_field_named(name: str, value: Any) -> None:  # noqa: ANN401
    kind, fields, arrays = sample()
    assert isinstance(CODEC.decode(kind, msgspec.msgpack.encode(fields), arrays), Everything)
    fields[name] = value
    with pytest.raises(BadMessage, match=rf"^Everything\.{name}"):
        CODEC.decode(kind, msgspec.msgpack.encode(fields), arrays)


def test_frames_that_do_not_match_their_message_are_refused() -> None:
    kind, fields, arrays = sample()
    written = msgspec.msgpack.encode
    header = written(fields)
    cases: list[tuple[str, bytes, list[Any], str]] = [
        ("Unknown", header, arrays, "unknown message kind 'Unknown'"),
        (kind, written({**fields, "tree": {}}), arrays, "missing required field `value`"),
        (kind, written({}), arrays, "missing required field `flag`"),
        (kind, written(None), arrays, "Expected `object`"),
        (kind, written([]), arrays, "Expected `object`"),
        (kind, header + b"\0", arrays, "trailing"),
        (kind, b"", arrays, "truncated"),
        (kind, header, arrays[:1], "the number of the next array"),
        (kind, header, [*arrays, arrays[0]], "more arrays"),
        (kind, header, arrays[::-1], "an array of int32, got one of float32"),
    ]
    for bad_kind, bad_header, bad_arrays, what in cases:
        with pytest.raises(BadMessage, match=what):
            CODEC.decode(bad_kind, bad_header, bad_arrays)


names = st.sampled_from([each.name for each in dataclasses.fields(Everything)])


@given(
    st.binary()
    | st.recursive(
        st.none() | whole | st.text(max_size=3),
        lambda x: st.lists(x, max_size=18) | st.dictionaries(names, x),
        max_leaves=40,
    ).map(msgspec.msgpack.encode)
)
def test_no_header_crashes_decoding(header: bytes) -> None:
    for kind in ("Everything", "Tree", "Nothing"):
        try:
            CODEC.decode(kind, header, [])
        except BadMessage:
            continue


def test_a_deeply_nested_header_is_refused() -> None:
    # A tree with one child, which has one child, and so on.
    value, children = msgspec.msgpack.encode("value"), msgspec.msgpack.encode("children")
    header = (b"\x82" + value + b"\1" + children + b"\x91") * 100_000
    with pytest.raises(BadMessage, match="Tree"):
        CODEC.decode("Tree", header, [])


@dataclass(frozen=True)
class Positive:
    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError(f"{self.value} is not positive")


def test_values_that_a_class_itself_refuses_are_refused() -> None:
    with pytest.raises(BadMessage, match="Positive: -1 is not positive"):
        Codec([Positive]).decode("Positive", msgspec.msgpack.encode({"value": -1}), [])


@dataclass
class HasBareClass:
    value: Codec


@dataclass
class HasComplexDeepInside:
    values: dict[str, tuple[list[complex] | None, ...]]


@dataclass
class TwoTuples:
    value: tuple[int, int] | tuple[str, ...]


@dataclass
class TwoClasses:
    value: Tree | Nothing


@pytest.mark.parametrize("cls", [HasBareClass, HasComplexDeepInside, TwoTuples, TwoClasses, int])
def test_an_unsupported_field_is_refused_on_registration(cls: type) -> None:
    with pytest.raises(TypeError):
        Codec([cls])


def test_a_kind_is_registered_once() -> None:
    with pytest.raises(TypeError, match="kind 'Nothing' is already"):
        Codec([Nothing, Nothing])


def test_a_value_of_another_type_is_not_sent() -> None:
    with pytest.raises(Unsendable, match="Positive is not a registered message"):
        CODEC.encode(Positive(1))
    for value in (1 << 70, {1j}, Codec(), np.float64(1.0)):
        with pytest.raises(Unsendable, match="Tree"):
            CODEC.encode(Tree(value))  # type: ignore[arg-type]


LIMITS = FrameLimits(header_bytes=1500, body_bytes=1000, arrays=5, message_bytes=1 << 20)
DTYPES = "?", "u1", "<i2", ">i4", "<f4", "<f8"

arrays = st.sampled_from(DTYPES).flatmap(
    lambda code: hnp.arrays(
        np.dtype(code), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=12)
    )
)
described_messages = st.tuples(
    st.text(max_size=10), st.binary(max_size=4000), st.lists(arrays, max_size=12)
)
sizes = st.integers(65, 3000)


def assembled(frames: list[Encoded], limits: FrameLimits = LIMITS) -> list[Encoded | None]:
    assembly = Assembly(limits)
    return [assembly.add(header, pieces) for _, header, pieces in frames]


@given(described_messages, sizes)
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
