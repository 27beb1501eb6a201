"""Deliberate bugs in servers, workers and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agileml.core.recovery import VersionLedger
from agileml.engines.sim.job import Machines
from agileml.engines.sim.network import Network
from agileml.params.deltas import Delta, accumulate
from agileml.protocol.actions import CONTROLLER, Send
from agileml.protocol.messages import (
    Drain,
    Drained,
    Handover,
    Pull,
    Push,
    Recover,
    Snapshot,
    Table,
    TakeShard,
    Version,
)
from agileml.roles import contributions, server
from agileml.roles.contributions import Position
from agileml.roles.node import Departure, Node
from agileml.roles.partitions import Commit, PendingClock, ServedPartition, keep_from
from agileml.roles.server import Server
from agileml.roles.worker import Worker
from agileml.work import CountedWork, Ranges
from tests.agileml import trials
from tests.agileml.mutation import Mutant, aims

_pull = Server.pull
_push, _take_over, _reroute, _patch = Server.push, Server.take_over, Server.reroute, Server._patch
_in_time = Node._in_time
_obey, _roll_back = Worker._obey, Worker._roll_back


def _without(out: list[Any], begin: int, kind: type) -> None:
    out[begin:] = [
        one for one in out[begin:] if not (isinstance(one, Send) and isinstance(one.message, kind))
    ]


def _no_forward(self: Server, message: Push) -> None:
    begin = len(self.out)
    _push(self, message)
    _without(self.out, begin, Push)


def _no_marks(self: Departure, message: Drain) -> list[Send]:
    return [Send(CONTROLLER, Drained(self.node, message.epoch))]


def _over_gaps(
    work: CountedWork, spans: Mapping[Position, int], shard: int, clock: int
) -> Position:
    ends = [(at.clock, last) for at, last in spans.items()]
    at, last = max(ends, default=(clock, work.plan.chunks(shard, max(clock, 1))))
    return Position(at, last) if last < work.plan.chunks(shard, max(at, 1)) else Position(at + 1, 0)


def _old_epochs_too(self: Node, message: object, sender: str | None) -> bool:
    return _in_time(self, message, sender) or getattr(message, "epoch", self.epoch) < self.epoch


def _early_ones_dropped(self: Node, message: object, sender: str | None) -> bool:
    in_time = _in_time(self, message, sender)
    self._early.clear()
    return in_time


def _too_early_forgotten(versions: dict[int, Version], clock: int) -> None:
    keep_from(versions, clock + 1)


def _safe_when_committed(self: VersionLedger, _: tuple[str, ...]) -> int:
    return self.reached


def _as_they_came(self: PendingClock) -> Delta | None:
    total: Delta | None = None
    for entry in self.entries:
        total = accumulate(total, entry.delta, self.by)
    return total


def _one_chunk_back(self: Worker, order: Any) -> None:  # noqa: ANN401
    if isinstance(order, TakeShard) and order.chunks.first:
        first = order.chunks.first
        order = replace(order, chunks=order.chunks | Ranges.of((first - 1, first)))
    _obey(self, order)


def _pending_left_behind(self: Server, message: Handover) -> None:
    _take_over(self, replace(message, pending=()))


def _waiters_left_behind(self: Server, message: Handover) -> None:
    _take_over(self, replace(message, waiting=()))


def _rows_left_out(self: Server, served: ServedPartition, commit: Commit) -> int:
    return _patch(self, served, commit._replace(changed=[*commit.changed[:-1], None]))


def _whatever_is_latest(self: Server, message: Pull) -> None:
    begin, served = len(self.out), self.served.get(message.partition)
    if served is not None and message.exact:
        message = replace(message, at_least=served.clock)
    _pull(self, message)
    for at, one in enumerate(self.out[begin:], start=begin):
        if isinstance(one, Send) and isinstance(one.message, Snapshot) and one.message.exact:
            self.out[at] = replace(one, message=replace(one.message, version=message.at_least))


def _nothing_sent_again(self: Worker, order: Recover) -> None:
    begin = len(self.context.out)
    _roll_back(self, order)
    _without(self.context.out, begin, Push)


def _late_routes_win(self: Worker, order: Recover) -> None:
    self.context.table = Table(-1, (), (), ())
    _roll_back(self, order)


def _dismissed_copies_dropped(self: Server, table: Table) -> None:
    _reroute(self, table)
    for partition in self.backups.dismissed:
        self.backups.copies.pop(partition, None)
    self.backups.dismissed.clear()


MOVES = aims("2 1 3", "warn one, warn half, join", "Move Handover")
LOSSES = aims("2 3 1", "kill one, kill half", "Push Snapshot")
DEPARTURES = aims("2 3 1", "warn one, warn half", "Push Pull Snapshot")
LATE_LOSSES = aims("2 3", "kill one, kill half, kill all", "PartitionProgress Patch")
SHARDS_MOVED = aims("2 3 1", "warn one, join", "WorkDone Push")
LOST = aims("2 3 1", "kill one", "Push")
NEW_BACKUPS = aims("2 3", "join reliable, warn reliable", "Push Snapshot")

SLOW_WORK = Machines(0.02, loading=0.005, detection=0.0005, network=Network(jitter=0.0001))
EVEN = Machines(0.001, loading=0.005, detection=0.0005, network=Network(jitter=0.005))
UNLIKE = Machines(0.001, loading=0.005, detection=0.0005, network=Network(jitter=0.01, skew=1.5))

OF_NODES = (
    Mutant(
        "a push after a partition that moved is not forwarded", Server, "push", _no_forward, MOVES
    ),
    Mutant(
        "a node leaves without end-of-life marks",
        Departure,
        "drain",
        _no_marks,
        DEPARTURES,
        machines=UNLIKE,
        slack=None,
    ),
    Mutant(
        "work after a gap is kept",
        contributions,
        "_walk",
        _over_gaps,
        SHARDS_MOVED,
        ("kill one", "Adopted"),
        EVEN,
        slack=2,
    ),
    Mutant("messages of earlier epochs are handled", Node, "_in_time", _old_epochs_too, LOSSES),
    Mutant("messages of later epochs are dropped", Node, "_in_time", _early_ones_dropped, LOSSES),
    Mutant(
        "a server forgets a version too early",
        server,
        "keep_from",
        _too_early_forgotten,
        LATE_LOSSES,
    ),
    Mutant(
        "a committed version counts as safe",
        VersionLedger,
        "safe",
        _safe_when_committed,
        LATE_LOSSES,
    ),
    Mutant(
        "contributions are summed in the order of arrival",
        PendingClock,
        "summed",
        _as_they_came,
        LOSSES,
    ),
    Mutant("a shard is continued one chunk too early", Worker, "_obey", _one_chunk_back, MOVES),
    Mutant(
        "a partition moves without its contributions",
        Server,
        "take_over",
        _pending_left_behind,
        MOVES,
    ),
    Mutant(
        "a partition moves without its waiting workers",
        Server,
        "take_over",
        _waiters_left_behind,
        MOVES,
    ),
    Mutant(
        "rows that changed are not sent to the backup",
        Server,
        "_patch",
        _rows_left_out,
        LATE_LOSSES,
    ),
    Mutant(
        "the loss is that of a later model",
        Server,
        "pull",
        _whatever_is_latest,
        trial=trials.the_loss_is_that_of_the_final_model,
    ),
    Mutant(
        "kept contributions are not sent again", Worker, "_roll_back", _nothing_sent_again, LOSSES
    ),
    Mutant(
        "routes of a late recovery replace newer ones",
        Worker,
        "_roll_back",
        _late_routes_win,
        LOST,
        ("warn half", "Restored"),
        SLOW_WORK,
    ),
    Mutant(
        "a former backup forgets its versions at once",
        Server,
        "reroute",
        _dismissed_copies_dropped,
        NEW_BACKUPS,
        ("kill one", "Route"),
    ),
)
