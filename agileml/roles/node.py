"""A node of a job: its server and worker, message dispatch, and the separation of epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import get_args

from agileml.errors import BadArgument, InvalidTransition, check_flag, check_whole
from agileml.params import WIRES
from agileml.params.commit import CommitRule, Declarations
from agileml.params.layout import Layout, Params
from agileml.params.view import ParamCache
from agileml.params.wire import wire_of
from agileml.policies.flexrr import FlexRR
from agileml.policies.stragglers import Stragglers
from agileml.protocol.actions import CONTROLLER, Action, Exit, Send, State, Transition
from agileml.protocol.messages import (
    Accept,
    Collect,
    Drain,
    Drained,
    EndOfLife,
    EndOfLifeSeen,
    Enter,
    Evaluate,
    GiveShard,
    Handover,
    Hello,
    Leave,
    Limit,
    Move,
    NeedVersion,
    Patch,
    Pull,
    Push,
    Reads,
    Recover,
    Restore,
    Restored,
    Route,
    Routed,
    Saved,
    Snapshot,
    SquareOfAll,
    Stable,
    Table,
    TakeShard,
    Tally,
    Version,
)
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.partitions import ServingRules
from agileml.roles.server import Server
from agileml.roles.server_parts import Forged, check_speaker
from agileml.roles.version_requests import ServerTimes
from agileml.roles.work_exchange import Helping, HelpMessage
from agileml.roles.worker import Worker
from agileml.trainer import Shard, Trainer, initial_model
from agileml.transport import FrameLimits
from agileml.work import CountedWork, WorkPlan

MAX_PARTITIONS = 100_000
"""More would be a typing error."""

MIN_FRAME_BYTES = 128

MAX_EARLY = 100_000
"""Messages of epochs that have not begun, which others enter a moment before."""

_EPOCH_BEGINS = (Recover, Enter)


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings that all nodes of a job share. Messages with more than `frame_bytes` of arrays are
    sent in buckets.

    With `wire` `bf16` or `fp16`, the parameters that trainers read and the updates that they push
    are rounded to 16 bits; `fp32` leaves them as they are. None: as the trainer declares.
    `partitions` None: as many as suit the size of the model.
    """

    seed: int = 0
    partitions: int | None = None
    deterministic: bool = False
    slack: int | None = 0
    loss_sample: int = 256
    keeps: int = 8
    frame_bytes: int = FrameLimits().body_bytes
    stragglers: Stragglers = field(default_factory=Stragglers)
    wire: str | None = None

    def __post_init__(self) -> None:
        check_whole("seed", self.seed, 0)
        if self.partitions is not None:
            check_whole("partitions", self.partitions, 1, MAX_PARTITIONS)
        check_flag("deterministic", self.deterministic)
        if self.slack is not None:
            check_whole("slack", self.slack, 0)
        check_whole("loss_sample", self.loss_sample, 0)
        check_whole("keeps", self.keeps, 1)
        check_whole("frame_bytes", self.frame_bytes, MIN_FRAME_BYTES)

        if not isinstance(self.stragglers, Stragglers):
            raise BadArgument(
                f"stragglers is {self.stragglers!r}; it must be a text such as 'reassign'"
            )
        if self.wire is not None and self.wire not in WIRES:
            raise BadArgument(f"wire is {self.wire!r}; choose one of {', '.join(WIRES)}")


class NodeState(State):
    """The states of a node."""

    OUTSIDE = "in no epoch yet"
    RESTORING = "waits for versions of its partitions, from which the epoch starts"
    ACTIVE = "has all that it had at the start of the epoch"
    DRAINING = "holds nothing; waits until no message is in flight"


class Node:
    """A state machine: messages and finished work go in, actions come out. See `NodeState` and
    `TRANSITIONS`.
    """

    def __init__(
        self,
        name: str,
        trainer: Trainer,
        shards: Sequence[Shard],
        plan: WorkPlan,
        settings: JobSettings,
        layout: Layout,
        timer: Callable[[], float] = monotonic,
    ) -> None:
        declared = Declarations.of(trainer)
        rule = CommitRule(layout, declared)
        stragglers = settings.stragglers
        wire = wire_of(settings.wire or declared.wire, layout, declared.name)
        awaits = stragglers.wait_policy is not None
        declared.check_updates(layout, awaits=awaits)
        if awaits:
            plan = plan.rotating()

        self.name = name
        self.epoch = 0
        self.state = NodeState.OUTSIDE
        self.departure = Departure(name)
        self._out: list[Action] = []
        self._table = Table(0, (), (), ())
        self._early: list[tuple[object, str | None]] = []
        self._initial = _InitialModel(trainer, settings.seed, rule)
        chunk_runner = ChunkRunner(
            trainer,
            shards,
            ParamCache(layout, wire),
            seed=settings.seed,
            ordered=settings.deterministic,
            sample=settings.loss_sample,
        )

        work = CountedWork(plan, awaits)
        out = self._out
        worker = Worker(
            name,
            work,
            chunk_runner,
            settings.slack,
            settings.keeps,
            out,
            settings.frame_bytes,
        )

        reassignment = stragglers.reassignment
        if reassignment is not None:
            worker.helping = Helping(
                worker.context, work, worker.shards, timer, FlexRR(reassignment)
            )

        if stragglers.balance_servers:
            worker.requests.times = ServerTimes(name, out, timer)
        self.worker = worker
        fresh = settings.slack != 0 and declared.apply is None
        rules = ServingRules(CountedWork(plan, awaits), rule, settings.deterministic, fresh, wire)
        self.server = Server(
            name, rules, self._initial.version, out, timer if stragglers.balance_servers else None
        )

    def load(self) -> None:
        """Creates the initial model, before this node reports that it is ready."""
        self._initial.version(0)

    def hello(self, reliable: bool, code: str) -> Hello:
        """Introduces this node, also to a restarted controller."""
        return Hello(self.name, reliable, code, self.epoch, self.server.stable, self.server.holds())

    def handle(self, message: object, sender: str | None = None) -> list[Action]:
        """Processes a message and returns the actions that follow from it.

        `sender` is the process that sent it. Forged: it is not for that process to say.
        """
        if self._in_time(message, sender):
            self._step(message, sender)
            if self._early and isinstance(message, _EPOCH_BEGINS):
                early = self._early
                self._early = []
                for held, by in early:
                    if self._in_time(held, by):
                        self._step(held, by)
        return self._take_actions()

    def take_result(self, result: WorkResult) -> list[Action]:
        """Processes the result of a `Compute` action."""
        self.worker.receive(result)
        return self._take_actions()

    def lose_link(self) -> list[Action]:
        """Nothing: the controller gives up one of the two nodes."""
        return []

    def take_version(self, epoch: int, partition: int, version: Version) -> list[Action]:
        """Processes the result of a `Fetch` action."""
        if epoch == self.epoch:
            self._step(Restore(epoch, partition, version))
        return self._take_actions()

    def confirm_saved(self, epoch: int, partition: int, clock: int) -> list[Action]:
        """Processes the result of a `Save` action."""
        return [Send(CONTROLLER, Saved(self.name, epoch, partition, clock))]

    def _take_actions(self) -> list[Action]:
        if not self._out:
            return []
        actions = list(self._out)
        self._out.clear()
        if self.state is NodeState.DRAINING:
            self.departure.note_sent(actions)
        return actions

    # -- states ------------------------------------------------------------------------------------

    def _step(self, message: object, sender: str | None = None) -> None:
        if sender is not None and sender != CONTROLLER:
            check_speaker(sender, message, self.server.transit.former)
        before = self.state
        transition = TRANSITIONS[before][type(message)]
        transition.method(self)(message)
        if self.state is not before:
            transition.check(self.name, before, self.state, message)

    def _ignore(self, message: object) -> None:
        """The message means nothing in this state."""

    def _refuse(self, message: object) -> None:
        raise InvalidTransition(f"{self.name} is {self.state.name} and does not expect {message!r}")

    def _exit(self, message: Leave) -> None:
        self._out.append(Exit(message.reason))

    # -- epochs ------------------------------------------------------------------------------------

    def _in_time(self, message: object, sender: str | None) -> bool:
        """Whether a message belongs to this epoch; keeps messages of later epochs, drops those of
        earlier ones.
        """
        epoch = getattr(message, "epoch", self.epoch)
        if epoch > self.epoch and not isinstance(message, _EPOCH_BEGINS):
            if len(self._early) >= MAX_EARLY:
                raise Forged(
                    f"{sender} sent more than {MAX_EARLY} messages of epochs that have not begun"
                )
            self._early.append((message, sender))
            return False

        return bool(epoch >= self.epoch)

    def _enter(self, message: Enter) -> None:
        self._begin_epoch(message.epoch, message.table)
        self.state = NodeState.ACTIVE
        self._initial.forget()
        self.server.enter(message)
        self.worker.context.table = message.table
        self.worker.receive(message)

    def _recover(self, message: Recover) -> None:
        self._begin_epoch(message.epoch, message.table)
        self.state = NodeState.RESTORING
        self.server.recover(message)
        self._initial.forget()
        self.worker.receive(message)
        self._report_restored()

    def _begin_epoch(self, epoch: int, table: Table) -> None:
        self.epoch = epoch
        self._table = table
        self.departure.cancel()

    def _restore(self, message: Restore) -> None:
        self.server.restore(message.partition, message.version, self._table)
        self._report_restored()

    def _report_restored(self) -> None:
        if not self.server.restoring.awaited:
            self.state = NodeState.ACTIVE
            restored = Restored(self.name, self.epoch)
            self._out.append(Send(CONTROLLER, restored))

    # -- messages for server and worker ------------------------------------------------------------

    def _reroute(self, message: Route) -> None:
        if message.table.version > self._table.version:
            self._table = message.table
            self.server.reroute(message.table)
            self.worker.context.table = message.table
        routed = Routed(self.name, self.epoch, message.table.version)
        self._out.append(Send(CONTROLLER, routed))

    def _accept(self, message: Accept | Stable) -> None:
        if isinstance(message, Accept):
            self.server.accept(message)
        else:
            self.server.set_stable(message)
        self.worker.receive(message)

    # -- the end of a node -------------------------------------------------------------------------

    def _answer_mark(self, message: EndOfLife) -> None:
        """A peer leaves: nothing is sent to it any more."""
        self.server.forget(message.node)
        if self.worker.helping is not None:
            self.worker.helping.forget(message.node)
        end_of_life_seen = EndOfLifeSeen(self.epoch, self.name)
        self._out.append(Send(message.node, end_of_life_seen))

    def _drain(self, message: Drain) -> None:
        self.state = NodeState.DRAINING
        self._out.extend(self.departure.drain(message))

    def _count_answer(self, message: EndOfLifeSeen) -> None:
        self._out.extend(self.departure.answered(message))


class _InitialModel:
    """Version 0 of partitions. The model is created for the first, and forgotten after use: it
    takes memory.
    """

    def __init__(self, trainer: Trainer, seed: int, rule: CommitRule) -> None:
        self._trainer = trainer
        self._seed = seed
        self._rule = rule
        self._model: Params = {}

    def version(self, partition: int) -> Version:
        if not self._model:
            self._model = initial_model(self._trainer, self._seed)
        return Version(0, Tally(0, 0), self._rule.initial(partition, self._model))

    def forget(self) -> None:
        self._model = {}


# -- which message leads where ---------------------------------------------------------------------

_IN_EPOCH = {
    Recover: Transition(Node._recover, frozenset({NodeState.RESTORING, NodeState.ACTIVE})),
    # Only a node that was in no epoch enters one without a recovery.
    Enter: Transition(Node._refuse),
    # Its process ends; what still arrives until then is handled.
    Leave: Transition(Node._exit),
    Route: Transition(Node._reroute),
    **dict.fromkeys((Stable, Accept), Transition(Node._accept)),
    EndOfLife: Transition(Node._answer_mark),
    # Nothing was marked.
    EndOfLifeSeen: Transition(Node._ignore),
    # It was not requested, or is here already.
    Restore: Transition(Node._ignore),
    Push: Transition(Server.push, part="server"),
    Pull: Transition(Server.pull, part="server"),
    Reads: Transition(Server.set_reads, part="server"),
    Patch: Transition(Server.patch, part="server"),
    NeedVersion: Transition(Server.provide, part="server"),
    Handover: Transition(Server.take_over, part="server"),
    Move: Transition(Server.move, part="server"),
    Collect: Transition(Server.collect, part="server"),
    SquareOfAll: Transition(Server.take_square, part="server"),
    **dict.fromkeys(
        (Snapshot, TakeShard, GiveShard, Limit, Evaluate, *get_args(HelpMessage)),
        Transition(Worker.receive, part="worker"),
    ),
}

TRANSITIONS: dict[NodeState, dict[type, Transition]] = {
    NodeState.OUTSIDE: {
        **dict.fromkeys((*_IN_EPOCH, Drain), Transition(Node._refuse)),
        Recover: _IN_EPOCH[Recover],
        Enter: Transition(Node._enter, frozenset({NodeState.ACTIVE})),
        Leave: _IN_EPOCH[Leave],
    },
    NodeState.RESTORING: {
        **_IN_EPOCH,
        Restore: Transition(Node._restore, frozenset({NodeState.ACTIVE})),
        # The controller waits until the node has restored its partitions.
        Drain: Transition(Node._refuse),
    },
    NodeState.ACTIVE: {
        **_IN_EPOCH,
        Drain: Transition(Node._drain, frozenset({NodeState.DRAINING})),
    },
    NodeState.DRAINING: {
        **_IN_EPOCH,
        Drain: Transition(Node._drain),
        EndOfLifeSeen: Transition(Node._count_answer),
    },
}
"""How a node handles each message of its epoch in each state, and where that leads."""


@dataclass(slots=True)
class Departure:
    """The end-of-life marks of a node and the peers that have not answered.

    Links keep their order: once a peer has answered the mark, everything that the peer sent has
    arrived here, and everything sent before the mark has arrived there. Messages forwarded in the
    meantime need another round.
    """

    node: str
    _peers: set[str] = field(default_factory=set)
    _unanswered: set[str] = field(default_factory=set)
    _sent_work: bool = False

    def cancel(self) -> None:
        """An epoch begins in which the node stays."""
        self._peers = set()

    def drain(self, message: Drain) -> list[Send]:
        """Marks the links to all peers; a repeated order names fewer of them, as the others have
        left.
        """
        first = not self._peers
        self._peers = set(message.peers)
        marks = self._mark(message.epoch) if first else []
        self._unanswered &= self._peers
        return marks + self._continue(message.epoch)

    def answered(self, message: EndOfLifeSeen) -> list[Send]:
        """A peer has answered the mark."""
        self._unanswered.discard(message.node)
        return self._continue(message.epoch)

    def note_sent(self, actions: Sequence[Action]) -> None:
        """Remembers whether messages were sent to peers since the marks."""
        if self._peers and any(
            isinstance(action, Send)
            and action.to != CONTROLLER
            and not isinstance(action.message, EndOfLife | EndOfLifeSeen)
            for action in actions
        ):
            self._sent_work = True

    def _continue(self, epoch: int) -> list[Send]:
        """Once all have answered, marks the links again, or reports that nothing is in flight."""
        marks = self._mark(epoch) if not self._unanswered and self._sent_work else []
        if self._unanswered:
            return marks
        return [*marks, Send(CONTROLLER, Drained(self.node, epoch))]

    def _mark(self, epoch: int) -> list[Send]:
        self._unanswered = set(self._peers)
        self._sent_work = False
        return [Send(peer, EndOfLife(epoch, self.node)) for peer in sorted(self._peers)]
