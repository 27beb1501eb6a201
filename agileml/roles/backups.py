"""The partitions that a node backs up."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agileml.params.deltas import Delta, assigned
from agileml.params.layout import PartitionState
from agileml.protocol.messages import Patch, Table, Version


@dataclass(slots=True)
class BackupPartition:
    """A partition that this node backs up. Patches that arrive before their base version wait for it."""

    partition: int
    versions: dict[int, Version]
    early: dict[int, Patch] = field(default_factory=dict)

    def take(self, patch: Patch, assigned: Callable[[PartitionState, Delta], PartitionState]) -> list[int]:
        """Applies a patch and those that waited for it; returns the new versions."""
        self.early[patch.base] = patch
        return self.apply_early(assigned)

    def apply_early(self, assigned: Callable[[PartitionState, Delta], PartitionState]) -> list[int]:
        """Applies the waiting patches whose base version is here; returns the new versions."""
        new: list[int] = []
        ready = [base for base in self.early if base == -1 or base in self.versions]
        while ready:
            new.append(self._apply(self.early.pop(ready[0]), assigned))
            ready = [base for base in self.early if base == -1 or base in self.versions]
        return new

    def _apply(self, patch: Patch, assigned: Callable[[PartitionState, Delta], PartitionState]) -> int:
        base = [] if patch.base == -1 else self.versions[patch.base].state
        self.versions[patch.clock] = Version(patch.clock, patch.tally, assigned(base, patch.values))
        return patch.clock


@dataclass(slots=True)
class Backups:
    """The backups of one node: `appointed` by the routes, or `dismissed` and kept until a later version is stable."""

    copies: dict[int, BackupPartition] = field(default_factory=dict)
    appointed: set[int] = field(default_factory=set)
    dismissed: set[int] = field(default_factory=set)

    def begin(self, table: Table, node: str) -> None:
        """An epoch begins: no copy is left, as all are installed again."""
        self.copies = {}
        self.appointed = {partition for partition, backup in enumerate(table.backups) if backup == node}
        self.dismissed.clear()

    def add(self, patch: Patch) -> list[int]:
        """Adds the changes of a clock; returns the new versions."""
        copy = self.copies.setdefault(patch.partition, BackupPartition(patch.partition, {}))
        if patch.base == -1:
            self.dismissed.discard(patch.partition)
        return copy.take(patch, assigned)

    def install(self, partition: int, version: Version) -> list[int]:
        """Starts a copy from a version; returns the versions that the copy then has."""
        early = self.copies[partition].early if partition in self.copies else {}
        self.copies[partition] = BackupPartition(partition, {version.clock: version}, early)
        return [version.clock, *self.copies[partition].apply_early(assigned)]

    def remove(self, partition: int) -> None:
        """The partition is served here from now on."""
        self.copies.pop(partition, None)
        self.dismissed.discard(partition)

    def appoint(self, table: Table, node: str) -> None:
        """Applies new routes."""
        for partition, backup in enumerate(table.backups):
            if backup == node:
                self.appointed.add(partition)
                self.dismissed.discard(partition)
            elif partition in self.appointed:
                # Patches may arrive before the routes that make this node a backup: only a former backup is dismissed.
                self.appointed.discard(partition)
                if partition in self.copies:
                    self.dismissed.add(partition)

    def forget_dismissed(self, stable: int) -> None:
        """A former backup keeps its versions until a later one is stable, as a rollback may need them."""
        for partition in [p for p in self.dismissed if max(self.copies[p].versions, default=-1) < stable]:
            self.dismissed.discard(partition)
            del self.copies[partition]
