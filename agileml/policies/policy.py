"""The contract of a policy: the controller reports what happened, and the policy answers with proposals.

A policy is an immutable value that performs no action itself. The controller decides what to do with a proposal and
logs it, so that a run can be replayed without the policy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(slots=True)
class ClockSums:
    """Sums of the nodes' reports about one clock: chunks, seconds of work, bytes sent, and the loss over the sample.

    `helped_items` were done by other workers than their owners, in `helped_seconds`. `moved_bytes` of partitions
    changed their server, during `suspended_seconds` in which a partition was under way. `waited_for` workers were
    awaited (0: all), and `dropped_chunks` of the others left out; the shards that have counted least and most often so
    far have done so `least_counted` and `most_counted` times as often as the mean of all.
    """

    chunks: int = 0
    seconds: float = 0.0
    pushed: int = 0
    pulled: int = 0
    backup: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    helped_items: int = 0
    helped_seconds: float = 0.0
    moved_bytes: int = 0
    suspended_seconds: float = 0.0
    waited_for: int = 0
    dropped_chunks: int = 0
    least_counted: float = 1.0
    most_counted: float = 1.0


@dataclass(frozen=True, slots=True)
class NodesChanged:
    """The number of active nodes of each kind; the first report of a job is one of these."""

    reliable: int
    transient: int


@dataclass(frozen=True, slots=True)
class ClockFinished:
    """A finished clock: its stage, nodes, seconds and sums. `quiet`: nothing moved, failed or joined during it.

    `partitions` are those of the parameters: as many machines serve at most.
    """

    stage: int
    reliable: int
    transient: int
    seconds: float
    sums: ClockSums
    quiet: bool = True
    partitions: int = 1

    @property
    def reliable_share(self) -> float:
        """Fraction of all traffic that reliable nodes send or receive.

        They serve and work in stage 1, keep backups and work in stage 2, and keep backups in stage 3.
        """
        served = self.sums.pushed + self.sums.pulled
        if not served:
            return 0.0
        working = served * self.reliable / max(1, self.reliable + self.transient)
        through = {1: served, 2: working + self.sums.backup, 3: self.sums.backup}[self.stage]
        return through / (served + (self.sums.backup if self.stage > 1 else 0))

    def seconds_in(self, stage: int) -> float:
        """Estimated seconds of this clock in another stage, if the time besides computing grows with the bytes that the
        busiest machine sends and receives.

        Where little travels, the estimate is too high: but there no stage is much faster than another.
        """
        workers = self._workers(self.stage)
        waiting = max(0.0, self.seconds - self.sums.seconds / workers)
        here = self._busiest(self.stage)
        return self.seconds if not here else self.seconds + waiting * (self._busiest(stage) / here - 1)

    def _busiest(self, stage: int) -> float:
        """Bytes that the machine with most of them sends and receives in a clock."""
        served = self.sums.pushed + self.sums.pulled
        worked = served / self._workers(stage)
        if stage == 1:
            return worked + served / max(1, min(self.reliable, self.partitions))
        backup = self.sums.backup
        keeping = backup / max(1, self.reliable) + (worked if stage == 2 else 0)
        return max(keeping, worked + (served + backup) / max(1, min(self.transient, self.partitions)))

    def _workers(self, stage: int) -> int:
        return max(1, self.transient + (0 if stage == 3 else self.reliable))


TrainingReport = NodesChanged | ClockFinished


@dataclass(frozen=True, slots=True)
class UseStage:
    """Run in this stage. `reason` is empty unless the policy has just made a decision worth logging."""

    stage: int
    reason: str = ""


class TrainingPolicy(Protocol):
    """An immutable policy."""

    def observe(self, report: TrainingReport) -> tuple[TrainingPolicy, tuple[UseStage, ...]]:
        """The policy that has seen this report, and what it proposes now."""
        ...

    def record(self) -> list[Any]:
        """The policy's knowledge as plain JSON, for the controller that takes over after a failure."""
        ...

    def restored(self, record: list[Any]) -> TrainingPolicy:
        """The policy with what a record says, which may have been through JSON."""
        ...
