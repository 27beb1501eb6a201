"""Finished clocks: from the reports of nodes to one `Iteration` for each clock."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from agileml.core.deciding import Decisions
from agileml.core.events import ClockRepeated, Iteration
from agileml.core.version_ledger import VersionLedger
from agileml.work.covers import Accepted

_DONE_AGAIN = re.compile(r"clocks (\d+) to (\d+) are done again")


def clocks_done_again(events: Iterable[str]) -> list[list[int]]:
    """The first and the last of finished clocks that a loss undid, by the events of all clocks in order."""
    spans = (match.groups() for event in events if (match := _DONE_AGAIN.fullmatch(event)))
    # Several losses before the next clock begin one epoch after the other from the same version.
    return [list(map(int, span)) for span in dict.fromkeys(spans)]


@dataclass(slots=True)
class ClockLog:
    """The clocks that were logged: the last one and its time, and what has happened since."""

    decisions: Decisions
    ledger: VersionLedger
    logged: int = 0
    logged_at: float | None = None
    _reached: int = 0
    _events: list[str] = field(default_factory=list)
    _recent: list[str] = field(default_factory=list)

    @property
    def recent_events(self) -> list[str]:
        """The last events, for the message of an error."""
        return self._recent[-5:]

    def note(self, event: str) -> None:
        """Adds an event to the next clock."""
        self._events.append(event)
        self._recent = [*self._recent[-19:], event]

    def roll_back(self, clock: int) -> None:
        """All nodes return to a version."""
        if clock < self.logged:
            self.note(f"clocks {clock + 1} to {self.logged} are done again")
        self.ledger.reset(clock)
        self._reached = clock

    def take_repeated(self) -> ClockRepeated | None:
        """Takes the last clock that all partitions have committed, if that is new and the clock was logged before."""
        before, self._reached = self._reached, self.ledger.reached
        return ClockRepeated(self._reached) if before < self._reached <= self.logged else None

    def close_next(self, now: float, limit: int, stage: int, nodes: tuple[int, int]) -> Iteration | None:
        """Closes the next clock and returns it, if it is complete; `limit` is the last clock of the job."""
        assert self.logged_at is not None
        if self.logged >= self.ledger.reached:
            return None
        accepted = self.decisions.accepted(self.logged + 1)
        if not self._reported(accepted, limit):
            return None
        self.logged += 1
        sums, redone = self.ledger.close_clock(accepted)
        sums.waited_for = self.decisions.waited_for(self.logged)
        sums.dropped_chunks = self.decisions.dropped(self.logged)
        sums.least_counted, sums.most_counted = self.decisions.shares.extremes()
        took, events = now - self.logged_at, tuple(self._events)
        self.logged_at = now
        self._events.clear()
        return Iteration(
            self.logged, took, stage, *nodes, sums, redone, events, self.decisions.plan.covers_of_shards(accepted)
        )

    def _reported(self, accepted: Accepted, limit: int) -> bool:
        """Whether every worker has reported its part of a clock, or never will."""
        sums = self.ledger.clocks.get(accepted.clock)
        complete = sums is not None and sums.chunks >= accepted.chunks
        return complete or self.ledger.reached > accepted.clock or accepted.clock == limit
