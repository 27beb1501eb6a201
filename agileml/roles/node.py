"""A node of a job: its server and worker, message dispatch, and the separation of epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, get_args

from agileml.checks import check_flag, check_whole
from agileml.errors import BadArgument
from agileml.params.commit import CommitRule
from agileml.params.declarations import Declarations
from agileml.params.layout import Layout, Params
from agileml.params.view import ParamCache
from agileml.params.wire import wire_of
from agileml.params.wire_names import WIRES
from agileml.policies.flexrr import FlexRR
from agileml.policies.stragglers import Stragglers
from agileml.protocol.actions import CONTROLLER, Action, Exit, Send
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
    Stable,
    Table,
    TakeShard,
    Tally,
    Version,
)
from agileml.roles.chunk_runner import ChunkRunner, WorkResult
from agileml.roles.helping import Helping, HelpMessage
from agileml.roles.server import Server
from agileml.roles.server_times import ServerTimes
from agileml.roles.worker import Worker
from agileml.trainer import Shard, Trainer, initial_model
from agileml.transport import FrameLimits
from agileml.work.counted import CountedWork
from agileml.work.plan import WorkPlan

MOST_PARTITIONS = 100_000
"""More would be a typing error."""

LEAST_FRAME_BYTES = 128

MessageHandler = Callable[[Any], None]
"""Handles messages of one kind."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Settings that all nodes of a job share. Messages with more than `frame_bytes` of arrays are sent in buckets.

    With `wire` `bf16` or `fp16`, the parameters that trainers read and the updates that they push are rounded to 16
    bits; `fp32` leaves them as they are. None: as the trainer declares.
    """

    seed: int = 0
    partitions: int = 8
    deterministic: bool = False
    slack: int | None = 0
    loss_sample: int = 256
    keeps: int = 8
    frame_bytes: int = FrameLimits().body_bytes
    stragglers: Stragglers = field(default_factory=Stragglers)
    wire: str | None = None

    def __post_init__(self) -> None:
        check_whole("seed", self.seed, 0)
        check_whole("partitions", self.partitions, 1, MOST_PARTITIONS)
        check_flag("deterministic", self.deterministic)
        if self.slack is not None:
            check_whole("slack", self.slack, 0)
        check_whole("loss_sample", self.loss_sample, 0)
        check_whole("keeps", self.keeps, 1)
        check_whole("frame_bytes", self.frame_bytes, LEAST_FRAME_BYTES)
        if not isinstance(self.stragglers, Stragglers):
            raise BadArgument(f"stragglers is {self.stragglers!r}; it must be a text such as 'reassign'")
        if self.wire is not None and self.wire not in WIRES:
            raise BadArgument(f"wire is {self.wire!r}; choose one of {', '.join(WIRES)}")


class Node:
    """A state machine: messages and finished work go in, actions come out."""

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
        wire = wire_of(settings.wire or declared.wire, layout, declared.name)
        self.name = name
        self._out: list[Action] = []
        self._table = Table(0, (), (), ())
        self._early: list[object] = []
        self._drain_peers: set[str] = set()
        self._unanswered: set[str] = set()
        self._restoring = False
        self._sent_work = False
        self.epoch = 0
        self._initial = _InitialModel(trainer, settings.seed, rule)
        self.chunk_runner = ChunkRunner(
            trainer,
            shards,
            ParamCache(layout, wire),
            seed=settings.seed,
            ordered=settings.deterministic,
            sample=settings.loss_sample,
        )
        awaits = settings.stragglers.wait_policy is not None
        if awaits:
            declared.check_mean(layout)
        self.worker = Worker(
            name, CountedWork(plan, awaits), self.chunk_runner, settings.slack, settings.keeps, self._out
        )
        self.worker.frame_bytes = settings.frame_bytes
        if (reassignment := settings.stragglers.reassignment) is not None:
            policy = FlexRR(reassignment)
            self.worker.helping = Helping(name, self.worker.work, self.worker.shards, self._out, timer, policy)
        if settings.stragglers.balance_servers:
            self.worker.times = ServerTimes(name, self._out, timer)
        self.server = Server(
            name,
            CountedWork(plan, awaits),
            rule,
            self._initial.version,
            settings.deterministic,
            settings.slack != 0 and declared.apply is None,
            self._out,
            timer=timer if settings.stragglers.balance_servers else None,
            wire=wire,
        )
        self._handlers = self._handlers_by_kind()

    def _handlers_by_kind(self) -> dict[type, MessageHandler]:
        server, worker = self.server, self.worker
        return {
            Recover: self._recover,
            Enter: self._enter,
            Route: self._reroute,
            Drain: self._end,
            EndOfLife: self._end,
            EndOfLifeSeen: self._end,
            Stable: self._advance_stable,
            Restore: self._restore,
            Push: server.push,
            Pull: server.pull,
            Reads: server.set_reads,
            Accept: self._accept,
            Patch: server.patch,
            NeedVersion: server.provide,
            Handover: server.take_over,
            Move: server.move,
            Collect: server.collect,
            Snapshot: worker.receive,
            TakeShard: worker.receive,
            GiveShard: worker.receive,
            Limit: worker.receive,
            Evaluate: worker.receive,
            **dict.fromkeys(get_args(HelpMessage), worker.receive),
        }

    def _accept(self, message: Accept) -> None:
        self.server.accept(message)
        self.worker.receive(message)

    def load(self) -> None:
        """Creates the initial model, before this node reports that it is ready."""
        self.server.initial(0)

    def hello(self, reliable: bool, code: str) -> Hello:
        """Introduces this node, also to a restarted controller."""
        return Hello(self.name, reliable, code, self.epoch, self.server.stable, self.server.holds())

    def handle(self, message: object) -> list[Action]:
        """Processes a message and returns the actions that follow from it."""
        if isinstance(message, Leave):
            return [Exit(message.reason)]
        if self._in_time(message):
            self._handlers[type(message)](message)
        return self._take_actions()

    def take_result(self, result: WorkResult) -> list[Action]:
        """Processes the result of a `Compute` action."""
        self.worker.finish(result)
        return self._take_actions()

    def take_version(self, epoch: int, partition: int, version: Version) -> list[Action]:
        """Processes the result of a `Fetch` action."""
        if epoch == self.epoch:
            self._restore(Restore(epoch, partition, version))
        return self._take_actions()

    def confirm_saved(self, epoch: int, partition: int, clock: int) -> list[Action]:
        """Processes the result of a `Save` action."""
        return [Send(CONTROLLER, Saved(self.name, epoch, partition, clock))]

    def _take_actions(self) -> list[Action]:
        actions = list(self._out)
        self._out.clear()
        if self._drain_peers and any(isinstance(action, Send) and self._is_work(action) for action in actions):
            self._sent_work = True
        return actions

    @staticmethod
    def _is_work(action: Send) -> bool:
        return action.to != CONTROLLER and not isinstance(action.message, EndOfLife | EndOfLifeSeen)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def _in_time(self, message: object) -> bool:
        """Whether a message belongs to this epoch; keeps messages of later epochs, drops those of earlier ones."""
        epoch = getattr(message, "epoch", self.epoch)
        if epoch > self.epoch and not isinstance(message, Recover | Enter):
            self._early.append(message)
            return False
        return bool(epoch >= self.epoch)

    def _enter(self, message: Enter) -> None:
        self._begin_epoch(message.epoch, message.table)
        self.server.epoch, self.server.stable = message.epoch, message.stable
        self.server.work.reset(message.stable, message.decided)
        self._initial.forget()
        self.worker.table = message.table
        self.worker.receive(message)
        self._handle_early()

    def _advance_stable(self, message: Stable) -> None:
        self.server.set_stable(message)
        self.worker.receive(message)

    def _restore(self, message: Restore) -> None:
        self.server.restore(message.partition, message.version, self._table)
        self._report_restored()

    def _recover(self, message: Recover) -> None:
        self._begin_epoch(message.epoch, message.table)
        self._restoring = True
        self.server.recover(message)
        self._initial.forget()
        self.worker.receive(message)
        self._report_restored()
        self._handle_early()

    def _begin_epoch(self, epoch: int, table: Table) -> None:
        self.epoch, self._table, self._drain_peers = epoch, table, set()

    def _handle_early(self) -> None:
        early, self._early = self._early, []
        for message in early:
            if self._in_time(message):
                self._handlers[type(message)](message)

    def _report_restored(self) -> None:
        if self._restoring and not self.server.awaited:
            self._restoring = False
            self._out.append(Send(CONTROLLER, Restored(self.name, self.epoch)))

    def _reroute(self, message: Route) -> None:
        if message.table.version > self._table.version:
            self._table = message.table
            self.server.reroute(message.table)
            self.worker.table = message.table
        self._out.append(Send(CONTROLLER, Routed(self.name, self.epoch, message.table.version)))

    # -- the end of a node ---------------------------------------------------------------------------------------------

    def _end(self, message: Drain | EndOfLife | EndOfLifeSeen) -> None:
        """Before a node leaves, no message may be in flight from it or to it.

        Links keep their order: once a peer has answered the end-of-life mark, everything that the peer sent has
        arrived here, and everything sent before the mark has arrived there. Messages forwarded in the meantime need
        another round.
        """
        match message:
            case EndOfLife():
                self.server.forget(message.node)
                if self.worker.helping is not None:
                    self.worker.helping.forget(message.node)
                self._out.append(Send(message.node, EndOfLifeSeen(self.epoch, self.name)))
                return
            case Drain():
                first, self._drain_peers = not self._drain_peers, set(message.peers)
                if first:
                    self._mark()
                self._unanswered &= self._drain_peers
            case EndOfLifeSeen():
                self._unanswered.discard(message.node)
        if not self._unanswered and self._sent_work:
            self._mark()
        if not self._unanswered:
            self._out.append(Send(CONTROLLER, Drained(self.name, self.epoch)))

    def _mark(self) -> None:
        self._unanswered, self._sent_work = set(self._drain_peers), False
        self._out.extend(Send(peer, EndOfLife(self.epoch, self.name)) for peer in sorted(self._drain_peers))


class _InitialModel:
    """Version 0 of partitions. The model is created for the first, and forgotten after use: it takes memory."""

    def __init__(self, trainer: Trainer, seed: int, rule: CommitRule) -> None:
        self._trainer, self._seed, self._rule = trainer, seed, rule
        self._model: Params = {}

    def version(self, partition: int) -> Version:
        if not self._model:
            self._model = initial_model(self._trainer, self._seed)
        return Version(0, Tally(0, 0), self._rule.initial(partition, self._model))

    def forget(self) -> None:
        self._model = {}
