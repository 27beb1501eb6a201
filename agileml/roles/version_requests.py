"""The versions of partitions that a worker has requested, and those that it waits for."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from agileml.params.deltas import nbytes
from agileml.params.reads import WantedRows
from agileml.params.view import NEVER
from agileml.protocol.actions import CONTROLLER, Action, Send
from agileml.protocol.messages import PartitionUpdate, Pull, Reads, ServerTimed, Snapshot
from agileml.roles.chunk_runner import ChunkRunner, WorkerContext

NO_OWNER = ""


@dataclass(slots=True)
class Exchange:
    """A push whose values have not all come back."""

    began: float
    sent_bytes: int
    missing: set[int]
    seconds: float = 0.0


@dataclass(slots=True)
class ServerTimes:
    """The exchanges of one worker that are not complete, by server: a push there and the requested
    values back.

    The time that the server waited for others is the server's to say; clocks of machines are never
    compared.
    """

    node: str
    out: list[Action]
    timer: Callable[[], float]
    _open: dict[str, Exchange] = field(default_factory=dict)

    def reset(self) -> None:
        """An epoch begins: what was asked for will not come."""
        self._open.clear()

    def pushed(self, owner: str, parts: Sequence[PartitionUpdate]) -> None:
        """A push is on its way that requests values of its partitions."""
        if owner == self.node:
            # This push crosses no network: its time would make a slow server look fast.
            return
        size = sum(nbytes(entry.delta) for part in parts for entry in part.entries)
        self._open[owner] = Exchange(self.timer(), size, {part.partition for part in parts})

    def received(self, owner: str, epoch: int, snapshot: Snapshot) -> None:
        """Values of a partition have arrived; reports the exchange if they were the last."""
        exchange = self._open.get(owner)
        if (
            exchange is None
            or snapshot.waited is None
            or snapshot.partition not in exchange.missing
        ):
            return

        exchange.missing.discard(snapshot.partition)
        exchange.sent_bytes += nbytes(snapshot.values)
        exchange.seconds = max(exchange.seconds, self.timer() - exchange.began - snapshot.waited)
        if not exchange.missing:
            del self._open[owner]
            timed = ServerTimed(
                self.node, epoch, owner, exchange.sent_bytes, max(0.0, exchange.seconds)
            )
            self.out.append(Send(CONTROLLER, timed))


@dataclass(slots=True)
class VersionRequests:
    """Requests by partition. `slack`: clocks that work may run ahead of the versions that are here;
    None: no limit.

    `times` measures servers; None if their load is not balanced.
    """

    context: WorkerContext
    chunk_runner: ChunkRunner
    slack: int | None
    times: ServerTimes | None = None
    awaited: dict[int, int] = field(default_factory=dict)
    _requested: dict[int, int] = field(default_factory=dict)
    """By partition, the version that was requested last."""
    _reads_sent: dict[int, tuple[str, WantedRows | None]] = field(default_factory=dict)

    def begin(self) -> None:
        """An epoch begins: nothing is here, and nothing is requested."""
        self._requested.clear()
        self._reads_sent.clear()
        self.awaited.clear()
        cache = self.chunk_runner.cache
        cache.clocks = [NEVER] * len(cache.clocks)

    def oldest(self, clock: int) -> int:
        """The oldest version that a chunk of this clock may read."""
        if self.slack is None:
            return 0
        return max(0, clock - 1 - self.slack)

    def request(self, clock: int) -> None:
        """Waits for the versions that a chunk of this clock needs; requests those that are not on
        their way.
        """
        needed = self.oldest(clock)
        self.awaited = {
            p: needed
            for p, version in enumerate(self.chunk_runner.cache.clocks)
            if version < needed
        }

        for partition in self.awaited:
            # A request for a later version does not help: that version may depend on this very
            # chunk.
            if self._requested.get(partition, NEVER) != needed:
                self._requested[partition] = needed
                self._pull(partition, needed)

    def request_final(self, clock: int) -> None:
        """Requests the final version. The cache may hold a later one: some workers learn late which
        clock is last.
        """
        partitions = range(len(self.context.table.owners))
        self.awaited = dict.fromkeys(partitions, clock)
        for partition in partitions:
            self._pull(partition, clock, exact=True)

    def _pull(self, partition: int, version: int, *, exact: bool = False) -> None:
        context = self.context
        owner = context.table.owners[partition]
        pull = Pull(context.epoch, context.node, partition, version, exact=exact)
        context.send(owner, pull)

    def measure(self, snapshot: Snapshot) -> None:
        """Values have arrived, which may wait here."""
        if self.times is not None:
            self.times.received(
                self.context.table.owners[snapshot.partition], self.context.epoch, snapshot
            )

    def take(self, snapshot: Snapshot) -> None:
        """Puts values into the cache, unless later ones are there."""
        cache = self.chunk_runner.cache
        partition = snapshot.partition
        # A snapshot of a former owner may arrive late, over another link.
        if snapshot.exact or snapshot.version >= cache.clocks[partition]:
            cache.assign(partition, snapshot.values, snapshot.version)
        if self.awaited.get(partition, NEVER) <= snapshot.version:
            self.awaited.pop(partition, None)

    def distrust(self, partitions: Iterable[int]) -> None:
        """Treats these partitions as if nothing of them were cached, so that they are requested
        whole.
        """
        for partition in partitions:
            self.chunk_runner.cache.clocks[partition] = NEVER
            self._requested.pop(partition, None)
            self._reads_sent[partition] = (NO_OWNER, None)

    def send_reads(self, shards: Set[int]) -> None:
        """Tells the owners of partitions which rows are read here, where they do not know; they
        send all until then.
        """
        context = self.context
        wanted = self.chunk_runner.reads.wanted(shards)
        for partition, (owner, rows) in enumerate(zip(context.table.owners, wanted, strict=True)):
            informed, before = self._reads_sent.get(partition, (owner, None))
            if informed != owner or before is not rows:
                self._reads_sent[partition] = (owner, rows)
                context.send(owner, Reads(context.epoch, context.node, partition, rows))

    def request_with_push(self, owner: str, parts: Sequence[PartitionUpdate], want: int) -> int:
        """The version to request with a push: `want`, or `NEVER` if it was requested of all these
        partitions before.
        """
        if want == NEVER:
            return NEVER

        requested = self._requested
        if self.slack is not None and all(
            want <= requested.get(part.partition, NEVER) for part in parts
        ):
            return NEVER

        self._requested.update((part.partition, want) for part in parts)
        if self.times is not None:
            self.times.pushed(owner, parts)
        return want
