"""Rollback after a loss: to which version, and where that version of each partition is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from agileml.core.members import Members
from agileml.errors import InvalidTransition
from agileml.policies.stage import ClockSums
from agileml.protocol.messages import Hello, Move, PartitionProgress, Table, WorkDone
from agileml.work import Accepted


class Mode(Enum):
    """The controller's current mode."""

    GATHERING = "gathering"
    """Waits for the first nodes, or for a node that can hold the model after the last one was
    lost."""
    RESUMING = "resuming"
    """Restarted: waits for the nodes to report what they hold."""
    RECOVERING = "recovering"
    """An epoch has begun: waits for the nodes to install the version from which it starts."""
    RUNNING = "running"
    OVER = "over"


def rollback_point(
    members: Members,
    table: Table,
    ledger: VersionLedger,
    stable: int,
    checkpoint: int,
    last: Epochs,
) -> tuple[int, tuple[str, ...]]:
    """The version to return to and the source of each partition: a node, the checkpoint, or the
    initial model.

    `stable` is the latest safe version, `checkpoint` the last one (-1: none), `last` knows the last
    rollback.
    """
    partitions = range(len(table.owners))
    if stable > 0:
        sources = last.sources if last.rolled_back == stable else ("",) * len(partitions)
        holders = []
        for partition, before in zip(partitions, sources, strict=True):
            backup = table.backups[partition]
            owner = table.owners[partition]
            copied = ledger.copied[partition]
            # A former backup keeps its versions until a later one is stable.
            having = [name for name in (backup, *copied) if stable in copied.get(name, ())]
            if owner in ledger.served[partition]:
                having.append(owner)
            having = [name for name in (*having, before) if members.stays(name)]

            # Reliable nodes first: others may be evicted before they answer. An empty name if every
            # node that has the stable version is lost.
            reliable = [name for name in having if members[name].reliable]
            kept = before if before in (INIT, CHECKPOINT) else ""
            holders.append(next(iter(reliable + having), kept))

        if all(holders):
            return stable, tuple(holders)
        if checkpoint > 0:
            return checkpoint, (CHECKPOINT,) * len(partitions)

    return 0, (INIT,) * len(partitions)


def common_version(
    held: Mapping[int, Mapping[int, str]], members: Members, partitions: int, checkpoint: int
) -> tuple[int, tuple[str, ...]]:
    """The latest version that the present nodes hold of every partition; `held` is by partition and
    version.

    A version that reliable nodes hold is preferred: a later one could be lost before it is safe,
    and the work that workers have done since need not be repeated.
    """
    here = {
        name
        for name in {node for versions in held.values() for node in versions.values()}
        if members.stays(name)
    }

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
class Epochs:
    """The mode, the number of the current epoch, and the nodes that it waits for.

    `rolled_back` is the version from which the epoch started, `sources` say where its partitions
    were: the rollback may not be complete, but a source keeps its version until a later one is
    stable. `awaited` nodes have not answered a restarted controller yet; `held` are the versions
    that the others hold, by partition.
    """

    mode: Mode = Mode.GATHERING
    number: int = 0
    rolled_back: int = -1
    sources: tuple[str, ...] = ()
    restoring: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)
    held: dict[int, dict[int, str]] = field(default_factory=dict)

    def enter(self, mode: Mode) -> None:
        """Changes the mode; InvalidTransition if the new one cannot follow."""
        if mode not in NEXT_MODES[self.mode]:
            raise InvalidTransition(
                f"the controller cannot go from {self.mode.value} to {mode.value}"
            )
        self.mode = mode

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        return {"epoch": self.number, "gone_back": self.rolled_back}

    def restore(self, record: Mapping[str, Any], partitions: int, awaited: Iterable[str]) -> None:
        """Takes over from an earlier controller; once there was an epoch, its nodes are asked what
        they hold.
        """
        self.number = record["epoch"]
        self.rolled_back = record["gone_back"]
        self.sources = ("",) * partitions
        if self.number:
            self.enter(Mode.RESUMING)
            self.awaited = set(awaited)
            self.held = {}

    def answer(self, hello: Hello) -> None:
        """Adds an answer; of a node still in an earlier epoch, only versions up to the start of the
        last one count.
        """
        for partition, clock in hello.holds:
            if hello.epoch == self.number or clock <= self.rolled_back:
                holders = self.held.setdefault(partition, {})
                # Reliable nodes first: others may be evicted before they answer.
                if clock not in holders or hello.reliable:
                    holders[clock] = hello.node
        self.awaited.discard(hello.node)

    def begin(self, rolled_back: int, sources: tuple[str, ...], nodes: Iterable[str]) -> None:
        """Begins an epoch from a version with these nodes."""
        self.enter(Mode.RECOVERING)
        self.number += 1
        self.rolled_back = rolled_back
        self.sources = sources
        self.restoring = set(nodes)

    def restored(self, node: str) -> None:
        """A node has installed its partitions; training continues after the last node."""
        self.restoring.discard(node)
        if not self.restoring and self.mode is Mode.RECOVERING:
            self.enter(Mode.RUNNING)

    @property
    def all_answered(self) -> bool:
        """Whether every node that a restarted controller asked has answered or is lost."""
        return self.mode is Mode.RESUMING and not self.awaited


NEXT_MODES = {
    Mode.GATHERING: {Mode.GATHERING, Mode.RECOVERING, Mode.RESUMING, Mode.OVER},
    Mode.RESUMING: {Mode.GATHERING, Mode.RECOVERING, Mode.OVER},
    Mode.RECOVERING: {Mode.GATHERING, Mode.RECOVERING, Mode.RUNNING, Mode.OVER},
    Mode.RUNNING: {Mode.GATHERING, Mode.RECOVERING, Mode.OVER},
    Mode.OVER: set[Mode](),
}
"""The modes that may follow each. A controller that resumes gathers only until its record is
read."""


CHECKPOINT = "checkpoint"


INIT = "init"


@dataclass(slots=True)
class VersionLedger:
    """Versions by partition and node, as reported, and the sums of each clock."""

    partitions: int
    committed: list[int] = field(default_factory=list)
    reached: int = 0
    """The latest version that every partition has committed."""
    copied: list[dict[str, set[int]]] = field(default_factory=list)
    served: list[set[str]] = field(default_factory=list)
    clocks: dict[int, ClockSums] = field(default_factory=dict)
    underway: dict[str, int] = field(default_factory=dict)
    """By node, the chunks that it has done and not reported as a part of a clock."""
    lost: int = 0
    """Chunks that were lost with nodes since the last closed clock."""
    reported: int = 0
    """Chunks that workers have done and kept, in all: a sign of progress for those who watch the
    job."""

    def __post_init__(self) -> None:
        self.reset(0)

    def reset(self, clock: int) -> None:
        """Starts an epoch: every partition is at this version, and nodes report again what they
        hold.
        """
        self.committed = [clock] * self.partitions
        self.reached = clock
        self.copied = [{} for _ in range(self.partitions)]
        self.served = [set() for _ in range(self.partitions)]

    def add_progress(self, progress: PartitionProgress) -> None:
        """Records a new version of a partition on a node."""
        if progress.backup:
            self.copied[progress.partition].setdefault(progress.node, set()).add(progress.clock)
        else:
            self.served[progress.partition].add(progress.node)
            before = self.committed[progress.partition]
            if progress.clock > before:
                self.committed[progress.partition] = progress.clock
                if before == self.reached:
                    self.reached = min(self.committed)

        sums = self.clocks.setdefault(progress.clock, ClockSums())
        sums.pulled += progress.pulled_bytes
        sums.backup += progress.backup_bytes

    def add_move(self, partition: int, left: str, move: Move, stable: int) -> None:
        """Records that a partition arrived; the node it left keeps nothing unless it is the backup
        now.
        """
        if left != move.backup:
            self.copied[partition].pop(left, None)
        elif left in self.served[partition]:
            # The node reports this itself, but its report may come after that of the arrival.
            self.copied[partition].setdefault(left, set()).add(stable)
        self.served[partition] = {move.to}

    def add_work(self, done: WorkDone, *, counts: bool = True) -> None:
        """Records that a worker finished its part of a clock; it does not count if that was too
        late.
        """
        if counts:
            self.reported += done.chunks
            sums = self.clocks.setdefault(done.clock, ClockSums())
            sums.chunks += done.chunks
            sums.seconds += done.seconds
            sums.pushed += done.pushed_bytes
            sums.loss_sum += done.loss_sum
            sums.loss_count += done.loss_count
        if done.node in self.underway:
            self.underway[done.node] = max(0, self.underway[done.node] - done.chunks)

    def note_underway(self, node: str, chunks: int) -> None:
        """A node has done chunks that it has not reported as a part of a clock."""
        if chunks or node in self.underway:
            self.underway[node] = chunks

    def lose(self, node: str) -> None:
        """Counts the chunks that a lost node had done and not sent yet: others have to do them
        again.
        """
        self.lost += self.underway.pop(node, 0)

    def safe(self, backups: tuple[str, ...]) -> int:
        """The latest version that every partition has on its backup, or on its server where there
        is no backup.
        """
        return min(
            max(self.copied[partition].get(backup, ()), default=-1)
            if backup
            else self.committed[partition]
            for partition, backup in enumerate(backups)
        )

    def forget_before(self, clock: int) -> None:
        """Forgets copies of versions before this one."""
        for copies in self.copied:
            for versions in copies.values():
                versions.difference_update([version for version in versions if version < clock])

    def close_clock(self, accepted: Accepted) -> tuple[ClockSums, int]:
        """The sums of a finished clock, and the number of chunks whose work was lost since the
        clock before.
        """
        sums = self.clocks.pop(accepted.clock, None) or ClockSums()
        expected = accepted.chunks
        if sums.chunks < expected:
            # Some reports were lost with a controller: the mean of the others would be the loss of
            # another sample.
            sums.loss_sum = 0.0
            sums.loss_count = 0

        again = [
            self.clocks.pop(earlier).chunks
            for earlier in list(self.clocks)
            if earlier < accepted.clock
        ]

        lost = self.lost
        self.lost = 0
        return sums, max(0, sums.chunks - expected) + sum(again) + lost
