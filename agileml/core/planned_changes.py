"""Planned changes: where partitions and shards should be, and the moves that lead there while
training continues.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agileml.core.members import IN_EPOCH, Members, NodePhase
from agileml.core.placement import Footprint, may_serve, target_table
from agileml.errors import InvalidTransition
from agileml.policies.flexrr import help_groups
from agileml.policies.psld import PSLD, ServerPlace
from agileml.protocol.actions import Send
from agileml.protocol.messages import GiveShard, HelpGroup, Move, Route, Table


@dataclass(slots=True)
class PlannedChanges:
    """The assignment, and what it should become. `partition_bytes` is the weight by which
    partitions are balanced.

    `policy` has the measurements of servers so far. Because of them, `placed` is the server of each
    partition, empty without measurements; `more` transient nodes than usual may serve.
    """

    assignment: Assignment
    partition_bytes: tuple[int, ...]
    policy: PSLD = field(default_factory=PSLD)
    placed: tuple[str, ...] = ()
    more: int = 0
    _moving_since: float | None = None
    """When partitions began to move to faster servers, or the last of them arrived; None if none is
    moving."""
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By worker, those that it may help, as they were last sent in this epoch."""

    @classmethod
    def none(cls, partition_bytes: tuple[int, ...], shards: int) -> PlannedChanges:
        """Before the first epoch: no node has anything."""
        empty = ("",) * len(partition_bytes)
        assignment = Assignment(Table(0, empty, empty, ("",) * shards))
        return cls(assignment, partition_bytes)

    def begin(self, footprint: Footprint, stage: int, epoch: int) -> None:
        """Starts an epoch with the table to aim for."""
        self.assignment.reset(self._target(footprint, stage), epoch)
        self.groups.clear()

    def orders(
        self, members: Members, footprint: Footprint, stage: int, epoch: int, helpers: int | None
    ) -> Iterator[Send]:
        """Requests the moves that lead to the table to aim for, and tells nodes what has changed of
        the table so far.

        `helpers` is the number of workers that each may help; None: none.
        """
        if footprint.reliable or footprint.transient:
            yield from self.assignment.move_towards(self._target(footprint, stage), members, epoch)
        routes = self.assignment.take_new_routes()
        if routes is not None:
            for name in members.names(*IN_EPOCH):
                yield Send(name, Route(epoch, routes))

        if helpers is not None:
            # Which workers may help which, where that has changed.
            working = set(self.assignment.table.workers)
            active = [name for name in members.names(NodePhase.ACTIVE) if name in working]
            for name, others in help_groups(active, helpers).items():
                if self.groups.get(name) != others:
                    self.groups[name] = others
                    yield Send(name, HelpGroup(epoch, others))

    def balance_servers(self, footprint: Footprint, stage: int, now: float) -> ServerPlace | None:
        """Once all partitions have arrived, looks for faster servers for some; None if all stay."""
        if self.assignment.moving:
            return None

        servers = may_serve(footprint, stage, len(self.partition_bytes), self.more)
        self.policy, place = self.policy.propose(
            self.assignment.table.owners, self.partition_bytes, servers
        )
        if place is not None:
            self.placed = place.owners
            self._moving_since = now
            self.more += place.short

        return place

    def seconds_of_move(self, now: float) -> float | None:
        """The time that a partition took to arrive since the one before; None if it does not move
        for its server.
        """
        since = self._moving_since
        if since is None:
            return None
        self._moving_since = now if self.assignment.moving else None
        return now - since

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        now = self.assignment.table
        table = [now.version, now.owners, now.backups, now.workers]
        previous = [
            (shard, tuple(names)) for shard, names in sorted(self.assignment.previous.items())
        ]
        return {"table": table, "previous": previous}

    def restore(self, record: Mapping[str, Any], *, balances: bool) -> None:
        """Takes over from an earlier controller, which may have moved partitions to faster
        servers."""
        version, owners, backups, workers = record["table"]
        self.assignment.table = Table(version, tuple(owners), tuple(backups), tuple(workers))
        self.assignment.previous = {shard: list(names) for shard, names in record["previous"]}
        if balances:
            self.placed = tuple(owners)

    def _target(self, footprint: Footprint, stage: int) -> Table:
        now = self.assignment.table
        before = self.assignment.previous
        return target_table(
            footprint, stage, now, before, self.partition_bytes, self.placed, self.more
        )


VERSIONS_PER_EPOCH = 1 << 32

PLANS_PER_MOVE = 16
"""While more shards than this are moving, a new target is not looked for after every single
arrival."""

PREVIOUS_WORKERS = 8
"""Earlier workers of a shard that are remembered."""


@dataclass(slots=True)
class Assignment:
    """The confirmed table, and the moves of partitions and shards that were requested and not
    confirmed yet.
    """

    _table: Table
    moving: dict[int, Move] = field(default_factory=dict)
    giving: dict[int, str] = field(default_factory=dict)
    previous: dict[int, list[str]] = field(default_factory=dict)
    holders: dict[int, set[str]] = field(default_factory=dict)
    """By partition, the nodes that have had a part in it in this epoch: only they may report on
    it."""
    routes_changed: bool = False
    _arrived: dict[int, str] = field(default_factory=dict)
    """Shards that have moved since the table was last asked for: copying it for each of many would
    take long."""
    _since_planned: int = 0

    @property
    def table(self) -> Table:
        """Servers, backups and workers, as confirmed."""
        if self._arrived:
            workers = list(self._table.workers)
            for shard, worker in self._arrived.items():
                workers[shard] = worker
            self._arrived.clear()
            self._table = replace(self._table, workers=tuple(workers))
        return self._table

    @table.setter
    def table(self, table: Table) -> None:
        self._arrived.clear()
        self._table = table

    def reset(self, table: Table, epoch: int) -> None:
        """Starts an epoch with a table. Its version is higher than that of any table of an earlier
        epoch.
        """
        for shard, worker in enumerate(self.table.workers):
            self._remember_worker(shard, worker)
        self.table = replace(table, version=epoch * VERSIONS_PER_EPOCH)
        self.holders = {
            at: set(pair) for at, pair in enumerate(zip(table.owners, table.backups, strict=True))
        }
        self.moving.clear()
        self.giving.clear()
        self.routes_changed = False

    def move_towards(self, target: Table, members: Members, epoch: int) -> Iterator[Send]:
        """Requests the moves that lead to the target table; what is moving already is left
        alone."""
        for partition, (owner, wanted) in enumerate(
            zip(self.table.owners, target.owners, strict=True)
        ):
            if partition not in self.moving and owner != wanted and wanted:
                # A reliable node that can keep a copy without being sent one.
                reliable = members.active(reliable=True) if target.backups[partition] else ()
                backup = next(
                    (name for name in (self.table.backups[partition], owner) if name in reliable),
                    "",
                )
                self.moving[partition] = Move(epoch, partition, wanted, backup)
                self.holders.setdefault(partition, {owner}).update((wanted, backup))
                yield Send(owner, self.moving[partition])

        if not self.moving:
            # Not earlier: owners learn of a new backup only after all moves, and one that hands
            # over must know it.
            for partition, backup in enumerate(target.backups):
                if backup != self.table.backups[partition]:
                    self._place(partition, self.table.owners[partition], backup)

        for shard, (worker, wanted) in enumerate(
            zip(self.table.workers, target.workers, strict=True)
        ):
            if shard not in self.giving and worker != wanted:
                self.giving[shard] = wanted
                leaving = members[worker].phase is NodePhase.LEAVING
                yield Send(worker, GiveShard(epoch, shard, wanted, now=leaving))

    def expedite(self, node: str, epoch: int) -> Iterator[Send]:
        """Asks a node to give away at once the shards that it was to give away at the end of a
        clock.
        """
        workers = self.table.workers
        for shard, to in self.giving.items():
            if workers[shard] == node:
                yield Send(node, GiveShard(epoch, shard, to, now=True))

    def partition_arrived(self, partition: int, node: str) -> Move:
        """Confirms a move and returns it; InvalidTransition if the partition was not moving to this
        node.
        """
        move = self.moving.get(partition)
        if move is None or move.to != node:
            raise InvalidTransition(
                f"{node} received partition {partition}, which was not moving there: {move}"
            )
        del self.moving[partition]
        self._place(partition, move.to, move.backup)
        return move

    def shard_arrived(self, shard: int, node: str) -> bool:
        """Confirms a move, and says whether enough shards have arrived to look for a new target:
        each of a few, or a part of many. InvalidTransition if the shard was not moving to this
        node.

        A plan looks at all shards, so that planning after each of many would take quadratic time.
        """
        if self.giving.get(shard) != node:
            raise InvalidTransition(
                f"{node} received shard {shard}, which was not moving there: {self.giving}"
            )
        self._remember_worker(shard, self._arrived.get(shard) or self._table.workers[shard])
        self._arrived[shard] = self.giving.pop(shard)
        self._since_planned += 1
        if self._since_planned * PLANS_PER_MOVE < len(self.giving):
            return False
        self._since_planned = 0
        return True

    def take_new_routes(self) -> Table | None:
        """The table if nodes must be sent it, once; of several moves only the last leads to new
        routes.
        """
        if not self.routes_changed or self.moving:
            return None
        self.routes_changed = False
        return self.table

    def is_free(self, node: str, members: Members) -> bool:
        """Whether a node holds nothing, receives nothing, and every node in the epoch knows."""
        table = self.table
        if node in table.owners or node in table.backups or node in table.workers:
            return False
        if node in self.giving.values() or any(
            node in (move.to, move.backup) for move in self.moving.values()
        ):
            return False
        return all(members[name].routed >= table.version for name in members.names(*IN_EPOCH))

    def _place(self, partition: int, owner: str, backup: str) -> None:
        owners = list(self.table.owners)
        backups = list(self.table.backups)
        owners[partition], backups[partition] = owner, backup
        self.holders.setdefault(partition, set()).update((owner, backup))
        self.table = replace(
            self.table, version=self.table.version + 1, owners=tuple(owners), backups=tuple(backups)
        )
        self.routes_changed = True

    def _remember_worker(self, shard: int, worker: str) -> None:
        """An earlier worker has the shard's data and is asked first to take it back."""
        before = self.previous.setdefault(shard, [])
        if worker in before:
            before.remove(worker)
        if worker:
            before.append(worker)
        del before[:-PREVIOUS_WORKERS]
