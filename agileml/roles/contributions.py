"""A worker's contributions: work that is done and not sent yet, and what is kept until it is
safe."""

from __future__ import annotations

from bisect import bisect_left
from collections import UserDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from agileml.params.deltas import nbytes
from agileml.params.view import NEVER
from agileml.protocol.actions import CONTROLLER, Chunk, Send
from agileml.protocol.messages import Contributed, PartitionUpdate, Push, UpdateEntry, WorkDone
from agileml.roles.chunk_runner import ChunkRunner, WorkerContext, WorkResult
from agileml.roles.version_requests import VersionRequests
from agileml.work import CountedWork, Cover, Ranges, WorkPlan, covers_of


@dataclass(slots=True)
class ClockTally:
    """A worker's work in a clock that is not reported yet; `own`: some of the work is on its own
    shards.
    """

    chunks: dict[int, Ranges] = field(default_factory=dict)
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_count: int = 0
    own: bool = False

    def __len__(self) -> int:
        return sum(map(len, self.chunks.values()))


def within(
    parts: Sequence[PartitionUpdate], most_bytes: int
) -> Iterator[tuple[PartitionUpdate, ...]]:
    """The parts in groups of at most this size, or of a single part."""
    group: list[PartitionUpdate] = []
    size = 0
    for part in parts:
        more = sum([nbytes(entry.delta) for entry in part.entries])
        if group and size + more > most_bytes:
            yield tuple(group)
            group = []
            size = 0
        group.append(part)
        size += more

    yield tuple(group)


@dataclass(slots=True)
class Contributions:
    """Contributions by clock. The last `keeps` clocks are kept.

    A push of more than `frame_bytes` is sent as several, so that its owner can add one while the
    next is on its way.
    """

    context: WorkerContext
    work: CountedWork
    chunk_runner: ChunkRunner
    keeps: int
    frame_bytes: int
    kept: list[Contribution] = field(default_factory=list)
    unreported: int = 0
    """Chunks that are done and not reported as a part of a clock; they are lost with the node."""
    open: dict[int, ClockTally] = field(default_factory=dict)
    """By clock, the work that is not reported."""

    def add(self, chunk: Chunk, result: WorkResult, *, own: bool) -> None:
        """Counts a chunk that is done."""
        self.unreported += 1
        tally = self.open.setdefault(chunk.clock, ClockTally())
        done = Ranges.of((chunk.chunk, chunk.chunk + 1))
        tally.chunks[chunk.shard] = tally.chunks.get(chunk.shard, Ranges()) | done
        tally.seconds += result.seconds
        tally.loss_sum += result.loss_sum
        tally.loss_count += result.loss_count
        tally.own |= own

    def close(self, clock: int) -> Contribution:
        """Reports the work of a clock to the controller, and keeps the contribution for sending."""
        tally = self.open.pop(clock)
        contribution = Contribution(
            clock, covers_of(tally.chunks), self.chunk_runner.updates.take(clock)
        )
        self.kept.append(contribution)
        oldest = clock - self.keeps
        self.kept = [contribution for contribution in self.kept if contribution.clock > oldest]
        self.unreported -= len(tally)
        node = self.context.node
        epoch = self.context.epoch
        sent = sum(
            nbytes(entry.delta) for entries in contribution.entries.values() for entry in entries
        )
        loss = tally.loss_sum, tally.loss_count
        work_done = WorkDone(node, epoch, clock, len(tally), tally.seconds, sent, *loss)
        self.context.send(CONTROLLER, work_done)

        return contribution

    def send(
        self, contribution: Contribution, requests: VersionRequests, want: int = NEVER
    ) -> None:
        """Pushes a contribution to the owners of partitions, and requests a version with it."""
        context = self.context
        clock = contribution.clock
        covers = contribution.covers
        parts_of: dict[str, list[PartitionUpdate]] = {}
        for partition, owner in enumerate(context.table.owners):
            update = PartitionUpdate(partition, contribution.entries.get(partition, ()))
            parts_of.setdefault(owner, []).append(update)

        # The servers are in a cyclic order that starts differently for every node: else all would
        # push to the same one first.
        around = sorted(parts_of.items())
        start = bisect_left(around, context.node, key=lambda item: item[0])
        for owner, parts in around[start:] + around[:start]:
            requested = requests.request_with_push(owner, parts, want)
            for some in within(parts, self.frame_bytes):
                push = Push(context.epoch, context.node, clock, covers, some, requested)
                context.out.append(Send(owner, push))
        if self.work.awaits and self.work.accepted(clock) is None:
            context.send(CONTROLLER, Contributed(context.node, context.epoch, clock, covers))

    def forget_until(self, stable: int) -> None:
        """Drops what is safe."""
        self.work.forget_until(stable)
        if self.kept and self.kept[0].clock <= stable:
            self.kept = [contribution for contribution in self.kept if contribution.clock > stable]

    def abandon(self, clock: int) -> None:
        """A clock has been decided: what was not sent of it came too late."""
        tally = self.open.pop(clock, None)
        if tally is not None:
            self.chunk_runner.updates.take(clock)
            self.unreported -= len(tally)
        self.kept = self.counting()

    def counting(self) -> list[Contribution]:
        """The kept contributions that were not left out of their clock."""
        return [kept for kept in self.kept if not self.work.left_out(kept.clock, kept.covers)]


ClockChunks = WorkPlan | CountedWork


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A chunk of a clock."""

    clock: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Remaining:
    """The chunks of a shard that are left to compute in its current clock; never empty.

    A chunk leaves the set when it is done: one that missed rows is computed again. A shard changes
    hands with this set (`TakeShard`).
    """

    clock: int
    chunks: Ranges

    @classmethod
    def at(cls, position: Position, shard: int, plan: ClockChunks) -> Remaining:
        """The work from a position on, in the first clock that has any left."""
        spans = [
            span for span in plan.ranges(shard, position.clock).spans if span[1] > position.chunk
        ]
        left = Ranges(tuple((max(position.chunk, lo), hi) for lo, hi in spans))
        if left:
            return cls(position.clock, left)
        return cls.at(Position(position.clock + 1, 0), shard, plan)

    @property
    def position(self) -> Position:
        """The chunk to compute next."""
        return Position(self.clock, self.chunks.first)

    def after(self, chunk: int, shard: int, plan: ClockChunks) -> Remaining:
        """The work that is left once a chunk is done: after the last one, the whole of the next
        clock.
        """
        left = self.chunks.without(chunk)
        if left:
            return Remaining(self.clock, left)
        return Remaining.at(Position(self.clock + 1, 0), shard, plan)

    def counted(self, shard: int, plan: ClockChunks) -> Remaining:
        """The part of the work that counts, or else the next clock."""
        left = self.chunks & plan.ranges(shard, self.clock)
        if left:
            return Remaining(self.clock, left)
        return Remaining.at(Position(self.clock + 1, 0), shard, plan)

    def whole(self, shard: int, plan: ClockChunks) -> bool:
        """Whether no chunk of the clock is done."""
        return self.chunks == plan.ranges(shard, self.clock)


class HeldShards(UserDict[int, Remaining]):
    """The shards of a worker with what is left of each. Finding the one that is furthest behind
    takes no search.
    """

    def __init__(self) -> None:
        self._queue: list[tuple[int, int, int]] = []
        """A heap of clock, chunk and shard; entries that no longer hold are dropped when they come
        first."""
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
        """The chunk to compute next and its shard: of the earliest clock, of equals the lowest
        chunk and shard.
        """
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
            shard in positions and Position(self.clock, last - 1) < positions[shard]
            for shard, _, last in self.covers
        )


def reusable(
    plan: ClockChunks, kept: list[Contribution], mine: set[int], clock: int
) -> tuple[list[Contribution], dict[int, Position]]:
    """The contributions that can be sent again after a rollback to a version, and where each shard
    continues.

    Work on a shard counts as far as this worker did it without a gap from that version on. A
    contribution counts entirely or not at all, as its chunks are summed. Dropping one may leave a
    gap in another shard: hence the loop.
    """
    later = (contribution for contribution in kept if contribution.clock > clock)
    kept = sorted(later, key=lambda contribution: contribution.clock)
    while True:
        # By shard and first chunk, one past the last of the chunks that the contributions contain.
        done: dict[int, dict[Position, int]] = defaultdict(dict)
        for contribution in kept:
            for shard, first, last in contribution.covers:
                done[shard][Position(contribution.clock, first)] = last
        positions = {shard: _walk(plan, done.get(shard, {}), shard, clock) for shard in mine}
        counting = [contribution for contribution in kept if contribution.before(positions)]
        if len(counting) == len(kept):
            return kept, positions
        kept = counting


def _walk(plan: ClockChunks, spans: Mapping[Position, int], shard: int, clock: int) -> Position:
    """The first chunk of a shard after a version that counts and is not among these."""
    at = Remaining.at(Position(clock + 1, 0), shard, plan).position
    while at in spans:
        at = Remaining.at(Position(at.clock, spans[at]), shard, plan).position
    return at
