"""Planned changes: where partitions and shards should be, and the moves that lead there while training continues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agileml.core.assignment import Assignment
from agileml.core.members import IN_EPOCH, Members, NodePhase
from agileml.core.placement import Footprint, may_serve, target_table
from agileml.policies.flexrr import help_groups
from agileml.policies.psld import PSLD, ServerPlace
from agileml.protocol.actions import Send
from agileml.protocol.messages import HelpGroup, Move, Route, ServerTimed, Table, Taken


@dataclass(slots=True)
class ServerBalance:
    """The measurements so far, and where partitions are to be served because of them.

    `placed` is the server of each partition, empty without measurements; `more` transient nodes than usual may serve.
    """

    policy: PSLD = field(default_factory=PSLD)
    placed: tuple[str, ...] = ()
    more: int = 0
    _moving_since: float | None = None
    """When partitions began to move to faster servers, or the last of them arrived; None if none is moving."""

    def add(self, timed: ServerTimed) -> None:
        """Adds a measurement."""
        self.policy = self.policy.with_measurement(timed.server, timed.sent_bytes, timed.seconds)

    def propose(
        self, owners: Sequence[str], partition_bytes: Sequence[int], footprint: Footprint, stage: int, now: float
    ) -> ServerPlace | None:
        """Looks for faster servers; None if all partitions stay."""
        servers = may_serve(footprint, stage, len(partition_bytes), self.more)
        self.policy, place = self.policy.propose(owners, partition_bytes, servers)
        if place is not None:
            self.placed, self._moving_since = place.owners, now
            self.more += place.short
        return place

    def seconds_of_move(self, now: float, *, moving: bool) -> float | None:
        """The time that a partition took to arrive since the one before; None if it does not move for its server."""
        since = self._moving_since
        if since is None:
            return None
        self._moving_since = now if moving else None
        return now - since


@dataclass(frozen=True, slots=True)
class Arrival:
    """A partition that has left a node with a move. `seconds`: for how long it moved, if to a faster server."""

    left: str
    move: Move
    moved_bytes: int
    seconds: float | None


@dataclass(slots=True)
class PlannedChanges:
    """The assignment, and what it should become. `partition_bytes` is the weight by which partitions are balanced."""

    assignment: Assignment
    partition_bytes: tuple[int, ...]
    balance: ServerBalance = field(default_factory=ServerBalance)
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By worker, those that it may help, as they were last sent in this epoch."""

    @classmethod
    def none(cls, partition_bytes: tuple[int, ...], shards: int) -> PlannedChanges:
        """Before the first epoch: no node has anything."""
        empty = ("",) * len(partition_bytes)
        return cls(Assignment(Table(0, empty, empty, ("",) * shards)), partition_bytes)

    def begin(self, footprint: Footprint, stage: int, epoch: int) -> None:
        """Starts an epoch with the table to aim for."""
        self.assignment.reset(self._target(footprint, stage), epoch)
        self.groups.clear()

    def orders(
        self, members: Members, footprint: Footprint, stage: int, epoch: int, helpers: int | None
    ) -> Iterator[Send]:
        """Requests the moves that lead to the table to aim for, and tells nodes what has changed of the table so far.

        `helpers` is the number of workers that each may help; None: none.
        """
        if footprint.reliable or footprint.transient:
            yield from self.assignment.move_towards(self._target(footprint, stage), members, epoch)
        routes = self.assignment.take_new_routes()
        if routes is not None:
            for name in members.names(*IN_EPOCH):
                yield Send(name, Route(epoch, routes))
        if helpers is not None:
            yield from self._new_groups(members.names(NodePhase.ACTIVE), helpers, epoch)

    def _new_groups(self, active: Sequence[str], helpers: int, epoch: int) -> Iterator[Send]:
        """Says which workers may help which, where that has changed."""
        working = set(self.assignment.table.workers)
        for name, others in help_groups([name for name in active if name in working], helpers).items():
            if self.groups.get(name) != others:
                self.groups[name] = others
                yield Send(name, HelpGroup(epoch, others))

    def partition_arrived(self, event: Taken, now: float) -> Arrival:
        """Confirms a move; InvalidTransition if the partition was not moving to this node."""
        left = self.assignment.table.owners[event.partition]
        move = self.assignment.partition_arrived(event.partition, event.node)
        seconds = self.balance.seconds_of_move(now, moving=bool(self.assignment.moving))
        return Arrival(left, move, self.partition_bytes[event.partition], seconds)

    def balance_servers(self, footprint: Footprint, stage: int, now: float) -> ServerPlace | None:
        """Once all partitions have arrived, looks for faster servers for some; None if all stay."""
        if self.assignment.moving:
            return None
        return self.balance.propose(self.assignment.table.owners, self.partition_bytes, footprint, stage, now)

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        now = self.assignment.table
        table = [now.version, now.owners, now.backups, now.workers]
        previous = [(shard, tuple(names)) for shard, names in sorted(self.assignment.previous.items())]
        return {"table": table, "previous": previous}

    def restore(self, record: Mapping[str, Any], *, balances: bool) -> None:
        """Takes over from an earlier controller, which may have moved partitions to faster servers."""
        version, owners, backups, workers = record["table"]
        self.assignment.table = Table(version, tuple(owners), tuple(backups), tuple(workers))
        self.assignment.previous = {shard: list(names) for shard, names in record["previous"]}
        if balances:
            self.balance.placed = tuple(owners)

    def _target(self, footprint: Footprint, stage: int) -> Table:
        now, before, balance = self.assignment.table, self.assignment.previous, self.balance
        return target_table(footprint, stage, now, before, self.partition_bytes, balance.placed, balance.more)
