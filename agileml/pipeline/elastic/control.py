"""The control of a pipeline job on a fleet: who is there, as in every job, and what the pipeline
makes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import msgspec

from agileml.core.events import (
    ClockRepeated,
    ControllerInstruction,
    ControllerSettings,
    Failed,
    Finished,
    Iteration,
    Remember,
    RememberCheckpoint,
    RememberDecision,
    StopJob,
)
from agileml.core.members import NodePhase, may_send
from agileml.core.roll_call import (
    Consequence,
    LostNodes,
    NodeAnswer,
    NodeEvent,
    RollCall,
    all_loaded,
)
from agileml.errors import AgileMLError
from agileml.pipeline.elastic.controller import (
    ElasticController,
    ElasticPhase,
    ElasticSettings,
    EpochRecord,
    Instructions,
)
from agileml.pipeline.elastic.seats import CopyLayers, NodeReport
from agileml.policies.stage import ClockSums
from agileml.protocol.actions import Send
from agileml.protocol.messages import Broken, Leave, Warned

_SPARE_EPOCHS = 1_000_000
"""More than a controller begins between two records: a later one never uses the number of an epoch
again."""

_IN_JOB = (NodePhase.LOADING, NodePhase.READY, NodePhase.ACTIVE, NodePhase.LEAVING)


@dataclass(frozen=True)
class UpdateDetails:
    """More about an update than every job reports: for the process that has started the pipeline,
    with the iteration.

    Losses of microbatches, also of updates that were done again, and the epochs that have begun to
    train.
    """

    losses: dict[int, float]
    epochs: tuple[EpochRecord, ...]


class PipelineProgress:
    """The losses and plans of a pipeline, as its controller reports them to the process that has
    started it.
    """

    def __init__(self, settings: ElasticSettings) -> None:
        self.batch = settings.batch
        self.layers = len(settings.layer_bytes)
        self.losses: dict[int, float] = {}
        self.history: list[EpochRecord] = []
        self.redone = 0

    def note(self, iteration: Iteration) -> None:
        """Adds what a controller reports with an update."""
        details = msgspec.json.decode(iteration.details, type=UpdateDetails)
        self.losses |= details.losses
        self.history.extend(details.epochs)
        self.redone += iteration.redone // self.batch


@dataclass
class PipelineControl:
    """An update is a clock of the job. `handle` is the only entry."""

    settings: ControllerSettings
    elastic: ElasticController
    logged: int = 0
    """The last update that was reported."""
    _notes: list[str] = field(default_factory=list)
    _out: list[ControllerInstruction] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._roll_call = RollCall(self.settings)
        self.members = self._roll_call.members
        self._updates = self._saved = self.elastic.batch
        self._noted_epoch = self.epoch
        self._logged_at: float | None = None
        self._redone = 0
        self.reported = 0
        """Reports of finished work."""
        self._losses: dict[int, float] = {}
        """Losses of microbatches that were not reported yet."""
        self._reported_epochs = 0
        self._stopping = self._over = False

    @classmethod
    def resumed(
        cls,
        pipeline: ElasticSettings,
        settings: ControllerSettings,
        record: Mapping[str, Any] | None,
        now: float,
    ) -> "PipelineControl":
        """With a record, goes on from the newest state in the store; nodes count as new, whatever
        they hold.
        """
        elastic = ElasticController(pipeline)
        if record is None:
            return cls(settings, elastic)

        losses = {int(k): loss for line in record["accepted"] for k, loss in line}
        batch = record["checkpoint"]
        size = pipeline.batch
        elastic.resume(batch, {k: loss for k, loss in losses.items() if k < batch * size})
        elastic.epoch = record["epoch"] + _SPARE_EPOCHS
        control = cls(settings, elastic, record["logged"])
        control.members.restore({**record, "members": []}, now)
        control._roll_call.waiting_since = now

        return control

    @property
    def epoch(self) -> int:
        return self.elastic.epoch

    def handle(
        self, event: object, now: float, sender: str | None = None
    ) -> list[ControllerInstruction]:
        """Processes an event and returns the instructions that follow from it, in order."""
        if self._over or (sender is not None and not may_send(sender, event)):
            return []
        try:
            self._process(event, now)
        except AgileMLError as error:
            self._end(Failed(str(error)), str(error))
        instructions = self._out
        self._out = []
        return instructions

    # It is for this node.
    def granted(self, node: str, order: object) -> frozenset[tuple[int, int]]:  # noqa: ARG002
        """The layers of which a node is to save copies, with the update before which they are
        saved.
        """
        if isinstance(order, CopyLayers):
            return frozenset((layer, order.batch) for layer in order.saved)
        return frozenset()

    def _process(self, event: object, now: float) -> None:
        stale = self._roll_call.stale(event, now, self.epoch, open_=True)
        if isinstance(stale, Send):
            self._out.append(stale)
        if stale:
            return

        if isinstance(event, NodeReport):
            self.reported += 1
            self._carry_out(self.elastic.report(event, now), now)
        elif isinstance(event, Broken):
            self._end(Failed(event.message), event.message)
        elif isinstance(event, StopJob):
            self._stopping = True
            self._stop_if_safe()
        elif isinstance(event, get_args(NodeEvent)):
            for answer in self._roll_call.handle(event, now, self.epoch):
                self._follow(answer, now)

    def _stop_if_safe(self) -> None:
        """Ends with the last state in the store, as a training ends with the last one that is
        safe."""
        if self.elastic.rescuing:
            return
        if self.elastic.backup:
            self._finish()
        else:
            self.elastic.end_soon()

    # -- who is there ------------------------------------------------------------------------------

    def _follow(self, answer: NodeAnswer, now: float) -> None:
        match answer:
            case Send():
                self._out.append(answer)
            case str():
                self._notes.append(answer)
            case Consequence.REMEMBER:
                self._remember()
            case Consequence.GATHER if self.epoch > 0 or all_loaded(self.members, self.settings):
                for node in self.members.activate_ready():
                    self._carry_out(self.elastic.join(node, now), now)
            case Warned(node=node):
                self._carry_out(self.elastic.warn(node, now), now)
            case LostNodes(phases, why):
                for node in phases:
                    self._notes.append(f"{node} lost: {why}")
                    self._carry_out(self.elastic.lose(node, now), now)
                self._remember()
            case Failed(why):
                self._end(Failed(why), why)

    # -- what the pipeline does --------------------------------------------------------------------

    def _carry_out(self, instructions: Instructions, now: float) -> None:
        for node, instruction in instructions:
            if not isinstance(instruction, Leave):
                self._out.append(Send(node, instruction))
            elif not self.elastic.finished:
                self.members.set_phase(node, NodePhase.DRAINING)
                self.members.set_phase(node, NodePhase.GONE)
                self._out.append(Send(node, instruction))
                self._notes.append(f"{node} left")
                self._remember()

        if self.epoch != self._noted_epoch and self.elastic.phase is ElasticPhase.MOVING:
            stages = len(self.elastic.history[-1].nodes)
            self._notes.append(
                f"epoch {self.epoch} from update {self.elastic.batch} on {stages} nodes"
            )

        self._noted_epoch = self.epoch
        self._updates = min(self._updates, self.elastic.batch)
        while self._updates < self.elastic.batch:
            self._updates += 1
            self._log(self._updates, now)

        if self._logged_at is None and self.elastic.history:
            self._logged_at = now
        if self.elastic.backup > self._saved:
            self._saved = self.elastic.backup
            self._out.append(RememberCheckpoint(self._saved))

        if self.elastic.finished:
            self._finish()
        elif self._stopping:
            self._stop_if_safe()

    def _log(self, update: int, now: float) -> None:
        size = self.elastic.settings.batch
        losses = {k: self.elastic.losses[k] for k in range((update - 1) * size, update * size)}
        self._losses |= losses
        remember_decision = RememberDecision([[k, loss] for k, loss in losses.items()])
        self._out.append(remember_decision)
        if update <= self.logged:
            self._out.append(ClockRepeated(update))
            return

        self.logged = update
        sums = ClockSums(chunks=size, loss_sum=sum(losses.values()), loss_count=size)
        seconds = 0.0 if self._logged_at is None else now - self._logged_at
        reliable, transient = (len(self.members.active(reliable=kind)) for kind in (True, False))
        redone = (self.elastic.redone - self._redone) * size

        # The one that has just begun is reported once it trains.
        begun = len(self.elastic.history) - (self.elastic.phase is ElasticPhase.MOVING)
        epochs = tuple(self.elastic.history[self._reported_epochs : begun])
        details = msgspec.json.encode(UpdateDetails(self._losses, epochs)).decode()
        notes = tuple(self._notes)
        iteration = Iteration(
            update, seconds, 1, reliable, transient, sums, redone, notes, details=details
        )
        self._logged_at = now
        self._redone = self.elastic.redone
        self._notes = []
        self._losses = {}
        self._reported_epochs = begun
        self._out.append(iteration)
        if update < self.elastic.limit and self.settings.stop(iteration):
            self.elastic.end_soon()

    # -- the end, and the record that outlives a controller ----------------------------------------

    def _finish(self) -> None:
        updates = self.elastic.backup
        size = self.elastic.settings.batch
        last = [self.elastic.losses[k] for k in range((updates - 1) * size, updates * size)]
        self._remember()
        finished = Finished(updates, (), sum(last) / size, (updates * size, 0))
        self._end(finished, "the job is done")

    def _end(self, ended: Finished | Failed, why: str) -> None:
        if not self._over:
            self._over = True
            self._out.append(ended)
            self._out.extend(Send(name, Leave(why)) for name in self.members.names(*_IN_JOB))

    def _remember(self) -> None:
        record = {"epoch": self.epoch, "checkpoint": self.elastic.backup, "logged": self.logged}
        remember = Remember({**self.members.record(), **record})
        self._out.insert(0, remember)
