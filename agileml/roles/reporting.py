"""A worker's reports of a clock: its work to the controller, and its contribution to the servers."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agileml.params.deltas import nbytes
from agileml.protocol.actions import Chunk
from agileml.protocol.messages import PartitionUpdate, WorkDone
from agileml.roles.chunk_runner import WorkResult
from agileml.roles.remaining import Contribution
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
