"""One machine of a job: its server and its worker behind one door, and the fence between epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agileml.core.work import Plan
from agileml.params.commit import CommitRule
from agileml.params.declarations import Declarations
from agileml.params.layout import Layout, Params
from agileml.params.view import ParamCache
from agileml.protocol.actions import CONTROLLER, Action, Exit, Send
from agileml.protocol.messages import (
    Collect,
    Drain,
    Drained,
    EndOfLife,
    EndOfLifeSeen,
    Enter,
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
from agileml.roles.chunk_runner import ChunkRunner, Done
from agileml.roles.server import Server
from agileml.roles.worker import Worker
from agileml.trainer import Shard, Trainer, initial_model

Taker = Callable[[Any], None]
"""Takes messages of one kind."""


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What all nodes of a job agree on."""

    seed: int = 0
    partitions: int = 8
    deterministic: bool = False
    slack: int | None = 0
    loss_sample: int = 256
    keeps: int = 8


class Node:
    """A state machine: messages and finished chunks go in, actions come out."""

    def __init__(
        self, name: str, trainer: Trainer, shards: Sequence[Shard], plan: Plan, settings: JobSettings, layout: Layout
    ) -> None:
        declared = Declarations.of(trainer)
        rule = CommitRule(layout, declared)
        self.name = name
        self._out: list[Action] = []
        self._table = Table(0, (), (), ())
        self._early: list[object] = []
        self._peers: set[str] = set()
        self._unseen: set[str] = set()
        self._restoring = False
        self._spoke = False
        self.epoch = 0
        self.chunk_runner = ChunkRunner(
            trainer,
            shards,
            ParamCache(layout),
            seed=settings.seed,
            ordered=settings.deterministic,
            sample=settings.loss_sample,
        )
        self.worker = Worker(name, plan, self.chunk_runner, settings.slack, settings.keeps, self._out)
        self.server = Server(
            name,
            plan,
            rule,
            _initial_versions(trainer, settings.seed, rule),
            settings.deterministic,
            settings.slack != 0 and declared.apply is None,
            self._out,
        )
        self._takers = self._by_kind()

    def _by_kind(self) -> dict[type, Taker]:
        server, worker = self.server, self.worker
        return {
            Recover: self._recover,
            Enter: self._enter,
            Route: self._reroute,
            Drain: self._end,
            EndOfLife: self._end,
            EndOfLifeSeen: self._end,
            Stable: self._settle,
            Restore: self._restore,
            Push: server.push,
            Pull: server.pull,
            Reads: server.heed,
            Patch: server.patch,
            NeedVersion: server.provide,
            Handover: server.take_over,
            Move: server.move,
            Collect: server.collect,
            Snapshot: worker.tell,
            TakeShard: worker.tell,
            GiveShard: worker.tell,
            Limit: worker.tell,
        }

    def load(self) -> None:
        """Have the user's code make the initial model, before this node says that it is ready."""
        self.server.initial(0)

    def hello(self, reliable: bool, code: str) -> Hello:
        """Who this is, for a controller that may have to learn it again."""
        return Hello(self.name, reliable, code, self.epoch, self.server.stable, self.server.holds())

    def handle(self, message: object) -> list[Action]:
        """Take a message; what is to be done about it."""
        if isinstance(message, Leave):
            return [Exit(message.reason)]
        if self._in_time(message):
            self._takers[type(message)](message)
        return self._taken()

    def computed(self, result: Done) -> list[Action]:
        """The chunk that was asked for is done."""
        self.worker.done(result)
        return self._taken()

    def fetched(self, epoch: int, partition: int, version: Version) -> list[Action]:
        """A version has been read from the checkpoint."""
        if epoch == self.epoch:
            self._restore(Restore(epoch, partition, version))
        return self._taken()

    def saved(self, epoch: int, partition: int, clock: int) -> list[Action]:
        """A version has been written to the checkpoint."""
        return [Send(CONTROLLER, Saved(self.name, epoch, partition, clock))]

    def _taken(self) -> list[Action]:
        actions = list(self._out)
        self._out.clear()
        if self._peers and any(isinstance(action, Send) and self._is_work(action) for action in actions):
            self._spoke = True
        return actions

    @staticmethod
    def _is_work(action: Send) -> bool:
        return action.to != CONTROLLER and not isinstance(action.message, EndOfLife | EndOfLifeSeen)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def _in_time(self, message: object) -> bool:
        """Whether it belongs to this epoch; what is early waits, what is late is dropped."""
        epoch = getattr(message, "epoch", self.epoch)
        if epoch > self.epoch and not isinstance(message, Recover | Enter):
            self._early.append(message)
            return False
        return bool(epoch >= self.epoch)

    def _enter(self, message: Enter) -> None:
        self._begin_epoch(message.epoch, message.table)
        self.server.epoch, self.server.stable = message.epoch, message.stable
        self.worker.table = message.table
        self.worker.tell(message)
        self._replay()

    def _settle(self, message: Stable) -> None:
        self.server.settle(message)
        self.worker.tell(message)

    def _restore(self, message: Restore) -> None:
        self.server.restore(message.partition, message.version, self._table)
        self._report_restored()

    def _recover(self, message: Recover) -> None:
        self._begin_epoch(message.epoch, message.table)
        self._restoring = True
        self.server.recover(message)
        self.worker.tell(message)
        self._report_restored()
        self._replay()

    def _begin_epoch(self, epoch: int, table: Table) -> None:
        self.epoch, self._table, self._peers = epoch, table, set()

    def _replay(self) -> None:
        early, self._early = self._early, []
        for message in early:
            if self._in_time(message):
                self._takers[type(message)](message)

    def _report_restored(self) -> None:
        if self._restoring and not self.server.wanted:
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
        """Before a node goes, nothing may be under way from it or to it.

        Links keep their order: once a peer's answer to the mark is here, so is all it ever sent here, and all that was
        sent to it before the mark is there. What was forwarded meanwhile needs another round.
        """
        match message:
            case EndOfLife():
                self.server.forget(message.node)
                self._out.append(Send(message.node, EndOfLifeSeen(self.epoch, self.name)))
                return
            case Drain():
                first, self._peers = not self._peers, set(message.peers)
                if first:
                    self._mark()
                self._unseen &= self._peers
            case EndOfLifeSeen():
                self._unseen.discard(message.node)
        if not self._unseen and self._spoke:
            self._mark()
        if not self._unseen:
            self._out.append(Send(CONTROLLER, Drained(self.name, self.epoch)))

    def _mark(self) -> None:
        self._unseen, self._spoke = set(self._peers), False
        self._out.extend(Send(peer, EndOfLife(self.epoch, self.name)) for peer in sorted(self._peers))


def _initial_versions(trainer: Trainer, seed: int, rule: CommitRule) -> Callable[[int], Version]:
    """Version 0 of partitions; the model is made once, when the first is asked for."""
    model: Params = {}

    def version(partition: int) -> Version:
        if not model:
            model.update(initial_model(trainer, seed))
        return Version(0, Tally(0, 0), rule.initial(partition, model))

    return version
