"""`Ranges`: an immutable set of chunk numbers of one shard in one clock.

The work that a worker still has to do, the chunks that a contribution covers and the chunks that have arrived at a
server are all of this type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ChunkSpan = tuple[int, int]
"""First number, one past the last number."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Numbers as half-open spans: sorted, not empty, with gaps between them, so that equal sets compare equal."""

    spans: tuple[ChunkSpan, ...] = ()

    @classmethod
    def of(cls, *spans: ChunkSpan) -> Ranges:
        """The union of spans in any order; they may overlap or be empty."""
        merged: list[ChunkSpan] = []
        for first, last in sorted(spans):
            if first >= last:
                continue
            if merged and first <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    @property
    def first(self) -> int:
        """The smallest number; IndexError if the set is empty."""
        return self.spans[0][0]

    def __len__(self) -> int:
        return sum(last - first for first, last in self.spans)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.spans:
            yield from range(first, last)

    def __or__(self, other: Ranges) -> Ranges:
        return Ranges.of(*self.spans, *other.spans)

    def __and__(self, other: Ranges) -> Ranges:
        common = [(max(a, c), min(b, d)) for a, b in self.spans for c, d in other.spans]
        return Ranges.of(*common)

    def without(self, number: int) -> Ranges:
        """The set less one number; the same set if it does not contain the number."""
        spans: list[ChunkSpan] = []
        for first, last in self.spans:
            if first <= number < last:
                spans += [span for span in ((first, number), (number + 1, last)) if span[0] < span[1]]
            else:
                spans.append((first, last))
        return Ranges(tuple(spans))

    def overlaps(self, first: int, last: int) -> bool:
        """Whether the set contains a number of first..last-1."""
        return any(max(first, low) < min(last, high) for low, high in self.spans)

    def covers(self, first: int, last: int) -> bool:
        """Whether the set contains all of first..last-1."""
        return first >= last or any(low <= first and last <= high for low, high in self.spans)
