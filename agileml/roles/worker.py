"""The worker of a node: which chunk it computes next, what it sends, what it keeps until it is safe.

Every shard has a position of its own, so that one that changes hands goes on where it was. Between two chunks the
worker looks at its messages; that is where it gives shards away, takes them up, or goes back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from agileml.core.work import Plan
from agileml.errors import InvalidTransition
from agileml.params.deltas import nbytes
from agileml.params.reads import Wanted
from agileml.params.view import NEVER
from agileml.protocol.actions import CONTROLLER, Action, Compute, Send
from agileml.protocol.messages import (
    Adopted,
    Cover,
    Enter,
    Entry,
    GiveShard,
    Limit,
    Part,
    Pull,
    Push,
    Reads,
    Recover,
    Snapshot,
    Stable,
    Table,
    TakeShard,
    WorkDone,
)
from agileml.roles.chunk_runner import ChunkRunner, Done

NOBODY = ""

Order = Recover | Snapshot | TakeShard | GiveShard | Limit | Stable | Enter
"""What a worker is told."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """The next chunk of a shard."""

    clock: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Contribution:
    """What the worker did for a clock, kept until the clock is stable."""

    clock: int
    covers: tuple[Cover, ...]
    entries: dict[int, tuple[Entry, ...]]

    def within(self, positions: Mapping[int, Position]) -> bool:
        """Whether every chunk of it lies before the position of its shard."""
        return all(
            shard in positions and Position(self.clock, last - 1) < positions[shard] for shard, _, last in self.covers
        )


@dataclass(slots=True)
class Tallied:
    """What is reported of a clock."""

    covers: list[Cover] = field(default_factory=list)
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_count: int = 0


@dataclass(slots=True)
class Worker:
    """The state machine of one worker. `slack` is how many clocks it may run ahead of what it has seen; None: any."""

    node: str
    plan: Plan
    chunk_runner: ChunkRunner
    slack: int | None
    keeps: int
    out: list[Action]
    epoch: int = 0
    limit: int = 0
    table: Table = field(default_factory=lambda: Table(0, (), (), ()))
    shards: dict[int, Position] = field(default_factory=dict)
    kept: list[Contribution] = field(default_factory=list)
    _busy: bool = False
    _inbox: deque[Order] = field(default_factory=deque)
    _promised: dict[int, str] = field(default_factory=dict)
    _open: dict[int, Tallied] = field(default_factory=dict)
    _asked: dict[int, int] = field(default_factory=dict)
    _told: dict[int, tuple[str, Wanted | None]] = field(default_factory=dict)
    _awaited: dict[int, int] = field(default_factory=dict)

    @property
    def idle(self) -> bool:
        """Whether it holds nothing and has nothing to say."""
        return not (self.shards or self._open or self._busy or self._inbox)

    def tell(self, order: Order) -> None:
        """Hear an order: at once, or after the chunk at hand."""
        if isinstance(order, Snapshot) and not self._busy:
            self._see(order)
            if self._awaited:
                return
        else:
            self._inbox.append(order)
        if not self._busy:
            self._attend()

    def done(self, result: Done) -> None:
        """The chunk at hand is computed."""
        self._busy = False
        task = result.task
        if result.missed:
            self._miss(result.missed)
            return
        tallied = self._open.setdefault(task.clock, Tallied())
        tallied.covers.append((task.shard, task.chunk, task.chunk + 1))
        tallied.seconds += result.seconds
        tallied.loss_sum += result.loss_sum
        tallied.loss_count += result.loss_count
        self.shards[task.shard] = self._after(Position(task.clock, task.chunk), task.shard)
        self._attend()

    def _miss(self, partitions: Iterable[int]) -> None:
        """A chunk reads what was not sent here: as if these partitions were not there at all."""
        for partition in partitions:
            self.chunk_runner.cache.clocks[partition] = NEVER
            self._asked.pop(partition, None)
            self._told[partition] = (NOBODY, None)
        self._attend()

    def _after(self, at: Position, shard: int) -> Position:
        if at.chunk + 1 < self.plan.chunks(shard, at.clock):
            return Position(at.clock, at.chunk + 1)
        return Position(at.clock + 1, 0)

    def _attend(self) -> None:
        while self._inbox:
            self._obey(self._inbox.popleft())
        for shard in [shard for shard in self._promised if self.shards[shard].chunk == 0]:
            self._release(shard, self._promised[shard])
        self._flush()
        self._begin()

    def _obey(self, order: Order) -> None:
        match order:
            case Snapshot():
                self._see(order)
            case TakeShard():
                self.shards[order.shard] = Position(order.clock, order.chunk)
                self.out.append(Send(CONTROLLER, Adopted(self.node, self.epoch, order.shard)))
            case GiveShard():
                self._give(order)
            case Limit():
                self.limit = order.clock
            case Stable():
                self._forget(order.clock)
            case Enter():
                self.epoch, self.limit = order.epoch, order.limit
            case Recover():
                self._go_back(order)

    def _see(self, snapshot: Snapshot) -> None:
        # One from an owner before the last may come late, over another link.
        if snapshot.version >= self.chunk_runner.cache.clocks[snapshot.partition]:
            self.chunk_runner.cache.assign(snapshot.partition, snapshot.values, snapshot.version)
        if self._awaited.get(snapshot.partition, NEVER) <= snapshot.version:
            self._awaited.pop(snapshot.partition, None)
        self._forget(snapshot.stable)

    # -- work --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start the chunk that is furthest behind, if what it has to see is there; else ask for that."""
        position, shard = min(((at, shard) for shard, at in self.shards.items()), default=(None, -1))
        if position is None or position.clock > self.limit:
            return
        needed = self._needed(position.clock)
        self._awaited = {p: needed for p, clock in enumerate(self.chunk_runner.cache.clocks) if clock < needed}
        for partition in self._awaited:
            # A later version that was asked for comes too late: it may need this very chunk.
            if self._asked.get(partition, NEVER) != needed:
                self._asked[partition] = needed
                owner = self.table.owners[partition]
                self.out.append(Send(owner, Pull(self.epoch, self.node, partition, needed)))
        if self._awaited:
            return
        if self.slack == 0 and max(self.chunk_runner.cache.clocks) >= position.clock:
            raise InvalidTransition(
                f"{self.node}: chunk {position.chunk} of shard {shard} belongs to clock {position.clock},"
                f" but version {max(self.chunk_runner.cache.clocks)} was seen"
            )
        self._busy = True
        low, high = self.plan.bounds(shard, position.clock, position.chunk)
        self.out.append(Compute(self.epoch, position.clock, shard, position.chunk, low, high))

    def _needed(self, clock: int) -> int:
        """The version that a chunk of this clock must have seen at least."""
        return 0 if self.slack is None else max(0, clock - 1 - self.slack)

    def _flush(self) -> None:
        """Send what is finished: every clock that no shard of this worker is in any more."""
        lowest = min(self.shards.values(), default=None)
        for clock in sorted(self._open):
            if lowest is not None and lowest.clock <= clock:
                return
            contribution = self._close(clock)
            want = self._want(clock)
            if want != NEVER:
                self._tell_reads()
            self._send(contribution, want)

    def _tell_reads(self) -> None:
        """Say which rows are read here to those owners of partitions who were not told; they send all until then."""
        wanted = self.chunk_runner.wanted(self.shards.keys())
        for partition, (owner, rows) in enumerate(zip(self.table.owners, wanted, strict=True)):
            told, before = self._told.get(partition, (owner, None))
            if told != owner or before is not rows:
                self._told[partition] = (owner, rows)
                self.out.append(Send(owner, Reads(self.epoch, self.node, partition, rows)))

    def _close(self, clock: int) -> Contribution:
        tallied = self._open.pop(clock)
        contribution = Contribution(clock, _joined(tallied.covers), self.chunk_runner.take(clock))
        self.kept.append(contribution)
        oldest = clock - self.keeps
        self.kept = [one for one in self.kept if one.clock > oldest]
        sent = sum(nbytes(entry.delta) for entries in contribution.entries.values() for entry in entries)
        chunks = len(tallied.covers)
        done = WorkDone(
            self.node, self.epoch, clock, chunks, tallied.seconds, sent, tallied.loss_sum, tallied.loss_count
        )
        self.out.append(Send(CONTROLLER, done))
        return contribution

    def _want(self, clock: int) -> int:
        """The version to be sent once it is there: what the next clock needs."""
        if not self.shards or clock + 1 > self.limit:
            return NEVER
        return self._needed(clock + 1)

    def _send(self, contribution: Contribution, want: int) -> None:
        by_owner: dict[str, list[Part]] = {}
        wanting: dict[str, int] = {}
        for partition, owner in enumerate(self.table.owners):
            by_owner.setdefault(owner, []).append(Part(partition, contribution.entries.get(partition, ())))
            if want != NEVER and (self.slack is None or want > self._asked.get(partition, NEVER)):
                wanting[owner] = want
        for owner in _from(self.node, by_owner):
            parts = by_owner[owner]
            asks = wanting.get(owner, NEVER)
            if asks != NEVER:
                self._asked.update((part.partition, asks) for part in parts)
            push = Push(self.epoch, self.node, contribution.clock, contribution.covers, tuple(parts), asks)
            self.out.append(Send(owner, push))

    def _forget(self, stable: int) -> None:
        if self.kept and self.kept[0].clock <= stable:
            self.kept = [one for one in self.kept if one.clock > stable]

    # -- shards that change hands ------------------------------------------------------------------------------------

    def _give(self, order: GiveShard) -> None:
        if order.shard not in self.shards:
            if order.now:
                # The warning crossed with the shard, which had been promised before.
                return
            raise InvalidTransition(f"{self.node} is to give shard {order.shard} to {order.to}, but does not have it")
        if order.now or self.shards[order.shard].chunk == 0:
            self._release(order.shard, order.to)
        else:
            self._promised[order.shard] = order.to

    def _release(self, shard: int, to: str) -> None:
        self._promised.pop(shard, None)
        at = self.shards.pop(shard)
        self.out.append(Send(to, TakeShard(self.epoch, shard, at.clock, at.chunk)))

    # -- roll-back ---------------------------------------------------------------------------------------------------

    def _go_back(self, order: Recover) -> None:
        """Go on from version `clock`: send again what is still of use, and redo the rest."""
        for clock in sorted(self._open):
            self._close(clock)
        self.epoch, self.limit = order.epoch, order.limit
        # A busy worker may have been told of later routes before it came to this.
        if order.table.version > self.table.version:
            self.table = order.table
        self._asked.clear()
        self._told.clear()
        self._awaited.clear()
        self._promised.clear()
        self.chunk_runner.cache.clocks = [NEVER] * len(self.chunk_runner.cache.clocks)
        mine = {shard for shard, worker in enumerate(order.table.workers) if worker == self.node}
        self.kept, self.shards = usable(self.plan, self.kept, mine, order.clock)
        for contribution in self.kept:
            self._send(contribution, NEVER)


def _from(node: str, owners: Iterable[str]) -> list[str]:
    """Owners in a round that begins at another one for every node, so that not all begin by pushing to the same."""
    around = sorted(owners)
    first = bisect_left(around, node)
    return around[first:] + around[:first]


def usable(
    plan: Plan, kept: list[Contribution], mine: set[int], clock: int
) -> tuple[list[Contribution], dict[int, Position]]:
    """Of what was kept, what can be sent again after going back to a version, and where each shard goes on.

    A shard's work counts as far as it was done here without a gap from that version on. A contribution is all or
    nothing, because its chunks are summed: one that holds a chunk that does not count is dropped, which may break
    another shard's line; hence the loop.
    """
    kept = sorted((one for one in kept if one.clock > clock), key=lambda one: one.clock)
    while True:
        positions = {shard: _walk(plan, kept, shard, clock) for shard in mine}
        counting = [one for one in kept if one.within(positions)]
        if len(counting) == len(kept):
            return kept, positions
        kept = counting


def _walk(plan: Plan, kept: list[Contribution], shard: int, clock: int) -> Position:
    """Where a shard's line of chunks ends that begins right after a version."""
    spans = {Position(one.clock, first): last for one in kept for number, first, last in one.covers if number == shard}
    at = Position(clock + 1, 0)
    while at in spans:
        last = spans[at]
        at = Position(at.clock, last) if last < plan.chunks(shard, at.clock) else Position(at.clock + 1, 0)
    return at


def _joined(covers: Iterable[Cover]) -> tuple[Cover, ...]:
    """Covers with neighbours put together."""
    joined: list[Cover] = []
    for shard, first, last in sorted(covers):
        if joined and joined[-1][0] == shard and joined[-1][2] == first:
            joined[-1] = (shard, joined[-1][1], last)
        else:
            joined.append((shard, first, last))
    return tuple(joined)
