"""The work on a shard that is left to a worker, and what of its earlier work still counts after a rollback."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agileml.protocol.messages import UpdateEntry
from agileml.work.covers import Cover
from agileml.work.plan import WorkPlan
from agileml.work.ranges import Ranges


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A chunk of a clock."""

    clock: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """The chunks of a shard that are left to compute in its current clock; never empty.

    A chunk leaves the set when it is done: one that was abandoned or missed rows is computed again. A shard changes
    hands with this set (`TakeShard`). A policy that lends a part of it to another worker uses the same message.
    """

    clock: int
    chunks: Ranges

    @classmethod
    def at(cls, position: Position, shard: int, plan: WorkPlan) -> Remaining:
        """What is left from a position on."""
        return cls(position.clock, Ranges.of((position.chunk, plan.chunks(shard, position.clock))))

    @property
    def position(self) -> Position:
        """The chunk to compute next."""
        return Position(self.clock, self.chunks.first)

    def after(self, chunk: int, shard: int, plan: WorkPlan) -> Remaining:
        """What is left once a chunk is done: after the last one, the whole of the next clock."""
        left = self.chunks.without(chunk)
        return Remaining(self.clock, left) if left else Remaining(self.clock + 1, plan.ranges(shard, self.clock + 1))

    def whole(self, shard: int, plan: WorkPlan) -> bool:
        """Whether no chunk of the clock is done."""
        return self.chunks == plan.ranges(shard, self.clock)


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a worker did for a clock, kept until the clock is stable."""

    clock: int
    covers: tuple[Cover, ...]
    entries: dict[int, tuple[UpdateEntry, ...]]

    def before(self, positions: Mapping[int, Position]) -> bool:
        """Whether every chunk of it lies before the position of its shard."""
        return all(
            shard in positions and Position(self.clock, last - 1) < positions[shard] for shard, _, last in self.covers
        )


def reusable(
    plan: WorkPlan, kept: list[Contribution], mine: set[int], clock: int
) -> tuple[list[Contribution], dict[int, Position]]:
    """The contributions that can be sent again after a rollback to a version, and where each shard continues.

    Work on a shard counts as far as this worker did it without a gap from that version on. A contribution counts
    entirely or not at all, as its chunks are summed. Dropping one may leave a gap in another shard: hence the loop.
    """
    kept = sorted((one for one in kept if one.clock > clock), key=lambda one: one.clock)
    while True:
        positions = {shard: walk(plan, kept, shard, clock) for shard in mine}
        counting = [one for one in kept if one.before(positions)]
        if len(counting) == len(kept):
            return kept, positions
        kept = counting


def walk(plan: WorkPlan, kept: list[Contribution], shard: int, clock: int) -> Position:
    """The first chunk of a shard after a version that the contributions do not contain."""
    spans = {Position(one.clock, first): last for one in kept for number, first, last in one.covers if number == shard}
    at = Position(clock + 1, 0)
    while at in spans:
        last = spans[at]
        at = Position(at.clock, last) if last < plan.chunks(shard, at.clock) else Position(at.clock + 1, 0)
    return at
