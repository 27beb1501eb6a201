"""Ranges against sets of numbers."""

from __future__ import annotations

from hypothesis import given, strategies as st

from agileml.work import ChunkSpan, Ranges

SPANS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda s: (s[0], s[0] + s[1])), max_size=8
)


def numbers(spans: list[ChunkSpan]) -> set[int]:
    return {number for first, last in spans for number in range(first, last)}


@given(SPANS)
def test_equal_sets_have_equal_spans(spans: list[ChunkSpan]) -> None:
    ranges = Ranges.of(*spans)
    assert list(ranges) == sorted(numbers(spans))
    assert len(ranges) == len(numbers(spans))
    assert ranges == Ranges.of(*((number, number + 1) for number in numbers(spans)))
    assert all(
        last < first for (_, last), (first, _) in zip(ranges.spans, ranges.spans[1:], strict=False)
    )


@given(SPANS, SPANS)
def test_union(one: list[ChunkSpan], other: list[ChunkSpan]) -> None:
    assert set(Ranges.of(*one) | Ranges.of(*other)) == numbers(one) | numbers(other)


@given(SPANS, st.integers(0, 40))
def test_a_number_can_be_removed(spans: list[ChunkSpan], number: int) -> None:
    left = Ranges.of(*spans).without(number)
    assert set(left) == numbers(spans) - {number}
    assert left == Ranges.of(*left.spans)


@given(SPANS, st.integers(0, 40), st.integers(0, 8))
def test_overlap_and_cover(spans: list[ChunkSpan], first: int, count: int) -> None:
    ranges, wanted = Ranges.of(*spans), set(range(first, first + count))
    assert ranges.overlaps(first, first + count) == bool(numbers(spans) & wanted)
    assert ranges.covers(first, first + count) == (wanted <= numbers(spans))


@given(SPANS.filter(numbers))
def test_the_first_number(spans: list[ChunkSpan]) -> None:
    assert Ranges.of(*spans).first == min(numbers(spans))
