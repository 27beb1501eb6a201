"""The way back after a loss: to which version, and who has it of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agileml.core.members import Members
from agileml.core.progress import Ledger
from agileml.protocol.messages import Hello, Table

CHECKPOINT = "checkpoint"
INIT = "init"


@dataclass(frozen=True, slots=True)
class Copies:
    """What is known of copies: the table, reports, the latest safe version, the last checkpoint (-1: none).

    `gone_back` and `sources` are those of the last recovery, which may not be over: who had a version then has it until
    a later one is stable.
    """

    table: Table
    ledger: Ledger
    stable: int
    checkpoint: int
    gone_back: int
    sources: tuple[str, ...]


def way_back(members: Members, copies: Copies) -> tuple[int, tuple[str, ...]]:
    """The version to go back to and who has it of each partition: a node, the checkpoint, or the initial model."""
    partitions = range(len(copies.table.owners))
    if copies.stable > 0:
        holders = tuple(_holder(members, copies, partition) for partition in partitions)
        if all(holders):
            return copies.stable, holders
        if copies.checkpoint > 0:
            return copies.checkpoint, (CHECKPOINT,) * len(partitions)
    return 0, (INIT,) * len(partitions)


def _holder(members: Members, copies: Copies, partition: int) -> str:
    """Who has the stable version of a partition; an empty name if nobody is left who has."""
    backup, owner = copies.table.backups[partition], copies.table.owners[partition]
    copied = copies.ledger.copied[partition]
    before = copies.sources[partition] if copies.gone_back == copies.stable else ""
    # A backup that was dismissed keeps what it has until a later version is stable.
    holders = [name for name in (backup, *copied) if copies.stable in copied.get(name, ())]
    if owner in copies.ledger.served[partition]:
        holders.append(owner)
    holders = [name for name in (*holders, before) if members.stays(name)]
    # Who is reliable is asked first: another may be gone before it has answered.
    reliable = [name for name in holders if members[name].reliable]
    return next(iter(reliable + holders), before if before in (INIT, CHECKPOINT) else "")


def common(
    held: Mapping[int, Mapping[int, str]], members: Members, partitions: int, checkpoint: int
) -> tuple[int, tuple[str, ...]]:
    """The latest version of which somebody who is here holds every partition; `held` is by partition and version.

    One that reliable nodes hold comes first: a later one could be lost again before it is safe, and what workers have
    done since need not be done again.
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
    """What nodes say they hold to a controller that was started again; who is `awaited` has not said it yet.

    `epoch` is the last one, which began at version `gone_back`.
    """

    awaited: set[str] = field(default_factory=set)
    epoch: int = 0
    gone_back: int = -1
    held: dict[int, dict[int, str]] = field(default_factory=dict)

    def hear(self, hello: Hello) -> None:
        """What a node holds; of one that has not heard of the epoch, only what is no later than its beginning."""
        for partition, clock in hello.holds:
            if hello.epoch == self.epoch or clock <= self.gone_back:
                holders = self.held.setdefault(partition, {})
                # Whoever is reliable is asked first: another may be gone before it has answered.
                if clock not in holders or hello.reliable:
                    holders[clock] = hello.node
        self.awaited.discard(hello.node)
