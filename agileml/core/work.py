"""The work of a job: which chunks make up a clock, whatever the number of nodes.

Chunk boundaries are fixed by the job and never by a node, so that the contribution of a chunk is the same whoever
computes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from agileml.protocol.messages import Cover

FINGERPRINT_MASK = (1 << 61) - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Shard lengths in items; how many items of a shard a clock takes (0: all); how many items a chunk has at most."""

    lengths: tuple[int, ...]
    batch: int
    chunk_items: int

    def items(self, shard: int, clock: int) -> tuple[int, int]:
        """The items of a shard that belong to a clock; batches go round the shard, the last may be shorter."""
        length = self.lengths[shard]
        if not self.batch or self.batch >= length:
            return 0, length
        batches = -(-length // self.batch)
        low = (clock - 1) % batches * self.batch
        return low, min(length, low + self.batch)

    def chunks(self, shard: int, clock: int) -> int:
        """How many chunks a shard has in a clock: at least one, so that every shard takes part in every clock."""
        low, high = self.items(shard, clock)
        return max(1, -(-(high - low) // self.chunk_items))

    def bounds(self, shard: int, clock: int, chunk: int) -> tuple[int, int]:
        """The items of a chunk."""
        low, high = self.items(shard, clock)
        first = low + chunk * self.chunk_items
        return first, min(high, first + self.chunk_items)

    def total(self, clock: int) -> int:
        """Chunks of all shards in a clock."""
        return sum(self.chunks(shard, clock) for shard in range(len(self.lengths)))

    def expected_fingerprint(self, clocks: Iterable[int]) -> int:
        """What the fingerprint of a state must be that contains these clocks whole and once."""
        whole = ((shard, 0, self.chunks(shard, clock), clock) for clock in clocks for shard in range(len(self.lengths)))
        return (
            sum(cover_fingerprint(clock, (shard, first, last)) for shard, first, last, clock in whole)
            & FINGERPRINT_MASK
        )


@lru_cache(maxsize=1 << 14)
def cover_fingerprint(clock: int, cover: Cover) -> int:
    """Sum over the cover's chunks of a number that is, for all practical purposes, the chunk's own."""
    shard, first, last = cover
    return sum(_mix(clock, shard, chunk) for chunk in range(first, last)) & FINGERPRINT_MASK


def _mix(clock: int, shard: int, chunk: int) -> int:
    word = (clock * 0x9E3779B97F4A7C15 + shard * 0xC2B2AE3D27D4EB4F + chunk * 0x165667B19E3779F9) & (1 << 64) - 1
    word = (word ^ word >> 31) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    word = (word ^ word >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return (word ^ word >> 30) & FINGERPRINT_MASK


class Coverage:
    """Which chunks of a clock have arrived; one that comes twice is an error, never added twice."""

    def __init__(self) -> None:
        self._covers: dict[int, list[tuple[int, int]]] = {}
        self.chunks = 0

    def clash(self, covers: Iterable[Cover]) -> Cover | None:
        """The first of these covers that overlaps what is there."""
        for shard, first, last in covers:
            for low, high in self._covers.get(shard, ()):
                if first < high and low < last:
                    return shard, first, last
        return None

    def add(self, covers: Iterable[Cover]) -> None:
        """Take up covers that do not clash."""
        for shard, first, last in covers:
            self._covers.setdefault(shard, []).append((first, last))
            self.chunks += last - first

    def covers(self) -> list[Cover]:
        """Everything taken up."""
        return [(shard, first, last) for shard, spans in self._covers.items() for first, last in spans]
