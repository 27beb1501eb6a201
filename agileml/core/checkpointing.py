"""When checkpoints are requested, and which of them are complete."""

from dataclasses import dataclass, field
from math import inf

MOST_SKIPPED = 4
"""Checkpoints that are skipped, at most, while an earlier one is still being written."""

LONGEST_PAUSE = 60.0
"""Seconds after a checkpoint is complete, at most, before the next one is due, however long it took."""


@dataclass(slots=True)
class CheckpointSchedule:
    """A checkpoint every `every` clocks, as far as storage keeps up; `latest` is the last complete one, -1: none.

    At least `pause` seconds lie between two: clocks of a small model take less time than their checkpoints. Writing
    takes at most the `share` of the time, so that a large model is not written in every clock, unless that would leave
    LONGEST_PAUSE between two.
    """

    partitions: int
    every: int
    pause: float = 0.0
    share: float = 1.0
    latest: int = -1
    _requested: int = -1
    _requested_at: float = -inf
    _next_at: float = -inf
    _saved: dict[int, set[int]] = field(default_factory=dict)
    """By clock, the partitions that are written."""

    def request(self, stable: int, before: int, now: float) -> bool:
        """Whether the version that became stable after `before` is to be saved."""
        due = bool(self.every) and stable // self.every > before // self.every and now >= self._next_at
        if due and self._storage_keeps_up(stable):
            self._requested, self._requested_at, self._next_at = stable, now, now + self.pause
            return True
        return False

    def _storage_keeps_up(self, clock: int) -> bool:
        """Whether the last requested checkpoint is complete, or so late that it no longer holds up the next."""
        return self.latest >= self._requested or clock >= self._requested + MOST_SKIPPED * self.every

    def add(self, clock: int, partition: int, now: float) -> bool:
        """A partition is written; whether that completes a checkpoint later than the last one."""
        saved = self._saved.setdefault(clock, set())
        saved.add(partition)
        if len(saved) < self.partitions:
            return False
        if clock == self._requested:
            rest = (now - self._requested_at) * (1 / self.share - 1)
            self._next_at = max(self._next_at, now + min(rest, LONGEST_PAUSE))
        newer, self.latest = clock > self.latest, max(self.latest, clock)
        self._saved = {later: parts for later, parts in self._saved.items() if later > clock}
        return newer

    def roll_back(self, clock: int) -> None:
        """All nodes return to a version: what was written of later ones does not fit those computed from now on."""
        self._requested = self.latest
        self._saved = {saved: parts for saved, parts in self._saved.items() if saved <= clock}
