"""Parts of a server: partitions on their way, versions from which epochs start, traffic with
workers, and whom a server believes.

A worker sends its contributions to the server of a partition. While the partition moves, they may
reach a server that had it before, which forwards them. So a contribution is believed if it comes
from the worker that it names, or from a node that has had the partition in this epoch. The handover
of the partition says which nodes these are.

What must never happen: a node adds updates in the name of another one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from agileml.errors import InvalidTransition
from agileml.params.deltas import assigned
from agileml.protocol.messages import (
    Collect,
    Handover,
    Patch,
    Pull,
    Push,
    Reads,
    Recover,
    Table,
    Version,
)
from agileml.roles.partitions import ServedPartition


@dataclass(slots=True)
class BackupPartition:
    """A partition that this node backs up. Patches that arrive before their base version wait for
    it.
    """

    partition: int
    versions: dict[int, Version]
    early: dict[int, Patch] = field(default_factory=dict)

    def take(self, patch: Patch | None = None) -> list[int]:
        """Applies a patch, and those whose base version is here and that waited for it; returns the
        new versions.
        """
        if patch is not None:
            self.early[patch.base] = patch
        new: list[int] = []
        ready = [base for base in self.early if base == -1 or base in self.versions]

        while ready:
            early = self.early.pop(ready[0])
            base = [] if early.base == -1 else self.versions[early.base].state
            self.versions[early.clock] = Version(
                early.clock, early.tally, assigned(base, early.values)
            )
            new.append(early.clock)
            ready = [base for base in self.early if base == -1 or base in self.versions]

        return new


@dataclass(slots=True)
class Backups:
    """The backups of one node: `appointed` by the routes, or `dismissed` and kept until a later
    version is stable.
    """

    copies: dict[int, BackupPartition] = field(default_factory=dict)
    appointed: set[int] = field(default_factory=set)
    dismissed: set[int] = field(default_factory=set)

    def begin(self, table: Table, node: str) -> None:
        """An epoch begins: no copy is left, as all are installed again."""
        self.copies = {}
        self.appointed = {
            partition for partition, backup in enumerate(table.backups) if backup == node
        }
        self.dismissed.clear()

    def add(self, patch: Patch) -> list[int]:
        """Adds the changes of a clock; returns the new versions."""
        copy = self.copies.setdefault(patch.partition, BackupPartition(patch.partition, {}))
        if patch.base == -1:
            self.dismissed.discard(patch.partition)
        return copy.take(patch)

    def install(self, partition: int, version: Version) -> list[int]:
        """Starts a copy from a version; returns the versions that the copy then has."""
        early = self.copies[partition].early if partition in self.copies else {}
        self.copies[partition] = BackupPartition(partition, {version.clock: version}, early)
        return [version.clock, *self.copies[partition].take()]


PartitionMessage = Push | Pull | Reads
"""Messages that wait for a partition."""


Holder = ServedPartition | BackupPartition


class Place(Enum):
    """Where a partition is, as the server of a node sees it that does not serve the partition."""

    COMING = "to be served here, but has not arrived"
    MOVED = "was here in this epoch; messages are forwarded"
    UNKNOWN = "was never here in this epoch"


@dataclass(slots=True)
class InTransit:
    """Partitions that move. `forward` names the owners of those that moved away, `shadows` are what
    is left of them.

    `arriving` ones wait for patches, `early` messages for partitions. `former` names the nodes that
    have had a partition before it came here: messages of others about it may come through them.
    """

    forward: dict[int, str] = field(default_factory=dict)
    shadows: dict[int, ServedPartition] = field(default_factory=dict)
    arriving: dict[int, Handover] = field(default_factory=dict)
    early: list[PartitionMessage] = field(default_factory=list)
    former: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def begin(self) -> None:
        """An epoch begins: nothing is on its way."""
        self.shadows = {}
        self.forward = {}
        self.former = {}
        self.early.clear()
        self.arriving.clear()

    def reroute(self, table: Table, node: str) -> None:
        """Applies new routes to partitions that moved away."""
        for partition in [p for p in self.shadows if table.owners[p] != node]:
            del self.shadows[partition]
        for partition in self.forward:
            if table.owners[partition] != node:
                self.forward[partition] = table.owners[partition]


@dataclass(slots=True)
class Restoring:
    """Versions from which epochs start. `former`: the node's earlier versions; `awaited`: missing
    partitions.

    `initial` returns version 0 of a partition.
    """

    initial: Callable[[int], Version]
    former: dict[int, Version] = field(default_factory=dict)
    awaited: set[int] = field(default_factory=set)

    def begin(self, clock: int, held: Mapping[int, Holder]) -> None:
        """An epoch begins from a version: keeps those that this node holds."""
        former = {p: version for p, version in self.former.items() if version.clock == clock}
        kept = {p: holder.versions[clock] for p, holder in held.items() if clock in holder.versions}
        self.former = former | kept
        self.awaited = set()

    def version(self, partition: int, message: Recover, initial: str) -> Version | None:
        """The version of a partition, if it is here or the initial one."""
        version = self.former.get(partition)
        if version is None and message.sources[partition] == initial:
            return self.initial(partition)
        return version


@dataclass(slots=True)
class WorkerTraffic:
    """Traffic with workers. `timer` measures how long their pushes wait for others; None if that is
    not asked for.
    """

    timer: Callable[[], float] | None = None
    pushed: dict[str, float] = field(default_factory=dict)
    """By worker, when its last request came with a push."""
    pulled: dict[int, int] = field(default_factory=dict)
    """Bytes of each partition that were sent to workers since its last report."""


class Forged(InvalidTransition):
    """A node says what is not for it to say."""


def check_speaker(sender: str, message: object, former: Mapping[int, tuple[str, ...]]) -> None:
    """Raises Forged if a node may not send this message; `former` has the earlier servers of
    partitions.
    """
    match message:
        case Handover():
            believed = message.former[-1:] == (sender,)
        case Push():
            believed = sender == message.worker or all(
                sender in former.get(part.partition, ()) for part in message.parts
            )
        case Pull() | Reads():
            believed = sender == message.worker or sender in former.get(message.partition, ())
        case Collect():
            believed = sender in former.get(message.partition, ())
        case _:
            return
    if not believed:
        raise Forged(f"{sender} sent a {type(message).__name__} of another node")
