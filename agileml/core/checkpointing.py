"""When checkpoints are requested, and which of them are complete."""

from __future__ import annotations

from dataclasses import dataclass, field

MOST_SKIPPED = 4
"""Checkpoints that are skipped, at most, while an earlier one is still being written."""


@dataclass(slots=True)
class CheckpointSchedule:
    """A checkpoint every `every` clocks, as far as storage keeps up; `latest` is the last complete one, -1: none."""

    partitions: int
    every: int
    latest: int = -1
    _requested: int = -1
    _saved: dict[int, set[int]] = field(default_factory=dict)
    """By clock, the partitions that are written."""

    def request(self, stable: int, before: int) -> bool:
        """Whether the version that became stable after `before` is to be saved."""
        due = bool(self.every) and stable // self.every > before // self.every and self._storage_keeps_up(stable)
        if due:
            self._requested = stable
        return due

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
