"""A partition on its server and on its backup: versions, contributions to later clocks, and waiting workers.

Committed versions never change; versions share the segments that a clock did not touch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agileml.errors import InvalidTransition
from agileml.params.commit import CommitRule
from agileml.params.deltas import ADD, Aggregation, Delta, accumulate, aggregate, inner, scaled, square
from agileml.params.layout import PartitionState
from agileml.params.reads import WantedRows
from agileml.protocol.messages import GradientSums, Patch, PendingPush, Tally, UpdateEntry, Version, Waiting
from agileml.work.counted import CountedWork
from agileml.work.covers import FINGERPRINT_MASK, Accepted, Cover, Coverage, covers_fingerprint


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


@dataclass(slots=True)
class ServedPartition:
    """A partition that this node serves. `stamped` is the last version that was sent to its backup; -1: none.

    `reads` holds the rows that each worker reads, and is not handed over: workers tell the next owner themselves.
    """

    partition: int
    ordered: bool
    by: Aggregation
    work: CountedWork
    versions: dict[int, Version]
    clock: int
    backup: str = ""
    stamped: int = -1
    pending: dict[int, PendingClock] = field(default_factory=dict)
    reads: dict[str, WantedRows | None] = field(default_factory=dict)
    sums: GradientSums | None = None
    """Sums over the contributions to the latest version, if some of them could be left out."""
    _before: tuple[int, Delta | None] | None = None
    """The latest clock and the sum of its contributions, if some of them could be left out."""
    _waiting: dict[int, list[Waiting]] = field(default_factory=dict)

    @property
    def latest(self) -> Version:
        """The latest committed version."""
        return self.versions[self.clock]

    def contribute(self, clock: int, covers: Sequence[Cover], entries: Sequence[UpdateEntry]) -> None:
        """Adds a contribution, unless it was left out of its clock.

        InvalidTransition if a chunk of it is there already, as it would be applied twice.
        """
        if self.work.left_out(clock, covers):
            return
        if clock <= self.clock:
            if self.work.awaits and self.work.accepted(clock) is None:
                # Left out: the partition moved here with this clock, and the decision comes over another link.
                return
            raise InvalidTransition(
                f"partition {self.partition} is at version {self.clock};"
                f" chunks {list(covers)} of clock {clock} arrived again"
            )
        pending = self.pending.setdefault(clock, PendingClock(self.ordered, self.by, self.work.awaits))
        clash = pending.coverage.clash(covers)
        if clash is not None:
            raise InvalidTransition(f"partition {self.partition}, clock {clock}: chunks {clash} arrived twice")
        pending.add(covers, entries, clock)

    def commit(self, rule: CommitRule) -> Delta | None:
        """Commits the next version if all accepted chunks are there; returns the changed values then, else None."""
        clock = self.clock + 1
        accepted, pending = self.work.accepted(clock), self.pending.get(clock)
        if accepted is None or pending is None or not pending.coverage.complete(accepted):
            return None
        before = self.latest
        if self.work.awaits:
            self.sums = pending.choose(self.work, accepted, self._before)
        update = pending.summed()
        if self.work.awaits:
            self._before = clock, update
            update = scaled(update, self.work.plan.scale(accepted))
        state, changed = rule.advance(self.partition, before.state, update, clock)
        fingerprint = (before.tally.fingerprint + pending.fingerprint) & FINGERPRINT_MASK
        tally = Tally(before.tally.chunks + pending.chunks, fingerprint)
        self.versions[clock] = Version(clock, tally, state)
        self.clock = clock
        del self.pending[clock]
        return changed

    def wait(self, waiting: Waiting) -> None:
        """Adds a worker that waits for a version."""
        self._waiting.setdefault(waiting.at_least, []).append(waiting)

    def answerable(self) -> list[tuple[str, WantedRows | None]]:
        """Removes and returns the workers whose version is committed, and the rows that each wants."""
        ready = [version for version in self._waiting if version <= self.clock]
        answered = [waiting for version in sorted(ready) for waiting in self._waiting.pop(version)]
        return [(waiting.worker, None if waiting.whole else self.reads.get(waiting.worker)) for waiting in answered]

    def waiters(self) -> tuple[Waiting, ...]:
        """All waiting workers."""
        return tuple(waiting for group in self._waiting.values() for waiting in group)


@dataclass(slots=True)
class BackupPartition:
    """A partition that this node backs up. Patches that arrive before their base version wait for it."""

    partition: int
    versions: dict[int, Version]
    early: dict[int, Patch] = field(default_factory=dict)

    def take(self, patch: Patch, assigned: Callable[[PartitionState, Delta], PartitionState]) -> list[int]:
        """Applies a patch and those that waited for it; returns the new versions."""
        self.early[patch.base] = patch
        return self.apply_early(assigned)

    def apply_early(self, assigned: Callable[[PartitionState, Delta], PartitionState]) -> list[int]:
        """Applies the waiting patches whose base version is here; returns the new versions."""
        new: list[int] = []
        ready = [base for base in self.early if base == -1 or base in self.versions]
        while ready:
            new.append(self._apply(self.early.pop(ready[0]), assigned))
            ready = [base for base in self.early if base == -1 or base in self.versions]
        return new

    def _apply(self, patch: Patch, assigned: Callable[[PartitionState, Delta], PartitionState]) -> int:
        base = [] if patch.base == -1 else self.versions[patch.base].state
        self.versions[patch.clock] = Version(patch.clock, patch.tally, assigned(base, patch.values))
        return patch.clock


def keep_from(versions: dict[int, Version], clock: int) -> None:
    """Forgets versions before this one, to which no rollback leads; the newest always stays."""
    newest = max(versions)
    for at in [at for at in versions if at < clock and at != newest]:
        del versions[at]
