"""Whether processes that end by themselves should still be started again."""

import re
import signal
from collections.abc import Collection
from dataclasses import dataclass

from agileml.runtime.node_process import UNREACHABLE

MAX_IN_A_ROW = 5
"""Processes that may end one after another without any work reported in between."""

MAX_IN_ONE_CLOCK = 100
"""Processes that may end while the job finishes no new clock: what fails in every attempt at a clock ends there."""


_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
_NUMBER = re.compile(r"0x[0-9a-f]+|\d+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """A process that failed: its name, its status (negative: a signal), the end of its output, and the processes that
    ran at that time."""

    name: str = ""
    status: int | None = None
    output: str = ""
    running: Collection[str] = ()

    @property
    def kind(self) -> str:
        """Equal for failures that are alike except for numbers in their output; empty if that is unknown.

        A process that was ended by others may have been fine, as may one that did not reach the controller.
        """
        if self.status in (None, UNREACHABLE) or (not self.output and self.status in _FROM_OUTSIDE):
            return ""
        return f"{self.status} {_NUMBER.sub('#', self.output)}"


UNKNOWN = ProcessFailure()


@dataclass(slots=True)
class CrashGuard:
    """Counts processes that failed. What counts is work, not time: a job may lose processes faster than it finishes
    clocks, and goes on as long as its workers report more work, up to a limit.

    The guard gives up when a process that was started after another had failed fails in the same way before a new
    clock is finished: another attempt would not change that. Processes that ran side by side may have failed together
    for a passing reason.
    """

    nodes: int = 0
    """Each of them may fail once, also in a job of more nodes than the limits say."""
    in_a_row: int = 0
    in_one_clock: int = 0
    _clock: int = 0
    _progress: int = 0
    _kind: str = ""
    _then: frozenset[str] = frozenset()

    def advance(self, clock: int, progress: int) -> None:
        """`clock` is the last finished one; `progress` grows with the work that workers have reported."""
        if clock > self._clock:
            self.in_one_clock, self._kind = 0, ""
        if progress > self._progress or clock > self._clock:
            self.in_a_row = 0
        self._clock, self._progress = clock, progress

    def add(self, failure: ProcessFailure = UNKNOWN) -> str:
        """Counts one more process; why none should be started any more, or nothing."""
        self.in_a_row += 1
        self.in_one_clock += 1
        if self._is_repeated(failure):
            return f"the last of {self.in_one_clock} processes that ended: its replacement failed in the same way"
        if self.in_a_row > max(MAX_IN_A_ROW, self.nodes):
            return f"the last of {self.in_a_row} processes that ended without any work done in between"
        if self.in_one_clock > max(MAX_IN_ONE_CLOCK, self.nodes):
            return f"the last of {self.in_one_clock} processes that ended before clock {self._clock + 1} was finished"
        return ""

    def _is_repeated(self, failure: ProcessFailure) -> bool:
        if failure.kind and failure.kind == self._kind:
            return failure.name not in self._then
        self._kind, self._then = failure.kind, frozenset((*failure.running, failure.name))
        return False
