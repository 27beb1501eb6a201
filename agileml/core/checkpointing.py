"""When checkpoints are requested, and which of them are complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

MOST_SKIPPED = 4
"""Checkpoints that are skipped, at most, while an earlier one is still being written."""


@dataclass(slots=True)
class CheckpointSchedule:
    """A checkpoint every `every` clocks, as far as storage keeps up; `latest` is the last complete one, -1: none.

    At least `pause` seconds lie between two: clocks of a small model take less time than their checkpoints.
    """

    partitions: int
    every: int
    pause: float = 0.0
    latest: int = -1
    _requested: int = -1
    _requested_at: float = -inf
    _saved: dict[int, set[int]] = field(default_factory=dict)
    """By clock, the partitions that are written."""

    def request(self, stable: int, before: int, now: float) -> bool:
        """Whether the version that became stable after `before` is to be saved."""
        due = (
            bool(self.every) and stable // self.every > before // self.every and now >= self._requested_at + self.pause
        )
        if due and self._storage_keeps_up(stable):
            self._requested, self._requested_at = stable, now
            return True
        return False

    def _storage_keeps_up(self, clock: int) -> bool:
        """Whether the last requested checkpoint is complete, or so late that it no longer holds up the next."""
        return self.latest >= self._requested or clock >= self._requested + MOST_SKIPPED * self.every

    def add(self, clock: int, partition: int) -> bool:
        """A partition is written; whether that completes a checkpoint later than the last one."""
        saved = self._saved.setdefault(clock, set())
        saved.add(partition)
        if len(saved) < self.partitions:
            return False
        newer, self.latest = clock > self.latest, max(self.latest, clock)
        self._saved = {later: parts for later, parts in self._saved.items() if later > clock}
        return newer

    def roll_back(self, clock: int) -> None:
        """All nodes return to a version: what was written of later ones does not fit those computed from now on."""
        self._requested = self.latest
        self._saved = {saved: parts for saved, parts in self._saved.items() if saved <= clock}
