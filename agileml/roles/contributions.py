"""A worker's contributions: work that is done and not sent yet, and what is kept until it is safe."""

from dataclasses import dataclass, field

from agileml.params.view import NEVER
from agileml.protocol.actions import CONTROLLER, Chunk, Send
from agileml.protocol.messages import Contributed, Push
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.context import WorkerContext
from agileml.roles.remaining import Contribution
from agileml.roles.reporting import ClockTally, parts_by_owner, within
from agileml.roles.version_requests import VersionRequests
from agileml.work.counted import CountedWork
from agileml.work.covers import covers_of


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
