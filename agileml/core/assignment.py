"""Where everything is, and what is on its way: partitions and shards change hands one by one while work goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from agileml.core.events import Send
from agileml.core.members import IN_EPOCH, Members, Phase
from agileml.errors import InvalidTransition
from agileml.protocol.messages import GiveShard, Move, Table

VERSIONS_OF_AN_EPOCH = 1 << 32

PREVIOUS = 8
"""Of how many it is known that they had a shard before."""


@dataclass(slots=True)
class Assignment:
    """The table as it is known to be, and the changes that have been asked for and not been confirmed."""

    table: Table
    moving: dict[int, Move] = field(default_factory=dict)
    giving: dict[int, str] = field(default_factory=dict)
    previous: dict[int, list[str]] = field(default_factory=dict)
    unrouted: bool = False

    def renew(self, table: Table, epoch: int) -> None:
        """Everything begins anew from a table. Its version is later than any of an epoch before, known here or not."""
        for shard, worker in enumerate(self.table.workers):
            self._remember(shard, worker)
        self.table = replace(table, version=epoch * VERSIONS_OF_AN_EPOCH)
        self.moving.clear()
        self.giving.clear()
        self.unrouted = False

    def towards(self, desired: Table, members: Members, epoch: int) -> Iterator[Send]:
        """Set in motion what is not where it should be, unless it is on its way somewhere already."""
        for partition, (owner, wanted) in enumerate(zip(self.table.owners, desired.owners, strict=True)):
            if partition not in self.moving and owner != wanted and wanted:
                kept = self._copy_kept(partition, members) if desired.backups[partition] else ""
                self.moving[partition] = Move(epoch, partition, wanted, kept)
                yield Send(owner, self.moving[partition])
        if not self.moving:
            # Not before: no owner hears of a new backup while partitions move, and one that hands over has to know it.
            for partition, backup in enumerate(desired.backups):
                if backup != self.table.backups[partition]:
                    self._place(partition, self.table.owners[partition], backup)
        for shard, (worker, wanted) in enumerate(zip(self.table.workers, desired.workers, strict=True)):
            if shard not in self.giving and worker != wanted:
                self.giving[shard] = wanted
                leaving = members[worker].phase is Phase.LEAVING
                yield Send(worker, GiveShard(epoch, shard, wanted, now=leaving))

    def hurry(self, node: str, epoch: int) -> Iterator[Send]:
        """Have a node give away at once what it was to give away at the end of a clock."""
        for shard, to in self.giving.items():
            if self.table.workers[shard] == node:
                yield Send(node, GiveShard(epoch, shard, to, now=True))

    def taken(self, partition: int, node: str) -> Move:
        """A partition has arrived; returns how it moved."""
        move = self.moving.get(partition)
        if move is None or move.to != node:
            raise InvalidTransition(f"{node} took partition {partition}, which was not on its way there: {move}")
        del self.moving[partition]
        self._place(partition, move.to, move.backup)
        return move

    def adopted(self, shard: int, node: str) -> None:
        """A shard has arrived."""
        if self.giving.get(shard) != node:
            raise InvalidTransition(f"{node} took shard {shard}, which was not on its way there: {self.giving}")
        workers = list(self.table.workers)
        self._remember(shard, workers[shard])
        workers[shard] = self.giving.pop(shard)
        self.table = replace(self.table, workers=tuple(workers))

    def new_routes(self) -> Table | None:
        """The table, if others have to hear of it: not before the last of several moves is over."""
        if not self.unrouted or self.moving:
            return None
        self.unrouted = False
        return self.table

    def free_of(self, node: str, members: Members) -> bool:
        """Whether nothing lives on a node, nothing is on its way there, and everybody knows."""
        table = self.table
        if node in table.owners or node in table.backups or node in table.workers:
            return False
        if node in self.giving.values() or any(node in (move.to, move.backup) for move in self.moving.values()):
            return False
        return all(members[name].routed >= table.version for name in members.names(*IN_EPOCH))

    def _copy_kept(self, partition: int, members: Members) -> str:
        """Who has a copy of a partition that moves, so that none is made anew: its backup, or the owner it leaves."""
        reliable = members.usable(reliable=True)
        candidates = (self.table.backups[partition], self.table.owners[partition])
        return next((name for name in candidates if name in reliable), "")

    def _place(self, partition: int, owner: str, backup: str) -> None:
        owners, backups = list(self.table.owners), list(self.table.backups)
        owners[partition], backups[partition] = owner, backup
        self.table = replace(self.table, version=self.table.version + 1, owners=tuple(owners), backups=tuple(backups))
        self.unrouted = True

    def _remember(self, shard: int, worker: str) -> None:
        """Who had a shard has its data, and is the first to be asked to take it back."""
        before = self.previous.setdefault(shard, [])
        if worker in before:
            before.remove(worker)
        if worker:
            before.append(worker)
        del before[:-PREVIOUS]
