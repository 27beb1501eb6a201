"""Planned changes: where partitions and shards should be, and the moves that lead there while training continues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agileml.core.assignment import Assignment
from agileml.core.members import IN_EPOCH, Members, NodePhase
from agileml.core.placement import Footprint, target_table
from agileml.core.server_balance import ServerBalance
from agileml.policies.flexrr import help_groups
from agileml.policies.psld import ServerPlace
from agileml.protocol.actions import Send
from agileml.protocol.messages import HelpGroup, Move, Route, Table, Taken


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
