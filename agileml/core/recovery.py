"""Rollback after a loss: to which version, and where that version of each partition is."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from agileml.core.members import Members
from agileml.core.version_ledger import VersionLedger
from agileml.protocol.messages import Hello, Table

CHECKPOINT = "checkpoint"
INIT = "init"


@dataclass(frozen=True, slots=True)
class KnownCopies:
    """The copies the controller knows of: table, reports, latest safe version, last checkpoint (-1: none).

    `rolled_back` and `sources` belong to the last rollback, which may not be complete: a source keeps its version
    until a later one is stable.
    """

    table: Table
    ledger: VersionLedger
    stable: int
    checkpoint: int
    rolled_back: int
    sources: tuple[str, ...]


def rollback_point(members: Members, copies: KnownCopies) -> tuple[int, tuple[str, ...]]:
    """The version to return to and the source of each partition: a node, the checkpoint, or the initial model."""
    partitions = range(len(copies.table.owners))
    if copies.stable > 0:
        holders = tuple(_holder(members, copies, partition) for partition in partitions)
        if all(holders):
            return copies.stable, holders
        if copies.checkpoint > 0:
            return copies.checkpoint, (CHECKPOINT,) * len(partitions)
    return 0, (INIT,) * len(partitions)


def _holder(members: Members, copies: KnownCopies, partition: int) -> str:
    """A node that has the stable version of a partition; an empty name if every such node is lost."""
    backup, owner = copies.table.backups[partition], copies.table.owners[partition]
    copied = copies.ledger.copied[partition]
    before = copies.sources[partition] if copies.rolled_back == copies.stable else ""
    # A former backup keeps its versions until a later one is stable.
    holders = [name for name in (backup, *copied) if copies.stable in copied.get(name, ())]
    if owner in copies.ledger.served[partition]:
        holders.append(owner)
    holders = [name for name in (*holders, before) if members.stays(name)]
    # Reliable nodes first: others may be evicted before they answer.
    reliable = [name for name in holders if members[name].reliable]
    return next(iter(reliable + holders), before if before in (INIT, CHECKPOINT) else "")


def common_version(
    held: Mapping[int, Mapping[int, str]], members: Members, partitions: int, checkpoint: int
) -> tuple[int, tuple[str, ...]]:
    """The latest version that the present nodes hold of every partition; `held` is by partition and version.

    A version that reliable nodes hold is preferred: a later one could be lost before it is safe, and the work that
    workers have done since need not be repeated.
    """
    here = {name for name in {node for versions in held.values() for node in versions.values()} if members.stays(name)}
    for holders in ({name for name in here if members[name].reliable}, here):
        versions = [
            {clock: node for clock, node in held.get(partition, {}).items() if node in holders}
            for partition in range(partitions)
        ]
        shared = set(versions[0]).intersection(*versions[1:])
        if shared:
            clock = max(shared)
            return clock, tuple(of[clock] for of in versions)
    if checkpoint > 0:
        return checkpoint, (CHECKPOINT,) * partitions
    return 0, (INIT,) * partitions


@dataclass(slots=True)
class Answers:
    """Versions that nodes hold, by their answers to a restarted controller; `awaited` nodes have not answered yet.

    `epoch` is the last epoch, which started from version `rolled_back`.
    """

    awaited: set[str] = field(default_factory=set)
    epoch: int = 0
    rolled_back: int = -1
    held: dict[int, dict[int, str]] = field(default_factory=dict)

    def add(self, hello: Hello) -> None:
        """Adds an answer; of a node still in an earlier epoch, only versions up to the start of the last one count."""
        for partition, clock in hello.holds:
            if hello.epoch == self.epoch or clock <= self.rolled_back:
                holders = self.held.setdefault(partition, {})
                # Reliable nodes first: others may be evicted before they answer.
                if clock not in holders or hello.reliable:
                    holders[clock] = hello.node
        self.awaited.discard(hello.node)
