"""A partition where it is served and where it is backed up: versions, contributions to the clocks that follow, waiters.

Versions are never changed once committed; segments that a clock did not touch are shared between versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agileml.core.work import FINGERPRINT_MASK, Coverage, cover_fingerprint
from agileml.errors import InvalidTransition
from agileml.params.commit import CommitRule
from agileml.params.deltas import ADD, Aggregation, Delta, accumulate, aggregate
from agileml.params.layout import State
from agileml.params.reads import Wanted
from agileml.protocol.messages import Cover, Entry, Patch, PendingPush, Tally, Version, Waiting


@dataclass(slots=True)
class Pending:
    """Contributions to one clock. In deterministic mode they stay apart until they can be summed in order."""

    ordered: bool
    by: Aggregation = ADD
    coverage: Coverage = field(default_factory=Coverage)
    entries: list[Entry] = field(default_factory=list)
    total: Delta | None = None
    fingerprint: int = 0

    def add(self, covers: Sequence[Cover], entries: Sequence[Entry], clock: int) -> None:
        """Take up a contribution whose covers do not clash."""
        self.coverage.add(covers)
        for cover in covers:
            self.fingerprint += cover_fingerprint(clock, cover)
        if self.ordered:
            self.entries.extend(entries)
            return
        for entry in entries:
            self.total = accumulate(self.total, entry.delta, self.by)

    def summed(self) -> Delta | None:
        """The sum of all contributions: by shard and chunk in deterministic mode, else as they came."""
        if not self.ordered:
            return self.total
        in_order = sorted(self.entries, key=lambda entry: (entry.shard, entry.chunk))
        return aggregate([entry.delta for entry in in_order], self.by)

    def handed_over(self, clock: int) -> PendingPush:
        """All of it as one contribution."""
        entries = tuple(self.entries)
        if not self.ordered and self.total is not None:
            entries = (Entry(-1, -1, self.total),)
        return PendingPush("", clock, tuple(self.coverage.covers()), entries)


@dataclass(slots=True)
class Served:
    """A partition that this node serves. `stamped` is the last version its backup was sent, -1: none.

    `reads` is what workers have said they read of it. It is not handed over: they say it to the next owner themselves.
    """

    partition: int
    ordered: bool
    by: Aggregation
    versions: dict[int, Version]
    clock: int
    backup: str = ""
    stamped: int = -1
    pending: dict[int, Pending] = field(default_factory=dict)
    reads: dict[str, Wanted | None] = field(default_factory=dict)
    _waiting: dict[int, list[Waiting]] = field(default_factory=dict)

    @property
    def latest(self) -> Version:
        """The committed version."""
        return self.versions[self.clock]

    def contribute(self, clock: int, covers: Sequence[Cover], entries: Sequence[Entry]) -> None:
        """Take up a contribution; one that is there already would be applied twice, and is an error."""
        if clock <= self.clock:
            raise InvalidTransition(
                f"partition {self.partition} is at version {self.clock};"
                f" chunks {list(covers)} of clock {clock} came again"
            )
        pending = self.pending.setdefault(clock, Pending(self.ordered, self.by))
        clash = pending.coverage.clash(covers)
        if clash is not None:
            raise InvalidTransition(f"partition {self.partition}, clock {clock}: chunks {clash} came twice")
        pending.add(covers, entries, clock)

    def commit(self, chunks: int, rule: CommitRule) -> Delta | None:
        """Make the next version if all its chunks are there; returns the changed values then, else None."""
        pending = self.pending.get(self.clock + 1)
        if pending is None or pending.coverage.chunks < chunks:
            return None
        before, clock = self.latest, self.clock + 1
        state, changed = rule.advance(self.partition, before.state, pending.summed(), clock)
        fingerprint = (before.tally.fingerprint + pending.fingerprint) & FINGERPRINT_MASK
        tally = Tally(before.tally.chunks + pending.coverage.chunks, fingerprint)
        self.versions[clock] = Version(clock, tally, state)
        self.clock = clock
        del self.pending[clock]
        return changed

    def wait(self, waiting: Waiting) -> None:
        """A worker waits for a version."""
        self._waiting.setdefault(waiting.at_least, []).append(waiting)

    def answerable(self) -> list[tuple[str, Wanted | None]]:
        """Workers whose version is there, and what they want of it; they wait no longer."""
        ready = [version for version in self._waiting if version <= self.clock]
        them = [waiting for version in sorted(ready) for waiting in self._waiting.pop(version)]
        return [(one.worker, None if one.whole else self.reads.get(one.worker)) for one in them]

    def waiters(self) -> tuple[Waiting, ...]:
        """Everybody who waits."""
        return tuple(one for them in self._waiting.values() for one in them)


@dataclass(slots=True)
class BackedUp:
    """A partition of which this node keeps a copy. Patches that came before their base wait for it."""

    partition: int
    versions: dict[int, Version]
    early: dict[int, Patch] = field(default_factory=dict)

    def take(self, patch: Patch, assigned: Callable[[State, Delta], State]) -> list[int]:
        """Apply a patch and those that waited for it; returns the versions that are new."""
        self.early[patch.base] = patch
        new: list[int] = []
        ready = [base for base in self.early if base == -1 or base in self.versions]
        while ready:
            new.append(self._apply(self.early.pop(ready[0]), assigned))
            ready = [base for base in self.early if base == -1 or base in self.versions]
        return new

    def _apply(self, patch: Patch, assigned: Callable[[State, Delta], State]) -> int:
        base = [] if patch.base == -1 else self.versions[patch.base].state
        self.versions[patch.clock] = Version(patch.clock, patch.tally, assigned(base, patch.values))
        return patch.clock


def keep_from(versions: dict[int, Version], clock: int) -> None:
    """Forget versions that nobody will go back to; the newest always stays."""
    newest = max(versions)
    for at in [at for at in versions if at < clock and at != newest]:
        del versions[at]
