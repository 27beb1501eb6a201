"""The worker of a node: which work it does next, what it sends, and what it keeps until the result
is safe.

Every shard has its own remaining work, so that a shard that changes hands continues where it was.
The worker processes its messages between two pieces of work; only then does it give shards away,
take them over, or roll back: see `WorkerState` and `TRANSITIONS`. `Snapshot` and messages about
help do not wait for the end of a chunk.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

from agileml.errors import InvalidTransition
from agileml.params.view import NEVER
from agileml.protocol.actions import (
    CONTROLLER,
    Action,
    Chunk,
    Compute,
    Evaluation,
    State,
    Transition,
)
from agileml.protocol.messages import (
    Accept,
    Enter,
    Evaluate,
    Evaluated,
    GiveShard,
    Limit,
    Recover,
    Snapshot,
    Stable,
    TakeShard,
)
from agileml.roles.chunk_runner import ChunkRunner, WorkerContext, WorkResult
from agileml.roles.contributions import (
    Contributions,
    HeldShards,
    Remaining,
    reusable,
)
from agileml.roles.version_requests import VersionRequests
from agileml.roles.work_exchange import Helping, HelpMessage, ShardHandovers
from agileml.transport import FrameLimits
from agileml.work import CountedWork

WorkerMessage = (
    Recover
    | Snapshot
    | TakeShard
    | GiveShard
    | Limit
    | Stable
    | Enter
    | Evaluate
    | Accept
    | HelpMessage
)
"""Messages that a worker processes."""


class WorkerState(State):
    """The states of a worker."""

    IDLE = (
        "has nothing to compute: no shard, none before the limit, or its clock is being decided "
        "without it"
    )
    WAITING = "waits for versions that it has requested"
    COMPUTING = "computes a chunk"
    FETCHING = "all clocks are done; waits for the final version"
    EVALUATING = "computes a shard's part of the final loss"
    EVALUATED = "has computed the final loss on all its shards"


AT_WORK = frozenset({WorkerState.IDLE, WorkerState.WAITING, WorkerState.COMPUTING})
AT_THE_END = frozenset({WorkerState.FETCHING, WorkerState.EVALUATING, WorkerState.EVALUATED})
BUSY = frozenset({WorkerState.COMPUTING, WorkerState.EVALUATING})
"""In these states the user's code runs."""


@dataclass(slots=True)
class FinalEvaluation:
    """The final version, once its loss is to be computed, and the shards whose part of it has been
    reported.
    """

    clock: int | None = None
    requested: bool = False
    evaluated: set[int] = field(default_factory=set)


class Worker:
    """The state machine of one worker. `slack`: clocks it may run ahead of the versions it has
    seen; None: no limit.
    """

    def __init__(
        self,
        node: str,
        work: CountedWork,
        chunk_runner: ChunkRunner,
        slack: int | None,
        keeps: int,
        out: list[Action],
        frame_bytes: int = FrameLimits().body_bytes,
    ) -> None:
        self.context = WorkerContext(node, out)
        self.state = WorkerState.IDLE
        self.work = work
        self.chunk_runner = chunk_runner
        self.requests = VersionRequests(self.context, chunk_runner, slack)
        self.contributions = Contributions(self.context, work, chunk_runner, keeps, frame_bytes)
        self.handovers = ShardHandovers(self.context, work)
        self.final = FinalEvaluation()
        self.helping: Helping | None = None
        """Work that is lent and borrowed; None if workers do not help each other."""
        self._inbox: deque[WorkerMessage] = deque()

    @property
    def shards(self) -> HeldShards:
        """The shards with what is left of each."""
        return self.handovers.shards

    # -- messages ----------------------------------------------------------------------------------

    def receive(self, message: WorkerMessage | WorkResult) -> None:
        """Processes an order, at once or after the current work, or the result of that."""
        before = self.state
        transition = TRANSITIONS[before][type(message)]
        transition.method(self)(message)
        if self.state is not before:
            transition.check(self.context.node, before, self.state, message)

    def _obey_now(self, order: WorkerMessage) -> None:
        self._inbox.append(order)
        self._continue()

    def _obey_later(self, order: WorkerMessage) -> None:
        if isinstance(order, Snapshot):
            self.requests.measure(order)
        self._inbox.append(order)

    def _take_snapshot_now(self, snapshot: Snapshot) -> None:
        if self.requests.times is not None:
            self.requests.measure(snapshot)
        self._take_snapshot(snapshot)
        if not self.requests.awaited:
            self._continue()

    def _help(self, order: HelpMessage) -> None:
        if self.helping is not None and order.epoch == self.context.epoch:
            self.helping.receive(order)
        else:
            self._inbox.append(order)
        if self.state not in BUSY:
            self._continue()

    def _refuse(self, message: object) -> None:
        raise InvalidTransition(
            f"{self.context.node} is {self.state.name} and does not expect {message!r}"
        )

    def _finish_evaluation(self, result: WorkResult) -> None:
        work = result.work
        context = self.context
        self.final.evaluated.add(work.data)
        sums = result.loss_sum, result.loss_count
        evaluated = Evaluated(context.node, work.epoch, work.clock, work.data, *sums)
        context.send(CONTROLLER, evaluated)
        self._continue()

    def _finish_chunk(self, result: WorkResult) -> None:
        chunk = result.work
        assert isinstance(chunk, Chunk)
        if result.missed:
            self.requests.distrust(result.missed)
            self._continue()
            return

        borrowed = self.helping is not None and self.helping.finish(chunk, result.seconds)
        self.contributions.add(chunk, result, own=not borrowed)
        if borrowed:
            self._continue()
            return

        self.shards[chunk.shard] = self.shards[chunk.shard].after(
            chunk.chunk, chunk.shard, self.work
        )
        self._continue(chunk.shard)

    def _continue(self, advanced: int = -1) -> None:
        """Obeys waiting orders and continues; `advanced` is the shard of the chunk that has just
        been done.
        """
        while self._inbox:
            self._obey(self._inbox.popleft())
        if self.helping is not None:
            self.handovers.give_unlent(self.helping)
            self.helping.settle()
        else:
            self.handovers.give_finished(advanced)

        # Sends the contributions to all clocks that every shard of this worker has passed.
        behind = self.shards.first()
        for clock in sorted(self.contributions.open):
            if behind is not None and behind[0].clock <= clock:
                break
            # More of what is done for others will follow: the contribution can wait for it.
            errands = () if self.helping is None else self.helping.errands
            if any(errand.clock == clock and errand.begun for errand in errands):
                continue
            # The version that the clock after this one needs is requested with the push.
            goes_on = bool(self.shards) and clock + 1 <= self.context.limit
            want = (
                self.requests.oldest(clock + 1)
                if self.contributions.open[clock].own and goes_on
                else NEVER
            )
            contribution = self.contributions.close(clock)
            if want != NEVER:
                self.requests.send_reads(
                    {self.work.plan.shard_at(shard, clock + 1) for shard in self.shards}
                )
            self.contributions.send(contribution, self.requests, want)

        self.state = self._begin()

    def _obey(self, order: WorkerMessage) -> None:
        match order:
            case Snapshot():
                self._take_snapshot(order)
            case TakeShard() | GiveShard():
                self.handovers.handle(order, self.helping)
            case Limit():
                self.context.limit = order.clock
            case Evaluate():
                self.final.clock = order.clock
            case Stable():
                self.contributions.forget_until(order.clock)
            case Accept():
                self._abandon(order)
            case Enter():
                self.context.epoch = order.epoch
                self.context.limit = order.limit
                self.work.reset(order.stable, order.decided)
                self._reset_helping()
            case Recover():
                self._roll_back(order)
            case _ if self.helping is not None:
                self.helping.receive(order)

    def _reset_helping(self) -> None:
        if self.helping is not None:
            self.helping.reset()
        if self.requests.times is not None:
            self.requests.times.reset()

    def _take_snapshot(self, snapshot: Snapshot) -> None:
        self.contributions.forget_until(snapshot.stable)
        # Otherwise the snapshot was requested for work that is over.
        if snapshot.exact or not self.final.requested:
            self.requests.take(snapshot)

    # -- work --------------------------------------------------------------------------------------

    def _begin(self) -> WorkerState:
        """Starts the chunk that is furthest behind if the versions it needs are cached; else
        requests those.
        """
        if self.final.clock is not None:
            return self._evaluate(self.final.clock)

        clock, shard, number = self._next() or (NEVER, -1, -1)
        if clock == NEVER or clock > self.context.limit:
            if self.requests.awaited:
                return WorkerState.WAITING
            return WorkerState.IDLE

        self.requests.request(clock)
        if self.requests.awaited:
            return WorkerState.WAITING
        if self.requests.slack == 0 and max(self.chunk_runner.cache.clocks) >= clock:
            if self.work.awaits:
                # The clock was decided without this chunk; the decision comes over another link
                # than its version.
                return WorkerState.IDLE
            raise InvalidTransition(
                f"{self.context.node}: chunk {number} of shard {shard} belongs to clock {clock},"
                f" but the node has seen version {max(self.chunk_runner.cache.clocks)}"
            )

        low, high = self.work.plan.bounds(shard, clock, number)
        data = self.work.plan.shard_at(shard, clock)
        chunk = Chunk(self.context.epoch, clock, shard, number, low, high, data)
        if self.helping is not None:
            self.helping.begin(chunk)
        self.context.out.append(Compute(chunk))

        return WorkerState.COMPUTING

    def _next(self) -> tuple[int, int, int] | None:
        """Clock, shard and number of the chunk to compute next."""
        if self.helping is not None and (borrowed := self.helping.next()) is not None:
            return borrowed
        behind = self.shards.first()
        if behind is None:
            return None
        return (behind[0].clock, behind[1], behind[0].chunk)

    def _evaluate(self, clock: int) -> WorkerState:
        """Starts to compute the loss of the final version on the next shard; requests that version
        before the first.
        """
        done = self.final.evaluated
        sampled = self.chunk_runner.sampled
        left = (shard for shard in sampled if shard in self.shards and shard not in done)
        shard = next(left, None)
        if shard is not None and not self.final.requested:
            self.final.requested = True
            self.requests.request_final(clock)

        if self.requests.awaited:
            return WorkerState.FETCHING
        if shard is None:
            return WorkerState.EVALUATED

        evaluation = Evaluation(self.context.epoch, clock, shard, sampled[shard])
        self.context.out.append(Compute(evaluation))
        return WorkerState.EVALUATING

    def _abandon(self, order: Accept) -> None:
        """Goes on with the next clock: what is not done of this one, or not sent, came too late."""
        self.work.decide([(order.clock, order.covers)])
        self.contributions.abandon(order.clock)
        self.handovers.abandon(order.clock)
        if self.helping is not None:
            self.helping.abandon(order.clock)
            return
        for shard in list(self.handovers.promised):
            self.handovers.give_finished(shard)

    # -- rollback ----------------------------------------------------------------------------------

    def _roll_back(self, order: Recover) -> None:
        """Continues from version `clock`: sends again the contributions that still count, and
        redoes the rest.
        """
        context = self.context
        contributions = self.contributions
        for clock in sorted(contributions.open):
            contributions.close(clock)
        context.epoch = order.epoch
        context.limit = order.limit
        self.work.reset(order.clock, order.decided)

        # While the worker was busy, its node may have received later routes than these.
        if order.table.version > context.table.version:
            context.table = order.table
        self.requests.begin()
        self.final = FinalEvaluation()
        mine = {shard for shard, worker in enumerate(order.table.workers) if worker == context.node}
        contributions.kept, positions = reusable(
            self.work, contributions.counting(), mine, order.clock
        )
        self.handovers.begin(
            {shard: Remaining.at(at, shard, self.work) for shard, at in positions.items()}
        )
        self._reset_helping()
        for contribution in contributions.kept:
            contributions.send(contribution, self.requests)


# -- which message leads where ---------------------------------------------------------------------

_ORDERS = (TakeShard, GiveShard, Limit, Stable, Enter, Accept)
_HELP = get_args(HelpMessage)


def _between_chunks(among: frozenset[WorkerState]) -> dict[type, Transition]:
    return {
        **dict.fromkeys(_ORDERS, Transition(Worker._obey_now, among)),
        Snapshot: Transition(Worker._take_snapshot_now, among),
        # A worker that does not help others ignores these.
        **dict.fromkeys(_HELP, Transition(Worker._help, among)),
        Evaluate: Transition(Worker._obey_now, AT_THE_END),
        Recover: Transition(Worker._obey_now, AT_WORK),
        WorkResult: Transition(Worker._refuse),
    }


def _while_busy(finish: Callable[..., None]) -> dict[type, Transition]:
    return {
        **dict.fromkeys((*_ORDERS, Snapshot, Evaluate, Recover), Transition(Worker._obey_later)),
        # At once, as the other side waits.
        **dict.fromkeys(_HELP, Transition(Worker._help)),
        # The orders that waited are obeyed first.
        WorkResult: Transition(finish, AT_WORK | AT_THE_END),
    }


TRANSITIONS: dict[WorkerState, dict[type, Transition]] = {
    WorkerState.IDLE: _between_chunks(AT_WORK),
    WorkerState.WAITING: _between_chunks(AT_WORK),
    WorkerState.COMPUTING: _while_busy(Worker._finish_chunk),
    WorkerState.FETCHING: _between_chunks(AT_THE_END),
    WorkerState.EVALUATING: _while_busy(Worker._finish_evaluation),
    WorkerState.EVALUATED: _between_chunks(AT_THE_END),
}
"""How a worker handles each message in each state, and where that leads."""
