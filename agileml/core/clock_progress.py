"""The clocks of a job: what nodes report of them, which of them are decided, safe, saved and logged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agileml.core.assignment import Assignment
from agileml.core.checkpointing import CheckpointSchedule
from agileml.core.clock_log import ClockLog
from agileml.core.deciding import Decisions
from agileml.core.events import ControllerSettings, RememberDecision
from agileml.core.members import IN_EPOCH, Members
from agileml.core.update_norms import UpdateNorms
from agileml.core.version_ledger import VersionLedger
from agileml.protocol.actions import Send
from agileml.protocol.messages import Accept, Contributed, Helped, PartitionProgress, Stable, WorkDone
from agileml.work.plan import WorkPlan

ClockReport = PartitionProgress | WorkDone | Contributed | Helped
"""Reports of nodes about their part of a clock."""


@dataclass(slots=True)
class ClockProgress:
    """Reports by version and clock. `stable` is the last version that is safe on every partition's backup."""

    ledger: VersionLedger
    decisions: Decisions
    log: ClockLog
    checkpoints: CheckpointSchedule
    norms: UpdateNorms
    stable: int = 0

    @classmethod
    def none(cls, plan: WorkPlan, partitions: int, settings: ControllerSettings) -> "ClockProgress":
        """Before the first clock."""
        ledger, decisions = VersionLedger(partitions), Decisions(plan, settings.stragglers.wait_policy)
        rules = settings.checkpoints
        checkpoints = CheckpointSchedule(partitions, rules.every, rules.pause, rules.share)
        return cls(ledger, decisions, ClockLog(decisions, ledger), checkpoints, UpdateNorms(partitions))

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
                self.ledger.add_help(report)

    def decide(self, workers: Sequence[str], now: float, members: Members, epoch: int) -> list[RememberDecision | Send]:
        """Decides which chunks make up the next clock, once enough workers are done."""
        decided = self.decisions.next(self.ledger.reached, workers, now)
        for note in self.decisions.notes:
            self.log.note(note)
        self.decisions.notes.clear()
        if decided is None:
            return []
        accept = Accept(epoch, decided.accepted.clock, decided.accepted.covers)
        return [RememberDecision(decided.line()), *(Send(name, accept) for name in members.names(*IN_EPOCH))]

    def advance_stable(
        self, assignment: Assignment, members: Members, limit: int, epoch: int, now: float
    ) -> list[Send]:
        """Advances the stable version, if a later one is safe, and informs the nodes that hold versions."""
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

    def roll_back(self, clock: int) -> None:
        """All nodes return to a version."""
        self.stable = clock
        self.checkpoints.roll_back(clock)
        self.log.roll_back(clock)
        self.norms.roll_back()
        self.decisions.roll_back()

    def record(self) -> dict[str, Any]:
        """For the controller that takes over."""
        return {"stable": self.stable, "checkpoint": self.checkpoints.latest, "logged": self.log.logged}

    def restore(self, record: Mapping[str, Any], now: float) -> None:
        """Takes over from an earlier controller."""
        self.stable, self.checkpoints.latest = record["stable"], record["checkpoint"]
        self.log.logged, self.log.logged_at = record["logged"], now
        self.decisions.restore(record.get("accepted", ()))
