"""Work that changes hands: for the rest of a clock, what a worker has lent, and what it does for
others; and for good, the shards that it takes and gives away.

A lent chunk is in exactly one place: at its owner, on its way, waiting or in progress at the other
worker, or on its way back. Servers need not know, as a contribution names its chunks. A rollback
forgets all loans.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from agileml.errors import InvalidTransition
from agileml.policies.flexrr import FlexRR, Lend, WorkerProgress
from agileml.protocol.actions import CONTROLLER, Chunk
from agileml.protocol.messages import (
    Adopted,
    BegunHelping,
    CancelHelp,
    DoThis,
    GiveShard,
    Helped,
    HelpEnded,
    HelpGroup,
    ProgressReport,
    TakeShard,
)
from agileml.roles.chunk_runner import WorkerContext
from agileml.roles.contributions import HeldShards, Remaining
from agileml.work import CountedWork, Cover, Ranges, covers_of


@dataclass(slots=True)
class Loan:
    """Chunks that another worker is to do."""

    to: str
    clock: int
    covers: tuple[Cover, ...]
    begun: bool = False
    cancelled: bool = False


@dataclass(slots=True)
class Errand:
    """Chunks outside of a worker's own remaining work; without a `number` they were lent and came
    back too late.
    """

    owner: str
    number: int | None
    clock: int
    chunks: deque[tuple[int, int]]
    begun: bool = False


@dataclass(slots=True)
class WorkPace:
    """Progress of a worker's own work in a clock."""

    clock: int = 0
    total: int = 0
    left: int = 0
    seconds: float = 0.0
    computed: int = 0
    latest: float = 0.0
    """Seconds of the clock at the speed of the last chunk; 0: unknown."""
    reported: bool = False

    @property
    def progress(self) -> float:
        """Clocks done, counting the part of this one."""
        if self.total:
            return self.clock + 1 - self.left / self.total
        return float(self.clock)


def covers_of_chunks(chunks: Iterable[tuple[int, int]]) -> tuple[Cover, ...]:
    """The chunks, each named by its shard and its number, as covers."""
    by_shard: dict[int, list[tuple[int, int]]] = {}
    for shard, chunk in chunks:
        by_shard.setdefault(shard, []).append((chunk, chunk + 1))
    return covers_of({shard: Ranges.of(*spans) for shard, spans in by_shard.items()})


HelpMessage = HelpGroup | ProgressReport | DoThis | BegunHelping | CancelHelp | HelpEnded


@dataclass(slots=True)
class Loans:
    """The chunks that a worker has lent, by number. Of `kept_back` shards, which leave, nothing is
    lent any more.
    """

    lent: dict[int, Loan] = field(default_factory=dict)
    kept_back: set[int] = field(default_factory=set)
    _numbers: int = 0

    def add(self, loan: Loan) -> int:
        """Adds a loan and returns its number."""
        self._numbers += 1
        self.lent[self._numbers] = loan
        return self._numbers


@dataclass(slots=True)
class Helping:
    """The loans and errands of one worker. `running` is the chunk that is being computed."""

    context: WorkerContext
    work: CountedWork
    shards: HeldShards
    timer: Callable[[], float]
    policy: FlexRR = field(default_factory=FlexRR)
    loans: Loans = field(default_factory=Loans)
    errands: list[Errand] = field(default_factory=list)
    group: tuple[str, ...] = ()
    pace: WorkPace = field(default_factory=WorkPace)
    running: Chunk | None = None

    def reset(self) -> None:
        """An epoch begins: what was lent is its owner's again, everywhere."""
        self.loans.lent.clear()
        self.loans.kept_back.clear()
        self.errands.clear()
        self.group = ()
        self.pace = WorkPace()
        self.running = None
        self.policy = replace(self.policy, heard={})

    # -- messages ----------------------------------------------------------------------------------

    def receive(self, message: HelpMessage) -> None:
        """Processes a message, also while a chunk is being computed."""
        match message:
            case HelpGroup():
                self.group = message.workers
            case ProgressReport() if self.pace.total:
                own = WorkerProgress(self.pace.progress, self.timer(), self.pace.latest)
                busy = message.worker in {loan.to for loan in self.loans.lent.values()}
                self.policy, proposals = self.policy.other_reported(
                    message.worker, message.progress, message.timer, message.pace, own, busy=busy
                )
                self._lend(proposals)
            case DoThis():
                self._accept(message)
            case BegunHelping():
                loan = self.loans.lent.get(message.number)
                if loan is None:
                    # The loan's clock has been decided without it.
                    return
                loan.begun = True
                if not loan.cancelled and loan.clock == self.pace.clock:
                    self._lend(self.policy.other_began(message.worker))
            case CancelHelp():
                self._give_up(message)
            case HelpEnded():
                self._take_back(message)

    def forget(self, node: str) -> None:
        """A node leaves: nothing is sent to it any more."""
        self.group = tuple(name for name in self.group if name != node)
        self.policy = self.policy.without(node)

    def _lend(self, proposals: Iterable[Lend]) -> None:
        context = self.context
        for proposal in proposals:
            # The chunks that this worker would do last, but for the one in progress.
            running = (self.running.shard, self.running.chunk) if self.running is not None else None
            candidates = sorted(
                (chunk, shard)
                for shard, left in self.shards.items()
                if left.clock == self.pace.clock and shard not in self.loans.kept_back
                for chunk in left.chunks
                if (shard, chunk) != running
            )
            chunks = [
                (shard, chunk)
                for chunk, shard in candidates[-max(1, round(proposal.share * self.pace.total)) :]
            ]
            if not chunks or proposal.to == context.node:
                continue
            for shard, chunk in chunks:
                self.shards[shard] = self.shards[shard].after(chunk, shard, self.work)
            covers = covers_of_chunks(chunks)

            number = self.loans.add(Loan(proposal.to, self.pace.clock, covers))
            self.pace.left -= len(chunks)
            do_this = DoThis(context.epoch, context.node, number, self.pace.clock, covers)
            context.send(proposal.to, do_this)

    def abandon(self, clock: int) -> None:
        """A clock has been decided: what is still lent or borrowed of it came too late, and both
        sides drop it.
        """
        self.loans.lent = {
            number: loan for number, loan in self.loans.lent.items() if loan.clock != clock
        }
        self.errands = [errand for errand in self.errands if errand.clock != clock]

    def _accept(self, message: DoThis) -> None:
        """Keeps an assignment until the own work of its clock is done; a worker that is behind, or
        idle, declines.
        """
        if self.work.left_out(message.clock, message.covers):
            return

        behind = self.shards.first()
        if behind is None or behind[0].clock < message.clock:
            ended = HelpEnded(self.context.epoch, self.context.node, message.number, message.covers)
            self.context.send(message.worker, ended)
            return

        chunks = deque(
            (shard, chunk) for shard, first, last in message.covers for chunk in range(first, last)
        )
        errand = Errand(message.worker, message.number, message.clock, chunks)
        self.errands.append(errand)

    def _give_up(self, message: CancelHelp) -> None:
        for errand in self.errands:
            if (errand.owner, errand.number) == (
                message.worker,
                message.number,
            ) and not errand.begun:
                self._end(errand)
                return

    def _take_back(self, message: HelpEnded) -> None:
        loan = self.loans.lent.pop(message.number, None)
        if loan is None:
            return

        if message.left:
            self.policy = self.policy.without(message.worker)
        late: deque[tuple[int, int]] = deque()
        for shard, first, last in message.left:
            left = self.shards.get(shard)
            if left is not None and left.clock == loan.clock:
                self.shards[shard] = Remaining(left.clock, left.chunks | Ranges(((first, last),)))
                self.pace.left += last - first if loan.clock == self.pace.clock else 0
            else:
                late.extend((shard, chunk) for chunk in range(first, last))

        if late:
            errand = Errand(self.context.node, None, loan.clock, late, begun=True)
            self.errands.append(errand)

    # -- work --------------------------------------------------------------------------------------

    def next(self) -> tuple[int, int, int] | None:
        """Clock, shard and chunk to compute before the worker continues with its own work, the
        earliest clock first.
        """
        behind = self.shards.first()
        due = [
            errand for errand in self.errands if behind is None or errand.clock < behind[0].clock
        ]
        if not due:
            return None

        errand = min(
            due, key=lambda errand: (errand.clock, not errand.begun, errand.number is not None)
        )
        return errand.clock, *errand.chunks[0]

    def begin(self, chunk: Chunk) -> None:
        """The worker computes a chunk."""
        self.running = chunk
        errand = self._errand_of(chunk)
        if errand is not None and not errand.begun and errand.number is not None:
            errand.begun = True
            begun_helping = BegunHelping(self.context.epoch, self.context.node, errand.number)
            self.context.send(errand.owner, begun_helping)

    def finish(self, chunk: Chunk, seconds: float) -> bool:
        """The chunk is done; whether it was outside of the worker's own remaining work."""
        self.running = None
        errand = self._errand_of(chunk)
        if errand is None:
            pace = self.pace
            if chunk.clock == pace.clock:
                pace.left -= 1
                pace.seconds += seconds
                pace.computed += 1
                pace.latest = seconds * pace.total
                least = (1 - self.policy.settings.report_at) * pace.total
                if not pace.reported and pace.left <= least:
                    pace.reported = True
                    self._report()
            return False

        errand.chunks.popleft()
        if errand.number is not None:
            context = self.context
            helped = Helped(context.node, context.epoch, chunk.clock, chunk.items, seconds)
            context.send(CONTROLLER, helped)

        if not errand.chunks:
            self._end(errand)
        return True

    def _errand_of(self, chunk: Chunk) -> Errand | None:
        wanted = (chunk.shard, chunk.chunk)
        for errand in self.errands:
            if errand.clock == chunk.clock and errand.chunks[0] == wanted:
                return errand
        return None

    def _end(self, errand: Errand) -> None:
        self.errands.remove(errand)
        if errand.number is not None:
            ended = HelpEnded(
                self.context.epoch,
                self.context.node,
                errand.number,
                covers_of_chunks(errand.chunks),
            )
            self.context.send(errand.owner, ended)

    # -- the worker's own progress -----------------------------------------------------------------

    @property
    def _is_coarse(self) -> bool:
        """Whether workers look too rarely at how far others should be: then the ends of clocks are
        reported.
        """
        return self.pace.total < self.policy.settings.checks

    def _report(self) -> None:
        pace = 0.0 if self._is_coarse else self.pace.latest
        report = ProgressReport(
            self.context.epoch, self.context.node, self.pace.progress, self.timer(), pace
        )
        for name in self.group:
            self.context.send(name, report)

    def settle(self) -> None:
        """Adapts to a change of the own work: when a clock is over, nothing that was lent of it may
        begin any more.
        """
        behind = self.shards.first()
        if behind is None:
            for errand in list(self.errands):
                self._end(errand)
            self.pace = WorkPace()
            return

        clock = behind[0].clock
        if clock != self.pace.clock:
            # A clock begins. Others expect the end of the last one from the report before it.
            pace = self.pace
            if pace.computed and pace.clock == clock - 1:
                self.policy = self.policy.clock_took(pace.seconds / pace.computed * pace.total)
                if self._is_coarse:
                    pace.left = 0
                    self._report()
            current = [(shard, left) for shard, left in self.shards.items() if left.clock == clock]
            total = sum(len(self.work.ranges(shard, clock)) for shard in self.shards)
            self.pace = WorkPace(clock, total, sum(len(left.chunks) for _, left in current))

        for number, loan in list(self.loans.lent.items()):
            if self.loans.kept_back.intersection(shard for shard, _, _ in loan.covers):
                self._cancel(number, loan)

        # What others have not begun of the last clock is taken back: one assignment after another,
        # the latest first. Meanwhile the others, which are faster, may begin the rest.
        waiting = [
            (number, loan)
            for number, loan in self.loans.lent.items()
            if loan.clock < clock and not loan.begun
        ]

        coming = any(loan.cancelled for _, loan in waiting) or any(
            errand.number is None for errand in self.errands
        )
        if waiting and not coming:
            self._cancel(*waiting[-1])

        if self.policy.heard and self.pace.latest:
            own = WorkerProgress(self.pace.progress, self.timer(), self.pace.latest)
            self._lend(self.policy.went_on(own, {loan.to for loan in self.loans.lent.values()}))

    def _cancel(self, number: int, loan: Loan) -> None:
        if not loan.begun and not loan.cancelled:
            loan.cancelled = True
            cancel_help = CancelHelp(self.context.epoch, self.context.node, number)
            self.context.send(loan.to, cancel_help)

    def recount(self) -> None:
        """The worker's shards have changed: its progress is measured again."""
        self.pace = WorkPace()

    def outstanding(self, shard: int) -> bool:
        """Whether chunks of a shard are lent, or came back and are not done yet."""
        lent = any(shard == cover[0] for loan in self.loans.lent.values() for cover in loan.covers)
        return lent or any(
            errand.number is None and shard in dict(errand.chunks) for errand in self.errands
        )


@dataclass(slots=True)
class ShardHandovers:
    """The shards of a worker. `promised` ones are given away at the end of their clock, to the node
    they name.

    Where workers help each other, a shard waits until nothing of it is lent: in `due` if only for
    that.
    """

    context: WorkerContext
    work: CountedWork
    shards: HeldShards = field(default_factory=HeldShards)
    promised: dict[int, str] = field(default_factory=dict)
    due: dict[int, str] = field(default_factory=dict)

    def begin(self, shards: Mapping[int, Remaining]) -> None:
        """An epoch begins with these shards."""
        self.promised.clear()
        self.due.clear()
        self.shards.restart(shards)

    def handle(self, order: TakeShard | GiveShard, helping: Helping | None) -> None:
        """Takes a shard over, or gives one away, now or once it may leave."""
        if isinstance(order, TakeShard):
            self.shards[order.shard] = Remaining(order.clock, order.chunks).counted(
                order.shard, self.work
            )
            if helping is not None:
                helping.recount()
            adopted = Adopted(self.context.node, self.context.epoch, order.shard)
            self.context.send(CONTROLLER, adopted)
            return

        shard = order.shard
        to = order.to
        if shard not in self.shards:
            if order.now:
                # The order crossed with the shard, which had been promised before.
                return
            raise InvalidTransition(
                f"{self.context.node} is to give shard {shard} to {to}, but does not have it"
            )

        ready = order.now or self.shards[shard].whole(shard, self.work)
        if helping is not None:
            helping.loans.kept_back.add(shard)
            # The later order replaces the earlier one.
            self.promised.pop(shard, None)
            self.due.pop(shard, None)
            # Until nothing of it is lent; see `give_unlent`.
            (self.due if ready else self.promised)[shard] = to
        elif ready:
            self._release(shard, to, None)
        else:
            self.promised[shard] = to

    def give_unlent(self, helping: Helping) -> None:
        """Gives away what was promised, as far as nothing of it is lent."""
        over = [
            (shard, to)
            for shard, to in self.promised.items()
            if self.shards[shard].whole(shard, self.work)
        ]
        for shard, to in [*self.due.items(), *over]:
            if not helping.outstanding(shard):
                self._release(shard, to, helping)

    def give_finished(self, shard: int) -> None:
        """A chunk of a shard is done: gives the shard away if that was promised and the clock is
        over.
        """
        if shard in self.promised and self.shards[shard].whole(shard, self.work):
            self._release(shard, self.promised[shard], None)

    def abandon(self, clock: int) -> None:
        """A clock has been decided: what is not done of it came too late."""
        for shard, left in list(self.shards.items()):
            if left.clock == clock:
                self.shards[shard] = left.counted(shard, self.work)

    def _release(self, shard: int, to: str, helping: Helping | None) -> None:
        self.promised.pop(shard, None)
        if helping is not None:
            self.due.pop(shard, None)
            helping.loans.kept_back.discard(shard)
            helping.recount()
        left = self.shards.pop(shard)
        take_shard = TakeShard(self.context.epoch, shard, left.clock, left.chunks)
        self.context.send(to, take_shard)
