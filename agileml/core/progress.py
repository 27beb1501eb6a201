"""How far the parameters have come: what is committed, what is safe, and what each clock took."""

from __future__ import annotations

from dataclasses import dataclass, field

from agileml.core.work import Plan
from agileml.policies.report import Clocked
from agileml.protocol.messages import Move, Progress, WorkDone


@dataclass(slots=True)
class Ledger:
    """Versions by partition, as nodes report them, and the sums of each clock."""

    plan: Plan
    partitions: int
    committed: list[int] = field(default_factory=list)
    copied: list[dict[str, set[int]]] = field(default_factory=list)
    served: list[set[str]] = field(default_factory=list)
    clocks: dict[int, Clocked] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.go_back(0)

    def go_back(self, clock: int) -> None:
        """Everybody is at this version again; whoever has it says so."""
        self.committed = [clock] * self.partitions
        self.copied = [{} for _ in range(self.partitions)]
        self.served = [set() for _ in range(self.partitions)]

    def report(self, progress: Progress) -> None:
        """A partition has a new version on a node."""
        if progress.backup:
            self.copied[progress.partition].setdefault(progress.node, set()).add(progress.clock)
        else:
            self.served[progress.partition].add(progress.node)
            self.committed[progress.partition] = max(self.committed[progress.partition], progress.clock)
        clocked = self.clocks.setdefault(progress.clock, Clocked())
        clocked.pulled += progress.pulled_bytes
        clocked.backup += progress.backup_bytes

    def moved(self, partition: int, left: str, move: Move, stable: int) -> None:
        """A partition has arrived; where it left, nothing stays of it but what becomes its copy."""
        if left != move.backup:
            self.copied[partition].pop(left, None)
        elif left in self.served[partition]:
            # It says so itself, but that may come later than the word of the arrival.
            self.copied[partition].setdefault(left, set()).add(stable)
        self.served[partition] = {move.to}

    def worked(self, done: WorkDone) -> None:
        """A worker has finished what it had to do for a clock."""
        clocked = self.clocks.setdefault(done.clock, Clocked())
        clocked.chunks += done.chunks
        clocked.seconds += done.seconds
        clocked.pushed += done.pushed_bytes
        clocked.loss_sum += done.loss_sum
        clocked.loss_count += done.loss_count

    @property
    def reached(self) -> int:
        """The latest version that every partition has."""
        return min(self.committed)

    def safe(self, backups: tuple[str, ...]) -> int:
        """The latest version that every partition has where it is safe: on its backup, else where it is served."""
        return min(
            max(self.copied[partition].get(backup, ()), default=-1) if backup else self.committed[partition]
            for partition, backup in enumerate(backups)
        )

    def settle(self, clock: int) -> None:
        """Copies of versions before this one are forgotten."""
        for copies in self.copied:
            for versions in copies.values():
                versions.difference_update([version for version in versions if version < clock])

    def close(self, clock: int) -> tuple[Clocked, int]:
        """The sums of a finished clock, and how many chunks of it or of earlier ones were computed again."""
        sums = self.clocks.pop(clock, None) or Clocked()
        if sums.chunks < self.plan.total(clock):
            # Some never said what they did, as when the controller was away: the mean of the others would be another's.
            sums.loss_sum, sums.loss_count = 0.0, 0
        again = [self.clocks.pop(earlier).chunks for earlier in list(self.clocks) if earlier < clock]
        return sums, max(0, sums.chunks - self.plan.total(clock)) + sum(again)
