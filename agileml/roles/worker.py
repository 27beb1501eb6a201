"""The worker of a node: which work it does next, what it sends, and what it keeps until the result is safe.

Every shard has its own remaining work, so that a shard that changes hands continues where it was. The worker processes
its messages between two pieces of work; only then does it give shards away, take them over, or roll back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agileml.errors import InvalidTransition
from agileml.params.reads import WantedRows
from agileml.params.view import NEVER
from agileml.protocol.actions import CONTROLLER, Action, Chunk, Compute, Evaluation, Send
from agileml.protocol.messages import (
    Accept,
    Adopted,
    Contributed,
    Enter,
    Evaluate,
    Evaluated,
    GiveShard,
    Limit,
    PartitionUpdate,
    Pull,
    Push,
    Reads,
    Recover,
    Snapshot,
    Stable,
    Table,
    TakeShard,
)
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.helping import Helping, HelpMessage
from agileml.roles.remaining import Contribution, HeldShards, Remaining, reusable
from agileml.roles.reporting import ClockTally, parts_by_owner, within
from agileml.roles.server_times import ServerTimes
from agileml.transport import FrameLimits
from agileml.work.counted import CountedWork
from agileml.work.covers import covers_of

NO_OWNER = ""

WorkerMessage = Recover | Snapshot | TakeShard | GiveShard | Limit | Stable | Enter | Evaluate | Accept | HelpMessage
"""Messages that a worker processes."""


@dataclass(slots=True)
class Worker:
    """The state machine of one worker. `slack`: clocks it may run ahead of the versions it has seen; None: no limit."""

    node: str
    work: CountedWork
    chunk_runner: ChunkRunner
    slack: int | None
    keeps: int
    out: list[Action]
    epoch: int = 0
    limit: int = 0
    frame_bytes: int = FrameLimits().body_bytes
    """A larger push is sent as several, so that its owner can add one while the next is on its way."""
    table: Table = field(default_factory=lambda: Table(0, (), (), ()))
    shards: HeldShards = field(default_factory=HeldShards)
    kept: list[Contribution] = field(default_factory=list)
    helping: Helping | None = None
    """Work that is lent and borrowed; None if workers do not help each other."""
    times: ServerTimes | None = None
    """Measures servers; None if their load is not balanced."""
    unreported: int = 0
    """Chunks that are done and not reported as a part of a clock; they are lost with the node."""
    _busy: bool = False
    _inbox: deque[WorkerMessage] = field(default_factory=deque)
    _promised: dict[int, str] = field(default_factory=dict)
    """Shards to give away at the end of their clock, and to which node."""
    _due: dict[int, str] = field(default_factory=dict)
    """Shards to give away as soon as nothing of them is lent any more."""
    _open: dict[int, ClockTally] = field(default_factory=dict)
    _requested: dict[int, int] = field(default_factory=dict)
    """By partition, the version that was requested last."""
    _reads_sent: dict[int, tuple[str, WantedRows | None]] = field(default_factory=dict)
    _awaited: dict[int, int] = field(default_factory=dict)
    _final: int | None = None
    """The final version, whose loss is to be computed: no other work remains."""
    _final_requested: bool = False
    _evaluated: set[int] = field(default_factory=set)
    """Shards whose part of the final loss has been reported."""

    @property
    def idle(self) -> bool:
        """Whether it has no work and nothing to send."""
        return not (self.shards or self._open or self._busy or self._inbox)

    def receive(self, order: WorkerMessage) -> None:
        """Processes an order: at once, or after the current work."""
        if self.times is not None and isinstance(order, Snapshot):
            self.times.received(self.table.owners[order.partition], self.epoch, order)
        if isinstance(order, Snapshot) and not self._busy:
            self._take_snapshot(order)
            if self._awaited:
                return
        elif self.helping is not None and isinstance(order, HelpMessage) and order.epoch == self.epoch:
            # At once, not after the chunk: the other side waits.
            self.helping.receive(order)
        else:
            self._inbox.append(order)
        if not self._busy:
            self._continue()

    def finish(self, result: WorkResult) -> None:
        """The current work is done, or has to be done again because rows were missing."""
        self._busy = False
        chunk = result.work
        if isinstance(chunk, Evaluation):
            self._report_loss(chunk, result)
            return
        if result.missed:
            self._request_missed(result.missed)
            return
        borrowed = self.helping is not None and self.helping.finish(chunk, result.seconds)
        self.unreported += 1
        self._open.setdefault(chunk.clock, ClockTally()).add(chunk, result, own=not borrowed)
        if borrowed:
            self._continue()
            return
        self.shards[chunk.shard] = self.shards[chunk.shard].after(chunk.chunk, chunk.shard, self.work)
        self._continue(chunk.shard)

    def _request_missed(self, partitions: Iterable[int]) -> None:
        """Treats these partitions as if nothing of them were cached, so that they are requested whole."""
        for partition in partitions:
            self.chunk_runner.cache.clocks[partition] = NEVER
            self._requested.pop(partition, None)
            self._reads_sent[partition] = (NO_OWNER, None)
        self._continue()

    def _continue(self, advanced: int = -1) -> None:
        """Obeys the orders that waited, and goes on; `advanced` is the shard of the chunk that has just been done."""
        while self._inbox:
            self._obey(self._inbox.popleft())
        if self.helping is not None:
            self._settle(self.helping)
        elif advanced in self._promised and self.shards[advanced].whole(advanced, self.work):
            self._release(advanced, self._promised[advanced])
        self._flush()
        self._begin()

    def _settle(self, helping: Helping) -> None:
        """Gives away what was promised, as far as nothing of it is lent; then sees to what is lent and borrowed."""
        over = [(shard, to) for shard, to in self._promised.items() if self.shards[shard].whole(shard, self.work)]
        for shard, to in [*self._due.items(), *over]:
            if not helping.outstanding(shard):
                self._release(shard, to)
        helping.settle()

    def _obey(self, order: WorkerMessage) -> None:
        match order:
            case Snapshot():
                self._take_snapshot(order)
            case TakeShard() | GiveShard():
                self._hand_over(order)
            case Limit():
                self.limit = order.clock
            case Evaluate():
                self._final = order.clock
            case Stable():
                self._forget(order.clock)
            case Accept():
                self._abandon(order)
            case Enter():
                self.epoch, self.limit = order.epoch, order.limit
                self.work.reset(order.stable, order.decided)
                self._reset_helping()
            case Recover():
                self._roll_back(order)
            case _ if self.helping is not None:
                self.helping.receive(order)

    def _hand_over(self, order: TakeShard | GiveShard) -> None:
        if isinstance(order, GiveShard):
            self._give(order)
        else:
            self._take(order)

    def _take(self, order: TakeShard) -> None:
        self.shards[order.shard] = Remaining(order.clock, order.chunks).counted(order.shard, self.work)
        if self.helping is not None:
            self.helping.recount()
        self.out.append(Send(CONTROLLER, Adopted(self.node, self.epoch, order.shard)))

    def _reset_helping(self) -> None:
        if self.helping is not None:
            self.helping.reset(self.epoch, self.shards)
        if self.times is not None:
            self.times.reset()

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        self._forget(snapshot.stable)
        if self._final_requested and not snapshot.exact:
            # The snapshot was requested for work that is over.
            return
        # A snapshot of a former owner may arrive late, over another link.
        if snapshot.exact or snapshot.version >= self.chunk_runner.cache.clocks[snapshot.partition]:
            self.chunk_runner.cache.assign(snapshot.partition, snapshot.values, snapshot.version)
        if self._awaited.get(snapshot.partition, NEVER) <= snapshot.version:
            self._awaited.pop(snapshot.partition, None)

    # -- work --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Starts the chunk that is furthest behind if the versions it needs are cached; else requests those."""
        if self._final is not None:
            self._evaluate(self._final)
            return
        clock, shard, number = self._next() or (NEVER, -1, -1)
        if clock == NEVER or clock > self.limit:
            return
        needed = self._needed(clock)
        self._awaited = {p: needed for p, version in enumerate(self.chunk_runner.cache.clocks) if version < needed}
        for partition in self._awaited:
            # A request for a later version does not help: that version may depend on this very chunk.
            if self._requested.get(partition, NEVER) != needed:
                self._requested[partition] = needed
                owner = self.table.owners[partition]
                self.out.append(Send(owner, Pull(self.epoch, self.node, partition, needed)))
        if self._awaited:
            return
        if self.slack == 0 and max(self.chunk_runner.cache.clocks) >= clock:
            if self.work.awaits:
                # The clock was decided without this chunk; the decision comes over another link than its version.
                return
            raise InvalidTransition(
                f"{self.node}: chunk {number} of shard {shard} belongs to clock {clock},"
                f" but the node has seen version {max(self.chunk_runner.cache.clocks)}"
            )
        self._busy = True
        low, high = self.work.plan.bounds(shard, clock, number)
        chunk = Chunk(self.epoch, clock, shard, number, low, high)
        if self.helping is not None:
            self.helping.begin(chunk)
        self.out.append(Compute(chunk))

    def _next(self) -> tuple[int, int, int] | None:
        """Clock, shard and number of the chunk to compute next."""
        if self.helping is not None and (borrowed := self.helping.next()) is not None:
            return borrowed
        behind = self.shards.first()
        return None if behind is None else (behind[0].clock, behind[1], behind[0].chunk)

    def _evaluate(self, clock: int) -> None:
        """Starts to compute the loss of the final version on the next shard; requests that version before the first."""
        left = (shard for shard in self.chunk_runner.sampled if shard in self.shards and shard not in self._evaluated)
        shard = next(left, None)
        if shard is None:
            return
        if not self._final_requested:
            # The cache may hold a later version: some workers learn only late which clock is the last.
            self._final_requested, self._awaited = True, dict.fromkeys(range(len(self.table.owners)), clock)
            for partition, owner in enumerate(self.table.owners):
                self.out.append(Send(owner, Pull(self.epoch, self.node, partition, clock, exact=True)))
        elif not self._awaited:
            self._busy = True
            self.out.append(Compute(self.chunk_runner.evaluation(self.epoch, clock, shard)))

    def _report_loss(self, work: Evaluation, result: WorkResult) -> None:
        self._evaluated.add(work.shard)
        loss = Evaluated(self.node, work.epoch, work.clock, work.shard, result.loss_sum, result.loss_count)
        self.out.append(Send(CONTROLLER, loss))
        self._continue()

    def _needed(self, clock: int) -> int:
        """The oldest version that a chunk of this clock may read."""
        return 0 if self.slack is None else max(0, clock - 1 - self.slack)

    def _flush(self) -> None:
        """Sends the contributions to all clocks that every shard of this worker has passed."""
        behind = self.shards.first()
        for clock in sorted(self._open):
            if behind is not None and behind[0].clock <= clock:
                return
            if self.helping is not None and self.helping.holds_back(clock):
                continue
            want = self._want(clock) if self._open[clock].own else NEVER
            contribution = self._close(clock)
            if want != NEVER:
                self._send_reads()
            self._send(contribution, want)

    def _send_reads(self) -> None:
        """Tells the owners of partitions which rows are read here, where they do not know; they send all until then."""
        wanted = self.chunk_runner.wanted(self.shards.keys())
        for partition, (owner, rows) in enumerate(zip(self.table.owners, wanted, strict=True)):
            informed, before = self._reads_sent.get(partition, (owner, None))
            if informed != owner or before is not rows:
                self._reads_sent[partition] = (owner, rows)
                self.out.append(Send(owner, Reads(self.epoch, self.node, partition, rows)))

    def _close(self, clock: int) -> Contribution:
        tally = self._open.pop(clock)
        contribution = Contribution(clock, covers_of(tally.chunks), self.chunk_runner.take(clock))
        self.kept.append(contribution)
        oldest = clock - self.keeps
        self.kept = [contribution for contribution in self.kept if contribution.clock > oldest]
        self.unreported -= len(tally)
        self.out.append(Send(CONTROLLER, tally.report(self.node, self.epoch, contribution)))
        return contribution

    def _want(self, clock: int) -> int:
        """The version that the clock after this one needs, to be requested with the push."""
        if not self.shards or clock + 1 > self.limit:
            return NEVER
        return self._needed(clock + 1)

    def _send(self, contribution: Contribution, want: int) -> None:
        for owner, parts in parts_by_owner(contribution, self.table.owners, self.node):
            requested = want if self._is_new(want, parts) else NEVER
            if requested != NEVER:
                self._requested.update((part.partition, requested) for part in parts)
                if self.times is not None:
                    self.times.pushed(owner, parts)
            for some in within(parts, self.frame_bytes):
                push = Push(self.epoch, self.node, contribution.clock, contribution.covers, some, requested)
                self.out.append(Send(owner, push))
        if self.work.awaits and self.work.accepted(contribution.clock) is None:
            contributed = Contributed(self.node, self.epoch, contribution.clock, contribution.covers)
            self.out.append(Send(CONTROLLER, contributed))

    def _is_new(self, want: int, parts: Sequence[PartitionUpdate]) -> bool:
        """Whether this version of any of the partitions has not been requested yet."""
        if want == NEVER or self.slack is None:
            return want != NEVER
        return any(want > self._requested.get(part.partition, NEVER) for part in parts)

    def _forget(self, stable: int) -> None:
        self.work.forget_until(stable)
        if self.kept and self.kept[0].clock <= stable:
            self.kept = [contribution for contribution in self.kept if contribution.clock > stable]

    def _abandon(self, order: Accept) -> None:
        """Goes on with the next clock: what is not done of this one, or not sent, came too late."""
        self.work.decide([(order.clock, order.covers)])
        tally = self._open.pop(order.clock, None)
        if tally is not None:
            self.chunk_runner.take(order.clock)
            self.unreported -= len(tally)
        self.kept = self._counting()
        for shard, left in list(self.shards.items()):
            if left.clock == order.clock:
                self.shards[shard] = left.counted(shard, self.work)
        if self.helping is not None:
            self.helping.abandon(order.clock)
            return
        for shard, to in list(self._promised.items()):
            if self.shards[shard].whole(shard, self.work):
                self._release(shard, to)

    def _counting(self) -> list[Contribution]:
        """The kept contributions that were not left out of their clock."""
        return [kept for kept in self.kept if not self.work.left_out(kept.clock, kept.covers)]

    # -- shards that change hands ------------------------------------------------------------------------------------

    def _give(self, order: GiveShard) -> None:
        if order.shard not in self.shards:
            if order.now:
                # The order crossed with the shard, which had been promised before.
                return
            raise InvalidTransition(f"{self.node} is to give shard {order.shard} to {order.to}, but does not have it")
        ready = order.now or self.shards[order.shard].whole(order.shard, self.work)
        if self.helping is not None:
            self.helping.kept_back.add(order.shard)
            # The later order replaces the earlier one.
            self._promised.pop(order.shard, None)
            self._due.pop(order.shard, None)
            # Until nothing of it is lent; see `_settle`.
            (self._due if ready else self._promised)[order.shard] = order.to
        elif ready:
            self._release(order.shard, order.to)
        else:
            self._promised[order.shard] = order.to

    def _release(self, shard: int, to: str) -> None:
        self._promised.pop(shard, None)
        if self.helping is not None:
            self._due.pop(shard, None)
            self.helping.kept_back.discard(shard)
            self.helping.recount()
        left = self.shards.pop(shard)
        self.out.append(Send(to, TakeShard(self.epoch, shard, left.clock, left.chunks)))

    # -- rollback ----------------------------------------------------------------------------------------------------

    def _roll_back(self, order: Recover) -> None:
        """Continues from version `clock`: sends again the contributions that still count, and redoes the rest."""
        for clock in sorted(self._open):
            self._close(clock)
        self.epoch, self.limit = order.epoch, order.limit
        self.work.reset(order.clock, order.decided)
        # While the worker was busy, its node may have received later routes than these.
        if order.table.version > self.table.version:
            self.table = order.table
        self._requested.clear()
        self._reads_sent.clear()
        self._awaited.clear()
        self._final, self._final_requested = None, False
        self._evaluated.clear()
        self._promised.clear()
        self._due.clear()
        self.chunk_runner.cache.clocks = [NEVER] * len(self.chunk_runner.cache.clocks)
        mine = {shard for shard, worker in enumerate(order.table.workers) if worker == self.node}
        self.kept, positions = reusable(self.work, self._counting(), mine, order.clock)
        self.shards = HeldShards()
        self.shards.update({shard: Remaining.at(at, shard, self.work) for shard, at in positions.items()})
        self._reset_helping()
        for contribution in self.kept:
            self._send(contribution, NEVER)
