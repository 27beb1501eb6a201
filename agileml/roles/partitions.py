"""A partition on its server: versions, contributions to later clocks, and waiting workers.

The server hands it a message once, and is returned everything that follows: new versions, and
replies to workers. Committed versions never change; versions share the segments that a clock did
not touch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agileml.errors import InvalidTransition
from agileml.params.commit import CommitRule
from agileml.params.deltas import (
    ADD,
    Aggregation,
    Delta,
    accumulate,
    aggregate,
    combined_anew,
    inner,
    scaled,
    square,
)
from agileml.params.layout import PartitionState
from agileml.params.reads import WantedRows, picked
from agileml.params.wire import HalfWire
from agileml.protocol.messages import (
    GradientSums,
    PartitionUpdate,
    PendingPush,
    Push,
    Tally,
    UpdateEntry,
    Version,
    Waiting,
)
from agileml.work import (
    FINGERPRINT_MASK,
    Accepted,
    CountedWork,
    Cover,
    Coverage,
    covers_fingerprint,
)


@dataclass(frozen=True, slots=True)
class ServingRules:
    """How a job's partitions are served. In deterministic mode (`ordered`) contributions are summed
    in order.

    `fresh`: readers see updates before their clock is committed, as slack allows. `wire`: how
    parameters and updates travel; None: in the types of the parameters.
    """

    work: CountedWork
    rule: CommitRule
    ordered: bool
    fresh: bool
    wire: HalfWire | None = None
    squares: dict[int, float] = field(default_factory=dict)
    """By clock, the squared norm of the updates to all partitions, if updates are clipped by it."""

    def sent(self, partition: int, state: PartitionState, clock: int) -> PartitionState:
        """The part of a state that workers see, as it travels."""
        model = self.rule.model(partition, state)
        if self.wire is None:
            return model
        return self.wire.state(partition, model, clock)


class Commit(NamedTuple):
    """A new version, the values that changed, and the sums of contributions if some of them could
    be left out.
    """

    version: Version
    changed: Delta
    sums: GradientSums | None


class PartitionOutcome(NamedTuple):
    """Everything that follows from a message: versions, and then replies, in this order.

    `replies`: workers that have waited, each with values of the latest version. `squares`: the
    clocks whose updates are complete, with their squared norms; they wait for those of other
    partitions.
    """

    commits: Sequence[Commit] = ()
    replies: Sequence[tuple[str, Delta]] = ()
    squares: Sequence[tuple[int, float]] = ()


NOTHING = PartitionOutcome()


@dataclass(slots=True)
class Readers:
    """The workers that read a partition: the `rows` of each, and those that are `waiting` for a
    version.

    The rows are not handed over: workers tell the next owner themselves.
    """

    rows: dict[str, WantedRows | None] = field(default_factory=dict)
    waiting: dict[int, list[Waiting]] = field(default_factory=dict)

    def wait(self, waiting: Waiting) -> None:
        """Adds a worker that waits for a version."""
        self.waiting.setdefault(waiting.at_least, []).append(waiting)


@dataclass(slots=True)
class ServedPartition:
    """A partition that this node serves. `stamped` is the last version that was sent to its backup;
    -1: none.
    """

    partition: int
    rules: ServingRules
    versions: dict[int, Version]
    clock: int
    backup: str = ""
    stamped: int = -1
    pending: dict[int, PendingClock] = field(default_factory=dict)
    readers: Readers = field(default_factory=Readers)
    _before: tuple[int, Delta | None] | None = None
    """The latest clock and the sum of its contributions, if some of them could be left out."""
    _complete: tuple[Delta | None, GradientSums | None] | None = None
    """The updates and sums of the next clock (see `_summed`), if it waits for the norm of all
    updates."""

    @property
    def latest(self) -> Version:
        """The latest committed version."""
        return self.versions[self.clock]

    # -- messages ----------------------------------------------------------------------------------

    def push(self, message: Push, part: PartitionUpdate) -> PartitionOutcome:
        """Adds a contribution, whose worker may wait for a version."""
        entries = part.entries
        wire = self.rules.wire
        if wire is not None:
            # From now on in the types of the parameters.
            entries = tuple(
                replace(entry, delta=wire.received(part.partition, entry.delta))
                for entry in entries
            )

        self.contribute(message.clock, message.covers, entries)
        if message.want >= 0:
            self.readers.wait(Waiting(message.worker, message.want, whole=False))
        return self.advance()

    def pull(self, worker: str, at_least: int) -> PartitionOutcome:
        """Answers a request for the whole partition as soon as the version is committed."""
        self.readers.wait(Waiting(worker, at_least, whole=True))
        return PartitionOutcome(replies=self._replies())

    def exact(self, clock: int) -> Delta:
        """The model of a version, for the final loss."""
        return picked(self.rules.rule.model(self.partition, self.versions[clock].state), None)

    def advance(self) -> PartitionOutcome:
        """Commits every version whose accepted chunks are there, and replies to the workers that
        waited for it.
        """
        commits: list[Commit] = []
        squares: list[tuple[int, float]] = []
        while (commit := self._commit(squares)) is not None:
            commits.append(commit)
        replies = self._replies()

        if commits or replies or squares:
            return PartitionOutcome(commits, replies, squares)
        return NOTHING

    # -- contributions -----------------------------------------------------------------------------

    def contribute(
        self, clock: int, covers: Sequence[Cover], entries: Sequence[UpdateEntry]
    ) -> None:
        """Adds a contribution, unless it was left out of its clock.

        InvalidTransition if a chunk of it is there already, as it would be applied twice.
        """
        work = self.rules.work
        if work.left_out(clock, covers):
            return
        if clock <= self.clock:
            if work.awaits and work.accepted(clock) is None:
                # Left out: the partition moved here with this clock, and the decision comes over
                # another link.
                return
            raise InvalidTransition(
                f"partition {self.partition} is at version {self.clock};"
                f" chunks {list(covers)} of clock {clock} arrived again"
            )

        pending = self.pending.get(clock)
        if pending is None:
            by = self.rules.rule.declared.aggregation
            pending = self.pending[clock] = PendingClock(self.rules.ordered, by, work.awaits)

        clash = pending.coverage.clash(covers)
        if clash is not None:
            raise InvalidTransition(
                f"partition {self.partition}, clock {clock}: chunks {clash} arrived twice"
            )

        pending.add(covers, entries, clock)

    def _commit(self, squares: list[tuple[int, float]]) -> Commit | None:
        """Commits the next version if all accepted chunks are there, else None.

        If updates are clipped, it waits for the squares of all partitions, and adds its own to
        `squares` once.
        """
        clock = self.clock + 1
        rule = self.rules.rule
        if self._complete is None:
            self._complete = self._summed(clock)
            if (
                self._complete is not None
                and rule.clips_together
                and clock not in self.rules.squares
            ):
                squares.append(
                    (clock, rule.square(self.partition, self.latest.state, self._complete[0]))
                )

        if self._complete is None or (rule.clips_together and clock not in self.rules.squares):
            return None

        square = self.rules.squares.get(clock)
        (update, sums) = self._complete
        self._complete = None
        before = self.latest
        pending = self.pending.pop(clock)
        state, changed = rule.advance(self.partition, before.state, update, clock, square)
        fingerprint = (before.tally.fingerprint + pending.fingerprint) & FINGERPRINT_MASK
        tally = Tally(before.tally.chunks + pending.chunks, fingerprint)
        self.versions[clock] = Version(clock, tally, state)
        self.clock = clock

        return Commit(self.versions[clock], changed, sums)

    def _summed(self, clock: int) -> tuple[Delta | None, GradientSums | None] | None:
        """The updates of a clock, if all accepted chunks are there, and their sums if some could be
        left out.
        """
        work = self.rules.work
        accepted = work.accepted(clock)
        pending = self.pending.get(clock)
        if accepted is None or pending is None or not pending.coverage.complete(accepted):
            return None

        sums = pending.choose(work, accepted, self._before) if work.awaits else None
        update = pending.summed()
        if work.awaits:
            self._before = clock, update
            update = scaled(update, work.plan.scale(accepted))

        return update, sums

    # -- reads -------------------------------------------------------------------------------------

    def _replies(self) -> list[tuple[str, Delta]]:
        readers = self.readers
        ready = [version for version in readers.waiting if version <= self.clock]
        if not ready:
            return []

        answered = [
            waiting for version in sorted(ready) for waiting in readers.waiting.pop(version)
        ]

        # What a reader sees: the committed values, and with slack also the contributions to later
        # clocks.
        state = self.latest.state
        if self.rules.fresh:
            for clock in sorted(self.pending):
                total = self.pending[clock].summed()
                state = self.rules.rule.advance(self.partition, state, total, clock)[0]

        state = self.rules.sent(self.partition, state, self.clock)
        whole = picked(state, None)
        replies = []
        for waiting in answered:
            rows = None if waiting.whole else readers.rows.get(waiting.worker)
            replies.append((waiting.worker, picked(state, rows) if rows else whole))

        return replies


def keep_from(versions: dict[int, Version], clock: int) -> None:
    """Forgets versions before this one, to which no rollback leads; the newest always stays."""
    newest = max(versions)
    for at in [at for at in versions if at < clock and at != newest]:
        del versions[at]


@dataclass(slots=True)
class PendingClock:
    """Contributions to one clock. In deterministic mode they are kept separate until they can be
    summed in order.

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
    """Whether the total is the first contribution itself, which may not change: its worker may send
    it again."""
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
                self.total = entry.delta
                self.total_is_first = True
            elif self.total_is_first:
                self.total = combined_anew(self.total, entry.delta, self.by)
                self.total_is_first = False
            else:
                self.total = accumulate(self.total, entry.delta, self.by)

    def summed(self) -> Delta | None:
        """The sum of all contributions: in the order of shard and chunk in deterministic mode, else
        of arrival.
        """
        if not self.ordered:
            return self.total
        in_order = sorted(self.entries, key=lambda entry: (entry.shard, entry.chunk))
        return aggregate([entry.delta for entry in in_order], self.by)

    def choose(
        self, work: CountedWork, accepted: Accepted, before: tuple[int, Delta | None] | None
    ) -> GradientSums:
        """Sums the accepted contributions and drops the others; returns what they are like.

        `before` is the last clock that this server summed, and the sum.
        """
        weighted = 0.0
        count = 0
        for covers, entries in self.undecided:
            if work.left_out(accepted.clock, covers):
                continue
            self._sum(covers, entries, accepted.clock)
            own = (
                entries[0].delta
                if len(entries) == 1
                else aggregate([entry.delta for entry in entries], self.by)
            )
            items = work.plan.cover_items(accepted.clock, covers)
            weighted = weighted + square(own) / max(1, items)
            count += items > 0

        summed = self.summed()
        along = (
            inner(summed, before[1])
            if before is not None and before[0] == accepted.clock - 1
            else None
        )

        return GradientSums(count, weighted, square(summed), along)

    def handed_over(self, clock: int) -> tuple[PendingPush, ...]:
        """All contributions: as one, unless some of them may not count."""
        if self.awaits:
            return tuple(
                PendingPush("", clock, covers, entries) for covers, entries in self.undecided
            )
        entries = tuple(self.entries)
        if not self.ordered and self.total is not None:
            entries = (UpdateEntry(-1, -1, self.total),)
        return (PendingPush("", clock, self.coverage.covers(), entries),)
