"""The clocks of a job: what nodes report of them, which of them are decided, safe, saved and
logged; and the last one.

`LastClock` says which one that is; the model, and its loss, are fetched after it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, sqrt
from typing import Any

from agileml.core.deciding import Decisions
from agileml.core.events import (
    CheckpointRules,
    ClockRepeated,
    ControllerSettings,
    Finished,
    Iteration,
    RememberDecision,
)
from agileml.core.members import IN_EPOCH, Members
from agileml.core.planned_changes import Assignment
from agileml.core.recovery import VersionLedger
from agileml.policies.stage import ClockSums
from agileml.protocol.actions import Send
from agileml.protocol.messages import (
    Accept,
    Collect,
    Collected,
    Contributed,
    Evaluate,
    Evaluated,
    Helped,
    PartitionProgress,
    SquareOfAll,
    SquareOfPart,
    Stable,
    Version,
    WorkDone,
)
from agileml.work import WorkPlan

ClockReport = PartitionProgress | WorkDone | Contributed | Helped
"""Reports of nodes about their part of a clock."""


@dataclass(slots=True)
class ClockProgress:
    """Reports by version and clock. `stable` is the last version that is safe on every partition's
    backup.
    """

    ledger: VersionLedger
    decisions: Decisions
    log: ClockLog
    checkpoints: CheckpointSchedule
    norms: UpdateNorms
    stable: int = 0

    @classmethod
    def none(cls, plan: WorkPlan, partitions: int, settings: ControllerSettings) -> ClockProgress:
        """Before the first clock."""
        ledger = VersionLedger(partitions)
        decisions = Decisions(plan, settings.stragglers.wait_policy)
        checkpoints = CheckpointSchedule(partitions, settings.checkpoints)
        return cls(
            ledger, decisions, ClockLog(decisions, ledger), checkpoints, UpdateNorms(partitions)
        )

    def add(self, report: ClockReport, epoch: int) -> None:
        """Adds a report to its clock."""
        match report:
            case PartitionProgress():
                self.ledger.add_progress(report)
                self.decisions.add_sums(report, self.ledger.partitions)
            case WorkDone():
                self.ledger.add_work(report, counts=not self.decisions.is_late(report, epoch))
            case Contributed():
                self.decisions.add_contribution(report)
            case Helped():
                # A worker did a part of another one's work.
                sums = self.ledger.clocks.setdefault(report.clock, ClockSums())
                sums.helped_items += report.items
                sums.helped_seconds += report.seconds

    def decide(
        self, workers: Sequence[str], now: float, members: Members, epoch: int
    ) -> list[RememberDecision | Send]:
        """Decides which chunks make up the next clock, once enough workers are done."""
        decided = self.decisions.next(self.ledger.reached, workers, now)
        for note in self.decisions.notes:
            self.log.note(note)
        self.decisions.notes.clear()
        if decided is None:
            return []

        accept = Accept(epoch, decided.accepted.clock, decided.accepted.covers)
        return [
            RememberDecision(decided.line()),
            *(Send(name, accept) for name in members.names(*IN_EPOCH)),
        ]

    def advance_stable(
        self, assignment: Assignment, members: Members, limit: int, epoch: int, now: float
    ) -> list[Send]:
        """Advances the stable version, if a later one is safe, and informs the nodes that hold
        versions.
        """
        # At most the last clock: its versions are the result of the job.
        safe = min(self.ledger.safe(assignment.table.backups), limit)
        if safe <= self.stable:
            return []

        stable = Stable(epoch, safe, self.checkpoints.request(safe, self.stable, now))
        self.stable = safe
        self.ledger.forget_before(safe)
        self.norms.forget_until(safe)
        holders = {*assignment.table.owners, *assignment.table.backups}
        holders.update(move.to for move in assignment.moving.values())

        return [Send(name, stable) for name in members.names(*IN_EPOCH) if name in holders]

    def roll_back(self, clock: int, *, loads: bool) -> None:
        """All nodes return to a version, which some of them load from a checkpoint."""
        self.stable = clock
        self.checkpoints.roll_back(clock, loads=loads)
        self.log.roll_back(clock)
        self.norms.roll_back()
        self.decisions.roll_back()

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        return {
            "stable": self.stable,
            "checkpoint": self.checkpoints.latest,
            "logged": self.log.logged,
        }

    def restore(self, record: Mapping[str, Any], now: float) -> None:
        """Takes over from an earlier controller."""
        self.stable = record["stable"]
        self.checkpoints.latest = record["checkpoint"]
        self.log.logged = record["logged"]
        self.log.logged_at = now
        self.decisions.restore(record.get("accepted", ()))


_DONE_AGAIN = re.compile(r"clocks (\d+) to (\d+) are done again")


def clocks_done_again(events: Iterable[str]) -> list[list[int]]:
    """The first and the last of finished clocks that a loss undid, by the events of all clocks in
    order.
    """
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
    recent_events: list[str] = field(default_factory=list)

    def note(self, event: str) -> None:
        """Adds an event to the next clock."""
        self._events.append(event)
        self.recent_events = [*self.recent_events[-4:], event]

    def roll_back(self, clock: int) -> None:
        """All nodes return to a version."""
        if clock < self.logged:
            self.note(f"clocks {clock + 1} to {self.logged} are done again")
        self.ledger.reset(clock)
        self._reached = clock

    def take_repeated(self) -> ClockRepeated | None:
        """Takes the last clock that all partitions have committed, if that is new and the clock was
        logged before.
        """
        before = self._reached
        self._reached = self.ledger.reached
        if before < self._reached <= self.logged:
            return ClockRepeated(self._reached)
        return None

    def close_next(
        self, now: float, limit: int, stage: int, nodes: tuple[int, int]
    ) -> Iteration | None:
        """Closes the next clock and returns it, if it is complete; `limit` is the last clock of the
        job.
        """
        assert self.logged_at is not None
        if self.logged >= self.ledger.reached:
            return None

        accepted = self.decisions.accepted(self.logged + 1)
        reports = self.ledger.clocks.get(accepted.clock)
        complete = reports is not None and reports.chunks >= accepted.chunks

        # Once a later version is committed, or after the last clock, a report that is missing never
        # comes.
        if not (complete or self.ledger.reached > accepted.clock or accepted.clock == limit):
            return None

        self.logged += 1
        sums, redone = self.ledger.close_clock(accepted)
        sums.waited_for = self.decisions.waited_for(self.logged)
        sums.dropped_chunks = self.decisions.dropped(self.logged)
        sums.least_counted, sums.most_counted = self.decisions.shares.extremes()
        took = now - self.logged_at
        events = tuple(self._events)
        self.logged_at = now
        self._events.clear()

        return Iteration(
            self.logged,
            took,
            stage,
            *nodes,
            sums,
            redone,
            events,
            self.decisions.plan.covers_of_shards(accepted),
        )


MAX_SKIPPED = 4
"""Checkpoints that are skipped, at most, while an earlier one is still being written."""

LONGEST_PAUSE = 60.0
"""Seconds after a checkpoint is complete, at most, before the next one is due, however long it
took."""


@dataclass(slots=True)
class CheckpointSchedule:
    """Checkpoints by the rules, as far as storage keeps up; `latest` is the last complete one, -1:
    none.

    There is a pause between two, because clocks of a small model take less time than their
    checkpoints. Writing takes at most a share of the time, so that a large model is not written in
    every clock, unless that would leave LONGEST_PAUSE between two. They may be as frequent as costs
    least, if that is more: with Young's interval, the root of twice the time that one costs times
    the mean time between losses. As training goes on meanwhile, half of the time that one takes is
    assumed to be lost. One loss more is expected than there were, so that a young job is not taken
    for a safe one.
    """

    partitions: int
    rules: CheckpointRules
    latest: int = -1
    _requested: int = -1
    _requested_at: float = -inf
    _next_at: float = -inf
    _saved: dict[int, set[int]] = field(default_factory=dict)
    """By clock, the partitions that are written."""
    _began: float = inf
    _loads: int = 0
    """How often a checkpoint was loaded since then."""

    def request(self, stable: int, before: int, now: float) -> bool:
        """Whether the version that became stable after `before` is to be saved."""
        every = self.rules.every
        if not every or stable // every <= before // every or now < self._next_at:
            return False

        # Storage keeps up, or the last requested checkpoint is so late that it no longer holds up
        # the next.
        is_written = self.latest >= self._requested
        if is_written or stable >= self._requested + MAX_SKIPPED * every:
            self._requested = stable
            self._requested_at = now
            self._next_at = now + self.rules.pause
            self._began = min(self._began, now)
            return True
        return False

    def add(self, clock: int, partition: int, now: float) -> bool:
        """A partition is written; whether that completes a checkpoint later than the last one."""
        saved = self._saved.setdefault(clock, set())
        saved.add(partition)
        if len(saved) < self.partitions:
            return False

        if clock == self._requested:
            # The time from the end of this checkpoint to the next one: see Young's interval above.
            took = now - self._requested_at
            rest = min(took * (1 / self.rules.share - 1), LONGEST_PAUSE)
            cheapest = sqrt(took * (now - self._began) / (self._loads + 1))
            rest = min(rest, max(0.0, cheapest - took))
            self._next_at = max(self._next_at, now + rest)
        newer = clock > self.latest
        self.latest = max(self.latest, clock)
        self._saved = {later: parts for later, parts in self._saved.items() if later > clock}
        return newer

    def roll_back(self, clock: int, *, loads: bool = False) -> None:
        """All nodes return to a version: what was written of later ones does not fit those computed
        from now on.
        """
        self._loads += loads
        self._requested = self.latest
        self._saved = {saved: parts for saved, parts in self._saved.items() if saved <= clock}


@dataclass(slots=True)
class UpdateNorms:
    """Squares by clock: `parts` of clocks that are not complete, by partition, and `whole` of those
    that are.

    A square follows from the contributions alone, so that one that is reported again is the same.
    """

    partitions: int
    parts: dict[int, dict[int, float]] = field(default_factory=dict)
    whole: dict[int, float] = field(default_factory=dict)

    def add(self, report: SquareOfPart, members: Members) -> list[Send]:
        """The answers to a report: to all nodes once every partition has reported, and to one that
        reports later.
        """
        clock = report.clock
        to = [report.node]
        if clock not in self.whole:
            squares = self.parts.setdefault(clock, {})
            squares[report.partition] = report.square
            if len(squares) < self.partitions:
                return []
            self.whole[clock] = sum(square for _, square in sorted(self.parts.pop(clock).items()))
            to = members.names(*IN_EPOCH)

        return [Send(name, SquareOfAll(report.epoch, clock, self.whole[clock])) for name in to]

    def forget_until(self, stable: int) -> None:
        """Every partition has these versions."""
        self.whole = {clock: square for clock, square in self.whole.items() if clock > stable}

    def roll_back(self) -> None:
        """An epoch begins: all of its clocks are reported again."""
        self.parts.clear()
        self.whole.clear()


@dataclass(slots=True)
class LastClock:
    """The last clock, and what has been fetched of its model and of the loss of that.

    `counts` is the number of items by shard over which the loss is computed.
    """

    limit: int
    counts: Mapping[int, int]
    stopping: bool = False
    """Whether the job ends before the clock that its settings name."""
    interrupted: bool = False
    """The job's end waits for nothing. Not recorded: the job loop repeats it, and a later run goes
    on."""
    _collecting: bool = False
    _collected: dict[int, Version] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    """Nodes that were asked for the loss."""
    _sums: dict[int, float] = field(default_factory=dict)
    """By shard, the sum of its losses. Two workers of a shard give the same answer."""

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        return {"limit": self.limit, "stopping": self.stopping}

    def restore(self, record: Mapping[str, Any]) -> None:
        """Takes over from an earlier controller. A resumed job may change its last clock unless it
        was stopping.
        """
        self.stopping = record["stopping"]
        if self.stopping:
            self.limit = record["limit"]
        else:
            self.limit = max(self.limit, record["stable"])

    def roll_back(self, clock: int) -> None:
        """All nodes return to a version, so that nothing is fetched yet."""
        # Nodes that had not received the limit have worked beyond it.
        self.limit = max(self.limit, clock)
        self._collecting = False
        self._collected.clear()
        self._asked.clear()
        self._sums.clear()

    def may_stop_after(self, clock: int) -> bool:
        """Whether it is still open that the job ends with this clock."""
        return clock < self.limit and not self.stopping and not self.interrupted

    def stop(self, reached: int, stable: int) -> None:
        """Ends the job with the clock in progress."""
        # Backups may have reported a version before its servers did, if the servers' links are
        # slower.
        self.stopping = True
        self.limit = max(reached + 1, stable)

    def interrupt(self, stable: int) -> bool:
        """Ends the job with the last stable version: a later one could take as long as a clock;
        whether that is new.
        """
        self.interrupted = True
        if self._collecting or self.limit <= stable:
            return False
        self.limit = stable
        return True

    def requests(self, epoch: int, owners: Sequence[str], nodes: Iterable[str]) -> Iterator[Send]:
        """Fetches the model from its servers, and its loss from those nodes that have not been
        asked.
        """
        if not self._collecting:
            self._collecting = True
            for partition, owner in enumerate(owners):
                yield Send(owner, Collect(epoch, partition, self.limit))

        if self.interrupted or self._has_loss:
            return
        for name in [node for node in nodes if node not in self._asked]:
            self._asked.add(name)
            yield Send(name, Evaluate(epoch, self.limit))

    def add(self, event: Collected | Evaluated) -> None:
        """Adds a partition of the model, or a part of its loss."""
        if isinstance(event, Collected):
            self._collected[event.partition] = event.version
        else:
            self._sums[event.shard] = event.loss_sum

    @property
    def _has_loss(self) -> bool:
        """Whether the loss is known, or there is none."""
        return len(self._sums) == len(self.counts)

    def finished(self, partitions: int, tally: Callable[[int], tuple[int, int]]) -> Finished | None:
        """The end of the job, once the model is complete, and so is its loss; `tally` checks
        versions of a clock.
        """
        if len(self._collected) < partitions or not (self.interrupted or self._has_loss):
            return None
        versions = tuple(self._collected[partition] for partition in range(partitions))
        loss = None
        if self.counts and self._has_loss:
            # In the order of shards, so that it does not depend on which node was faster.
            loss = sum(total for _, total in sorted(self._sums.items())) / sum(self.counts.values())
        return Finished(self.limit, versions, loss, tally(self.limit))
