"""Contributions to a clock of a partition that is not committed yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from agileml.params.deltas import ADD, Aggregation, Delta, accumulate, aggregate, combined_anew, inner, square
from agileml.protocol.messages import GradientSums, PendingPush, UpdateEntry
from agileml.work.counted import CountedWork
from agileml.work.covers import Accepted, Cover, Coverage, covers_fingerprint


@dataclass(slots=True)
class PendingClock:
    """Contributions to one clock. In deterministic mode they are kept separate until they can be summed in order.

    With `awaits`, all contributions are kept separate until it is decided which of them count.
    """

    ordered: bool
    by: Aggregation = ADD
    awaits: bool = False
    undecided: list[tuple[tuple[Cover, ...], tuple[UpdateEntry, ...]]] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    entries: list[UpdateEntry] = field(default_factory=list)
    total: Delta | None = None
    total_is_first: bool = False
    """Whether the total is the first contribution itself, which may not change: its worker may send it again."""
    chunks: int = 0
    fingerprint: int = 0

    def add(self, covers: Sequence[Cover], entries: Sequence[UpdateEntry], clock: int) -> None:
        """Adds a contribution whose covers do not clash."""
        self.coverage.add(covers)
        if self.awaits:
            self.undecided.append((tuple(covers), tuple(entries)))
            return
        self._sum(covers, entries, clock)

    def _sum(self, covers: Sequence[Cover], entries: Sequence[UpdateEntry], clock: int) -> None:
        self.chunks += sum(last - first for _, first, last in covers)
        self.fingerprint += covers_fingerprint(clock, tuple(covers))
        if self.ordered:
            self.entries.extend(entries)
            return
        for entry in entries:
            if self.total is None:
                self.total, self.total_is_first = entry.delta, True
            elif self.total_is_first:
                self.total, self.total_is_first = combined_anew(self.total, entry.delta, self.by), False
            else:
                self.total = accumulate(self.total, entry.delta, self.by)

    def summed(self) -> Delta | None:
        """The sum of all contributions: in the order of shard and chunk in deterministic mode, else of arrival."""
        if not self.ordered:
            return self.total
        in_order = sorted(self.entries, key=lambda entry: (entry.shard, entry.chunk))
        return aggregate([entry.delta for entry in in_order], self.by)

    def choose(self, work: CountedWork, accepted: Accepted, before: tuple[int, Delta | None] | None) -> GradientSums:
        """Sums the accepted contributions and drops the others; returns what they are like.

        `before` is the last clock that this server summed, and the sum.
        """
        weighted, count = 0.0, 0
        for covers, entries in self.undecided:
            if work.left_out(accepted.clock, covers):
                continue
            self._sum(covers, entries, accepted.clock)
            own = entries[0].delta if len(entries) == 1 else aggregate([entry.delta for entry in entries], self.by)
            items = work.plan.cover_items(accepted.clock, covers)
            weighted, count = weighted + square(own) / max(1, items), count + (items > 0)
        summed = self.summed()
        along = inner(summed, before[1]) if before is not None and before[0] == accepted.clock - 1 else None
        return GradientSums(count, weighted, square(summed), along)

    def handed_over(self, clock: int) -> tuple[PendingPush, ...]:
        """All contributions: as one, unless some of them may not count."""
        if self.awaits:
            return tuple(PendingPush("", clock, covers, entries) for covers, entries in self.undecided)
        entries = tuple(self.entries)
        if not self.ordered and self.total is not None:
            entries = (UpdateEntry(-1, -1, self.total),)
        return (PendingPush("", clock, self.coverage.covers(), entries),)
