"""The work on a shard that is left to a worker, and what of its earlier work still counts after a rollback."""

from __future__ import annotations

from collections import UserDict, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from agileml.protocol.messages import UpdateEntry
from agileml.work.counted import CountedWork
from agileml.work.covers import Cover
from agileml.work.plan import WorkPlan
from agileml.work.ranges import ChunkSpan, Ranges

ClockChunks = WorkPlan | CountedWork


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A chunk of a clock."""

    clock: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """The chunks of a shard that are left to compute in its current clock; never empty.

    A chunk leaves the set when it is done: one that missed rows is computed again. A shard changes hands with this set
    (`TakeShard`).
    """

    clock: int
    chunks: Ranges

    @classmethod
    def at(cls, position: Position, shard: int, plan: ClockChunks) -> Remaining:
        """The work from a position on, in the first clock that has any left."""
        left = Ranges(tuple((max(position.chunk, lo), hi) for lo, hi in _spans_from(position, shard, plan)))
        return cls(position.clock, left) if left else cls.at(Position(position.clock + 1, 0), shard, plan)

    @property
    def position(self) -> Position:
        """The chunk to compute next."""
        return Position(self.clock, self.chunks.first)

    def after(self, chunk: int, shard: int, plan: ClockChunks) -> Remaining:
        """The work that is left once a chunk is done: after the last one, the whole of the next clock."""
        left = self.chunks.without(chunk)
        return Remaining(self.clock, left) if left else Remaining.at(Position(self.clock + 1, 0), shard, plan)

    def counted(self, shard: int, plan: ClockChunks) -> Remaining:
        """The part of the work that counts, or else the next clock."""
        left = self.chunks & plan.ranges(shard, self.clock)
        return Remaining(self.clock, left) if left else Remaining.at(Position(self.clock + 1, 0), shard, plan)

    def whole(self, shard: int, plan: ClockChunks) -> bool:
        """Whether no chunk of the clock is done."""
        return self.chunks == plan.ranges(shard, self.clock)


class HeldShards(UserDict[int, Remaining]):
    """The shards of a worker with what is left of each. Finding the one that is furthest behind takes no search."""

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, int]] = []
        """A heap of clock, chunk and shard; entries that no longer hold are dropped when they come first."""
        super().__init__()

    def __setitem__(self, shard: int, left: Remaining) -> None:
        super().__setitem__(shard, left)
        heappush(self._queue, (left.clock, left.chunks.first, shard))

    def restart(self, shards: Mapping[int, Remaining]) -> None:
        """Replaces all shards."""
        self.data.clear()
        self._queue.clear()
        self.update(shards)

    def first(self) -> tuple[Position, int] | None:
        """The chunk to compute next and its shard: of the earliest clock, of equals the lowest chunk and shard."""
        while self._queue:
            clock, chunk, shard = self._queue[0]
            left = self.get(shard)
            if left is not None and (left.clock, left.chunks.first) == (clock, chunk):
                return Position(clock, chunk), shard
            heappop(self._queue)
        return None


@dataclass(frozen=True, slots=True)
class Contribution:
    """A worker's chunks and updates of a clock, kept until the clock is stable."""

    clock: int
    covers: tuple[Cover, ...]
    entries: dict[int, tuple[UpdateEntry, ...]]

    def before(self, positions: Mapping[int, Position]) -> bool:
        """Whether every chunk of it lies before the position of its shard."""
        return all(
            shard in positions and Position(self.clock, last - 1) < positions[shard] for shard, _, last in self.covers
        )


def reusable(
    plan: ClockChunks, kept: list[Contribution], mine: set[int], clock: int
) -> tuple[list[Contribution], dict[int, Position]]:
    """The contributions that can be sent again after a rollback to a version, and where each shard continues.

    Work on a shard counts as far as this worker did it without a gap from that version on. A contribution counts
    entirely or not at all, as its chunks are summed. Dropping one may leave a gap in another shard: hence the loop.
    """
    later = (contribution for contribution in kept if contribution.clock > clock)
    kept = sorted(later, key=lambda contribution: contribution.clock)
    while True:
        done = _spans(kept)
        positions = {shard: _walk(plan, done.get(shard, {}), shard, clock) for shard in mine}
        counting = [contribution for contribution in kept if contribution.before(positions)]
        if len(counting) == len(kept):
            return kept, positions
        kept = counting


def _spans(kept: list[Contribution]) -> Mapping[int, Mapping[Position, int]]:
    """The chunks that contributions contain: by shard and first chunk, one past the last."""
    spans: dict[int, dict[Position, int]] = defaultdict(dict)
    for contribution in kept:
        for shard, first, last in contribution.covers:
            spans[shard][Position(contribution.clock, first)] = last
    return spans


def _walk(plan: ClockChunks, spans: Mapping[Position, int], shard: int, clock: int) -> Position:
    """The first chunk of a shard after a version that counts and is not among these."""
    at = Remaining.at(Position(clock + 1, 0), shard, plan).position
    while at in spans:
        at = Remaining.at(Position(at.clock, spans[at]), shard, plan).position
    return at


def _spans_from(position: Position, shard: int, plan: ClockChunks) -> list[ChunkSpan]:
    return [span for span in plan.ranges(shard, position.clock).spans if span[1] > position.chunk]
