"""Which chunks of a clock count, as one node knows it: all of them, unless the controller leaves late ones out."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agileml.work.covers import Accepted, Cover
from agileml.work.plan import WorkPlan
from agileml.work.ranges import Ranges

ClockCovers = tuple[int, tuple[Cover, ...]]
"""A clock and its accepted chunks, as messages carry it."""


@dataclass(slots=True)
class CountedWork:
    """The plan and the decisions about it. With `awaits`, a clock is complete only once it has been decided."""

    plan: WorkPlan
    awaits: bool = False
    _decided: dict[int, Accepted] = field(default_factory=dict)
    _past: int = 0
    """The clock up to which nothing is left to do, as no rollback of this epoch leads behind it."""

    def decide(self, decisions: Iterable[ClockCovers]) -> None:
        """Adds decisions of the controller."""
        self._decided.update((clock, Accepted(clock, covers)) for clock, covers in decisions)

    def forget_until(self, clock: int) -> None:
        """Forgets the decisions up to a clock, for which there is nothing left to do or undo."""
        if clock <= self._past and not self.awaits:
            return
        self._past = max(self._past, clock)
        for at in [at for at in self._decided if at <= clock]:
            del self._decided[at]

    def reset(self, clock: int, decisions: Iterable[ClockCovers]) -> None:
        """An epoch begins from a version, with the decisions about the clocks that are repeated."""
        self._decided.clear()
        self._past = clock
        self.decide(decisions)

    def accepted(self, clock: int) -> Accepted | None:
        """The chunks that make up a clock; None if that is not decided, or was forgotten."""
        if self.awaits or clock in self._decided:
            return self._decided.get(clock)
        # Partitions of one server ask for the same clocks.
        self._decided = {at: accepted for at, accepted in self._decided.items() if at >= clock - 2}
        self._decided[clock] = self.plan.accept_all(clock)
        return self._decided[clock]

    def ranges(self, shard: int, clock: int) -> Ranges:
        """The chunks of a shard that count; all of them as long as the clock is not decided."""
        if not self.awaits or clock > max(self._past, *self._decided, 0):
            return self.plan.ranges(shard, clock)
        return self._decided[clock].of_shard(shard) if clock in self._decided else Ranges()

    def left_out(self, clock: int, covers: Iterable[Cover]) -> bool:
        """Whether a contribution with these chunks came too late for its clock. All of it counts, or nothing."""
        if not self.awaits:
            return False
        accepted = self._decided.get(clock)
        if accepted is None:
            return clock <= self._past
        return not any(accepted.of_shard(shard).overlaps(first, last) for shard, first, last in covers)
