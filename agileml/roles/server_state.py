"""The state of a node's server, and what follows from it alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agileml.errors import InvalidTransition
from agileml.params.commit import CommitRule
from agileml.params.wire import HalfWire
from agileml.protocol.actions import CONTROLLER, Action, Send
from agileml.protocol.messages import Handover, PartitionProgress, Pull, Push, Reads, Version
from agileml.roles.partitions import BackupPartition, ServedPartition
from agileml.work.counted import CountedWork


@dataclass(slots=True)
class ServerState:
    """The partitions that one node serves, backs up and awaits, and the actions that it has not returned yet.

    `copies` are backups, `shadows` partitions that moved away in this epoch, and `former` the versions from which the
    epoch started. `awaited` partitions are to be restored here, `arriving` ones wait for patches.
    `fresh`: readers see updates before their clock is committed, as slack allows.
    """

    node: str
    work: CountedWork
    rule: CommitRule
    initial: Callable[[int], Version]
    ordered: bool
    fresh: bool
    out: list[Action]
    timer: Callable[[], float] | None = None
    """Measures how long pushes waited for others; None if that is not reported."""
    wire: HalfWire | None = None
    """How parameters and updates travel; None: in the types of the parameters."""
    epoch: int = 0
    stable: int = 0
    served: dict[int, ServedPartition] = field(default_factory=dict)
    copies: dict[int, BackupPartition] = field(default_factory=dict)
    shadows: dict[int, ServedPartition] = field(default_factory=dict)
    forward: dict[int, str] = field(default_factory=dict)
    appointed: set[int] = field(default_factory=set)
    dismissed: set[int] = field(default_factory=set)
    awaited: set[int] = field(default_factory=set)
    arriving: dict[int, Handover] = field(default_factory=dict)
    early: list[Push | Pull | Reads] = field(default_factory=list)
    former: dict[int, Version] = field(default_factory=dict)
    _pushed: dict[str, float] = field(default_factory=dict)
    """By worker, when its last request came with a push."""
    _pulled: dict[int, int] = field(default_factory=dict)

    def _awaits(self, partition: int) -> bool:
        """Whether a partition is to be served here but has not arrived."""
        return partition in self.awaited or partition in self.arriving

    def _new_owner(self, partition: int) -> str:
        if partition not in self.forward:
            raise InvalidTransition(
                f"{self.node} received a message for partition {partition}, which it never had in this epoch"
            )
        return self.forward[partition]

    def holds(self) -> tuple[tuple[int, int], ...]:
        """Every version on this node, as (partition, clock)."""
        held = {(partition, version.clock) for partition, version in self.former.items()}
        held.update((holder.partition, clock) for holder in self._holders() for clock in holder.versions)
        return tuple(sorted(held))

    def _holders(self) -> list[ServedPartition | BackupPartition]:
        return [*self.served.values(), *self.copies.values(), *self.shadows.values()]

    def _report(self, partition: int, clock: int, *, backup: bool) -> None:
        self.out.append(Send(CONTROLLER, PartitionProgress(self.node, self.epoch, partition, clock, backup)))
