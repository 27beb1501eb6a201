"""The chunks that every clock of a job has.

Chunk boundaries depend on the job and never on the nodes, so that the contribution of a chunk is the same on any node.

Where chunks may be left out, shards rotate: what is dealt out to workers are places, and in every clock each place has
another shard. So a slow machine costs all shards alike, and not always the same. Places have numbers as shards do;
without rotation a place always has the shard of its number. To a worker its places are its shards: it asks for the data
of a place only when it computes.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

from agileml.work.covers import Accepted, Cover, hashed
from agileml.work.ranges import Ranges


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """Shard lengths in items, items of a shard per clock (0: all), and the most items of a chunk.

    With `rotates`, the shard of a place changes with the clock.
    """

    lengths: tuple[int, ...]
    batch: int
    chunk_items: int
    rotates: bool = False

    def rotating(self) -> "WorkPlan":
        """A plan with these chunks, whose shards rotate."""
        return replace(self, rotates=True)

    def shard_at(self, place: int, clock: int) -> int:
        """The shard of a place in a clock: each shard once in as many clocks as there are shards."""
        if not self.rotates:
            return place
        count = len(self.lengths)
        turns, turn = divmod(clock - 1, count)
        return _shuffled(count, turns)[(place + turn) % count]

    def covers_of_shards(self, accepted: Accepted) -> tuple[Cover, ...]:
        """The chunks of a decision by shard instead of by place."""
        shards = ((self.shard_at(place, accepted.clock), first, last) for place, first, last in accepted.covers)
        return tuple(sorted(shards)) if self.rotates else accepted.covers

    def items(self, place: int, clock: int) -> tuple[int, int]:
        """The items that a place has in a clock. Batches cycle through its shard; the last may be shorter."""
        length = self.lengths[self.shard_at(place, clock)]
        if not self.batch or self.batch >= length:
            return 0, length
        batches = -(-length // self.batch)
        low = (clock - 1) % batches * self.batch
        return low, min(length, low + self.batch)

    def items_until(self, clock: int) -> int:
        """The items of all clocks up to this one, of all shards together."""
        return sum(self._shard_items_until(shard, clock) for shard in range(len(self.lengths)))

    def _shard_items_until(self, shard: int, clock: int) -> int:
        length = self.lengths[shard]
        batches = -(-length // self.batch) if 0 < self.batch < length else 1
        rounds, rest = divmod(clock, batches)
        return rounds * length + min(rest * self.batch, length)

    def chunks(self, place: int, clock: int) -> int:
        """Number of chunks at a place in a clock: at least one, so that every shard takes part in every clock."""
        low, high = self.items(place, clock)
        return max(1, -(-(high - low) // self.chunk_items))

    def ranges(self, place: int, clock: int) -> Ranges:
        """All chunks at a place in a clock."""
        return Ranges(((0, self.chunks(place, clock)),))

    def bounds(self, place: int, clock: int, chunk: int) -> tuple[int, int]:
        """The items low..high-1 of a chunk."""
        low, high = self.items(place, clock)
        first = low + chunk * self.chunk_items
        return first, min(high, first + self.chunk_items)

    def accept_all(self, clock: int) -> Accepted:
        """The decision that leaves out no chunk: the only one, and known in advance, without backup workers."""
        return Accepted(clock, tuple((place, 0, self.chunks(place, clock)) for place in range(len(self.lengths))))

    def cover_items(self, clock: int, covers: Iterable[Cover]) -> int:
        """Number of items in these chunks of a clock."""
        return sum(
            max(0, self.bounds(place, clock, last - 1)[1] - self.bounds(place, clock, first)[0])
            for place, first, last in covers
        )

    def scale(self, accepted: Accepted) -> float:
        """By what the sum of the accepted updates is multiplied, so that a step stays one of a whole clock."""
        if accepted.chunks == self.accept_all(accepted.clock).chunks:
            return 1.0
        whole = sum(
            high - low for low, high in (self.items(place, accepted.clock) for place in range(len(self.lengths)))
        )
        return whole / self.cover_items(accepted.clock, accepted.covers)


@lru_cache(maxsize=8)
def _shuffled(count: int, turns: int) -> tuple[int, ...]:
    """The shards in an order that is another one after each turn of all: then no period of a machine meets theirs."""
    return tuple(sorted(range(count), key=lambda shard: hashed(turns, shard, 0)))
