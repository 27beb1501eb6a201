"""Messages to frames and back: every value survives, every wrong type is refused."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from agileml.errors import BadMessage, Unsendable
from agileml.transport.codec import Codec


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
