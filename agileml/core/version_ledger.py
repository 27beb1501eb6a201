"""Reports of nodes about versions and clocks: which versions are committed and safe, and the sums of each clock."""

from dataclasses import dataclass, field

from agileml.policies.policy import ClockSums
from agileml.protocol.messages import Helped, Move, PartitionProgress, WorkDone
from agileml.work.covers import Accepted


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
    """Chunks that workers have done and kept, in all: a sign of progress for those who watch the job."""

    def __post_init__(self) -> None:
        self.reset(0)

    def reset(self, clock: int) -> None:
        """Starts an epoch: every partition is at this version, and nodes report again what they hold."""
        self.committed, self.reached = [clock] * self.partitions, clock
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
        """Records that a partition arrived; the node it left keeps nothing unless it is the backup now."""
        if left != move.backup:
            self.copied[partition].pop(left, None)
        elif left in self.served[partition]:
            # The node reports this itself, but its report may come after that of the arrival.
            self.copied[partition].setdefault(left, set()).add(stable)
        self.served[partition] = {move.to}

    def count_move(self, moved: int, seconds: float) -> None:
        """Counts a move, and the time since it or the one before it began, for the clock that is in progress."""
        sums = self.clocks.setdefault(self.reached + 1, ClockSums())
        sums.moved_bytes += moved
        sums.suspended_seconds += seconds

    def add_work(self, done: WorkDone, *, counts: bool = True) -> None:
        """Records that a worker finished its part of a clock; it does not count if that was too late."""
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

    def add_help(self, helped: Helped) -> None:
        """Records that a worker did a part of another one's work."""
        sums = self.clocks.setdefault(helped.clock, ClockSums())
        sums.helped_items += helped.items
        sums.helped_seconds += helped.seconds

    def note_underway(self, node: str, chunks: int) -> None:
        """A node has done chunks that it has not reported as a part of a clock."""
        if chunks or node in self.underway:
            self.underway[node] = chunks

    def lose(self, node: str) -> None:
        """Counts the chunks that a lost node had done and not sent yet: others have to do them again."""
        self.lost += self.underway.pop(node, 0)

    def safe(self, backups: tuple[str, ...]) -> int:
        """The latest version that every partition has on its backup, or on its server where there is no backup."""
        return min(
            max(self.copied[partition].get(backup, ()), default=-1) if backup else self.committed[partition]
            for partition, backup in enumerate(backups)
        )

    def forget_before(self, clock: int) -> None:
        """Forgets copies of versions before this one."""
        for copies in self.copied:
            for versions in copies.values():
                versions.difference_update([version for version in versions if version < clock])

    def close_clock(self, accepted: Accepted) -> tuple[ClockSums, int]:
        """The sums of a finished clock, and the number of chunks whose work was lost since the clock before."""
        sums = self.clocks.pop(accepted.clock, None) or ClockSums()
        expected = accepted.chunks
        if sums.chunks < expected:
            # Some reports were lost with a controller: the mean of the others would be the loss of another sample.
            sums.loss_sum, sums.loss_count = 0.0, 0
        again = [self.clocks.pop(earlier).chunks for earlier in list(self.clocks) if earlier < accepted.clock]
        lost, self.lost = self.lost, 0
        return sums, max(0, sums.chunks - expected) + sum(again) + lost
