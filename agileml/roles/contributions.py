"""A worker's contributions: work that is done and not sent yet, and what is kept until it is safe."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agileml.params.deltas import nbytes
from agileml.params.view import NEVER
from agileml.protocol.actions import CONTROLLER, Chunk, Send
from agileml.protocol.messages import Contributed, PartitionUpdate, Push, WorkDone
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.context import WorkerContext
from agileml.roles.remaining import Contribution
from agileml.roles.version_requests import VersionRequests
from agileml.work.counted import CountedWork
from agileml.work.covers import covers_of
from agileml.work.ranges import Ranges


@dataclass(slots=True)
class ClockTally:
    """A worker's work in a clock that is not reported yet; `own`: some of the work is on its own shards."""

    chunks: dict[int, Ranges] = field(default_factory=dict)
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_count: int = 0
    own: bool = False

    def __len__(self) -> int:
        return sum(map(len, self.chunks.values()))

    def add(self, chunk: Chunk, result: WorkResult, *, own: bool) -> None:
        """Counts a chunk that is done."""
        self.chunks[chunk.shard] = self.chunks.get(chunk.shard, Ranges()) | Ranges.of((chunk.chunk, chunk.chunk + 1))
        self.seconds += result.seconds
        self.loss_sum += result.loss_sum
        self.loss_count += result.loss_count
        self.own |= own

    def report(self, node: str, epoch: int, contribution: Contribution) -> WorkDone:
        """The report of a clock to the controller; the contribution itself goes to the servers."""
        sent = sum(nbytes(entry.delta) for entries in contribution.entries.values() for entry in entries)
        clock = contribution.clock
        return WorkDone(node, epoch, clock, len(self), self.seconds, sent, self.loss_sum, self.loss_count)


def parts_by_owner(
    contribution: Contribution, owners: Sequence[str], node: str
) -> list[tuple[str, list[PartitionUpdate]]]:
    """A part for each partition, by the servers that own them.

    The servers are in a cyclic order that starts differently for every node: else all would push to the same one first.
    """
    parts: dict[str, list[PartitionUpdate]] = {}
    for partition, owner in enumerate(owners):
        parts.setdefault(owner, []).append(PartitionUpdate(partition, contribution.entries.get(partition, ())))
    around = sorted(parts.items())
    first = bisect_left(around, node, key=lambda item: item[0])
    return around[first:] + around[:first]


def within(parts: Sequence[PartitionUpdate], most_bytes: int) -> Iterator[tuple[PartitionUpdate, ...]]:
    """The parts in groups of at most this size, or of a single part."""
    group: list[PartitionUpdate] = []
    size = 0
    for part in parts:
        more = sum([nbytes(entry.delta) for entry in part.entries])
        if group and size + more > most_bytes:
            yield tuple(group)
            group, size = [], 0
        group.append(part)
        size += more
    yield tuple(group)


@dataclass(slots=True)
class Contributions:
    """Contributions by clock. The last `keeps` clocks are kept.

    A push of more than `frame_bytes` is sent as several, so that its owner can add one while the next is on its way.
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
        self.open.setdefault(chunk.clock, ClockTally()).add(chunk, result, own=own)

    def close(self, clock: int) -> Contribution:
        """Reports the work of a clock to the controller, and keeps the contribution for sending."""
        tally = self.open.pop(clock)
        contribution = Contribution(clock, covers_of(tally.chunks), self.chunk_runner.take(clock))
        self.kept.append(contribution)
        oldest = clock - self.keeps
        self.kept = [contribution for contribution in self.kept if contribution.clock > oldest]
        self.unreported -= len(tally)
        self.context.send(CONTROLLER, tally.report(self.context.node, self.context.epoch, contribution))
        return contribution

    def close_all(self) -> None:
        """Keeps the work so far of all clocks."""
        for clock in sorted(self.open):
            self.close(clock)

    def send(self, contribution: Contribution, requests: VersionRequests, want: int = NEVER) -> None:
        """Pushes a contribution to the owners of partitions, and requests a version with it."""
        context, clock, covers = self.context, contribution.clock, contribution.covers
        for owner, parts in parts_by_owner(contribution, context.table.owners, context.node):
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
            self.chunk_runner.take(clock)
            self.unreported -= len(tally)
        self.kept = self.counting()

    def counting(self) -> list[Contribution]:
        """The kept contributions that were not left out of their clock."""
        return [kept for kept in self.kept if not self.work.left_out(kept.clock, kept.covers)]
