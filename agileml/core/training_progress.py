"""The progress of a job: reports of nodes, the log of its clocks, and its end."""

from __future__ import annotations

from dataclasses import dataclass

from agileml.core.controller_state import Mode
from agileml.core.events import Failed, Finished, Iteration, RememberCheckpoint, RememberDecision
from agileml.core.members import IN_EPOCH, NodePhase
from agileml.core.planned_changes import PlannedChanges
from agileml.policies.policy import ClockFinished
from agileml.protocol.messages import (
    Accept,
    Collect,
    Collected,
    Contributed,
    Evaluate,
    Evaluated,
    Helped,
    Leave,
    Limit,
    PartitionProgress,
    Saved,
    ServerTimed,
    Stable,
    WorkDone,
)

NodeProgress = PartitionProgress | WorkDone | Contributed | Saved | Collected | Evaluated | Helped | ServerTimed
"""Reports of nodes about their work and their partitions."""


@dataclass(slots=True)
class TrainingProgress(PlannedChanges):
    """The part of the controller that follows the clocks to the last one."""

    def _handle_progress(self, event: NodeProgress) -> None:
        match event:
            case WorkDone():
                self._ledger.add_work(event, counts=not self._decisions.is_late(event, self.epoch))
            case Contributed():
                self._decisions.add_contribution(event)
            case PartitionProgress():
                self._ledger.add_progress(event)
                self._decisions.add_sums(event, self.partitions)
                self._advance_stable()
            case Collected():
                self._collected[event.partition] = event.version
            case Evaluated():
                self._final_loss.add(event)
            case Helped():
                self._ledger.add_help(event)
            case ServerTimed():
                self._balance = self._balance.with_measurement(event.server, event.sent_bytes, event.seconds)
            case Saved():
                if self.checkpoints.add(event.clock, event.partition):
                    self._out.append(RememberCheckpoint(event.clock))

    def _decide(self, now: float) -> None:
        """Decides which chunks make up the next clock, once enough workers are done."""
        if self._decisions.policy is None or self.mode is not Mode.RUNNING:
            return
        decided = self._decisions.next(self._ledger.reached, self.table.workers, now)
        if self._decisions.reason:
            self._note(f"backup workers {self._decisions.reason}")
            self._decisions.reason = ""
        if decided is not None:
            self._out.append(RememberDecision(decided.line()))
            accept = Accept(self.epoch, decided.accepted.clock, decided.accepted.covers)
            self._broadcast(accept, IN_EPOCH)

    def _advance_stable(self) -> None:
        # At most the last clock: its versions are the result of the job.
        safe = min(self._ledger.safe(self.table.backups), self.limit)
        if safe <= self.stable or self.mode is not Mode.RUNNING:
            return
        due = self.checkpoints.request(safe, self.stable)
        self.stable = safe
        self._ledger.forget_before(safe)
        holders = {*self.table.owners, *self.table.backups} | {move.to for move in self.assignment.moving.values()}
        for node in self.members.names(*IN_EPOCH):
            if node in holders:
                self._send(node, Stable(self.epoch, safe, due))

    def _log(self, now: float) -> None:
        """Returns an `Iteration` for each clock that is complete."""
        if self._clock_log.logged_at is None:
            if self.epoch:
                self._clock_log.logged_at = now
            return
        if (repeated := self._clock_log.take_repeated()) is not None:
            self._out.append(repeated)
        while (iteration := self._next_iteration(now)) is not None:
            self._out.append(iteration)
            self._learn(iteration, now)
            going_on = iteration.clock < self.limit and not self._stopping and not self._interrupted
            if going_on and self.settings.stop(iteration):
                self._stopping = self._changed = True
                # Backups may have reported a version before its servers did, whose links are slower.
                self.limit = max(self._ledger.reached + 1, self.stable)
                self._broadcast(Limit(self.epoch, self.limit), IN_EPOCH)

    def _next_iteration(self, now: float) -> Iteration | None:
        footprint = self._current_footprint()
        nodes = len(footprint.reliable), len(footprint.transient)
        return self._clock_log.close_next(now, self.limit, self.stage, nodes)

    def _learn(self, iteration: Iteration, now: float) -> None:
        quiet = not (iteration.redone or iteration.events or self.assignment.moving)
        nodes = iteration.reliable, iteration.transient
        seconds = iteration.seconds
        self._observe(ClockFinished(iteration.stage, *nodes, seconds, iteration.sums, quiet, self.partitions))
        if self.stage != iteration.stage:
            self._replan()
        if self.settings.stragglers.balance_servers:
            self._balance_servers(now)

    def _stop(self) -> None:
        """Ends the job with the last stable version: waiting for a later one could take as long as a clock."""
        self._interrupted = True
        if not self._collecting and self.limit > self.stable:
            self.limit = self.stable
            self._broadcast(Limit(self.epoch, self.limit), IN_EPOCH)

    def _finish(self) -> None:
        """Once every partition has the last clock, fetches the model and its loss, and then ends the job."""
        if self.mode is not Mode.RUNNING or self._ledger.reached < self.limit:
            return
        if not self._collecting:
            self._collecting = True
            for partition, owner in enumerate(self.table.owners):
                self._send(owner, Collect(self.epoch, partition, self.limit))
        if not self._interrupted:
            for name in self._final_loss.to_ask(self.members.names(*IN_EPOCH)):
                self._send(name, Evaluate(self.epoch, self.limit))
        if len(self._collected) == self.partitions and (self._interrupted or self._final_loss.complete):
            self.mode = Mode.OVER
            versions = tuple(self._collected[partition] for partition in range(self.partitions))
            tally = self._decisions.tally(self.limit)
            self._out.append(Finished(self.limit, versions, self._final_loss.loss, tally))
            self._broadcast(Leave("the job is done"), (NodePhase.LOADING, NodePhase.READY, *IN_EPOCH))

    def _fail(self, why: str) -> None:
        self.mode = Mode.OVER
        self._out.append(Failed(why))
        self._broadcast(Leave(why), (NodePhase.LOADING, NodePhase.READY, *IN_EPOCH))
