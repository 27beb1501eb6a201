"""Whether processes that end by themselves should still be started again."""

from __future__ import annotations

from dataclasses import dataclass

MOST_IN_A_ROW = 5
"""Processes that may end one after another without a clock finished, or finished again after a rollback, in between."""

MOST_IN_ONE_CLOCK = 25
"""Processes that may end while the job finishes no new clock: what fails in every attempt at a clock ends there."""


@dataclass(slots=True)
class CrashGuard:
    """Counts processes that failed. Clocks that are redone after a loss count as progress, but not without end."""

    nodes: int = 0
    """Each of them may fail once, also in a job of more nodes than the limits say."""
    in_a_row: int = 0
    in_one_clock: int = 0
    _clock: int = 0
    _progress: int = 0

    def advance(self, clock: int, progress: int) -> None:
        """`clock` is the last finished one, `progress` the number of finished clocks, repetitions included."""
        if clock > self._clock:
            self.in_one_clock = 0
        if progress > self._progress or clock > self._clock:
            self.in_a_row = 0
        self._clock, self._progress = clock, progress

    def add(self) -> str:
        """Counts one more process; why none should be started any more, or nothing."""
        self.in_a_row += 1
        self.in_one_clock += 1
        if self.in_a_row > max(MOST_IN_A_ROW, self.nodes):
            return f"the last of {self.in_a_row} processes that ended without a clock finished in between"
        if self.in_one_clock > max(MOST_IN_ONE_CLOCK, self.nodes):
            return f"the last of {self.in_one_clock} processes that ended before clock {self._clock + 1} was finished"
        return ""
