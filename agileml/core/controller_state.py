"""The state of the controller, and the part of it that outlives the controller's process, as a JSON record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from agileml.core.assignment import Assignment
from agileml.core.checkpointing import CheckpointSchedule
from agileml.core.clock_log import ClockLog
from agileml.core.deciding import Decisions
from agileml.core.evaluation import FinalLoss
from agileml.core.events import ControllerInstruction, ControllerSettings, Remember
from agileml.core.members import IN_EPOCH, Members, NodePhase
from agileml.core.placement import Footprint
from agileml.core.progress import VersionLedger
from agileml.core.recovery import Answers
from agileml.policies.policy import NodesChanged, TrainingPolicy, TrainingReport, UseStage
from agileml.policies.psld import PSLD
from agileml.protocol.actions import Send
from agileml.protocol.messages import Table, Version
from agileml.work.plan import WorkPlan


class Mode(Enum):
    """The controller's current mode."""

    GATHERING = "gathering"
    """Waits for the first nodes, or for a reliable node after the last one was lost."""
    RESUMING = "resuming"
    """Restarted: waits for the nodes to report what they hold."""
    RECOVERING = "recovering"
    RUNNING = "running"
    OVER = "over"


@dataclass(slots=True)
class ControllerState:
    """The controller's knowledge of the job, and the instructions that it has not returned yet.

    `partition_bytes` is the weight of each partition, by which placement balances them.
    """

    plan: WorkPlan
    partition_bytes: tuple[int, ...]
    settings: ControllerSettings
    members: Members = field(default_factory=Members)
    mode: Mode = Mode.GATHERING
    epoch: int = 0
    stage: int = 0
    assignment: Assignment = field(init=False)
    stable: int = 0
    limit: int = 0
    evictions: int = 0
    failures: int = 0
    checkpoints: CheckpointSchedule = field(init=False)
    _ledger: VersionLedger = field(init=False)
    _clock_log: ClockLog = field(init=False)
    _decisions: Decisions = field(init=False)
    _policy: TrainingPolicy = field(init=False)
    _footprint: Footprint = field(init=False)
    _footprint_at: int = 0
    """The value of `members.changes` that the footprint was made from."""
    _out: list[ControllerInstruction] = field(default_factory=list)
    _rolled_back: tuple[int, tuple[str, ...]] = (-1, ())
    _restoring: set[str] = field(default_factory=set)
    _answers: Answers = field(default_factory=Answers)
    _changed: bool = False
    _groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By worker, those that it may help, as it was last told in this epoch."""
    _balance: PSLD = field(default_factory=PSLD)
    _placed: tuple[str, ...] = ()
    """The server of each partition as the measurements of servers suggest; empty without any."""
    _more_servers: int = 0
    _moving_since: float | None = None
    """When partitions began to move to faster servers, or the last of them arrived; None if none is moving."""
    _waiting_since: float | None = None
    """When this controller began to wait for the first nodes."""
    _stopping: bool = False
    _interrupted: bool = False
    """The job's end waits for nothing. Not recorded: the job loop repeats it, and a later run goes on."""
    _collecting: bool = False
    _collected: dict[int, Version] = field(default_factory=dict)
    _final_loss: FinalLoss = field(init=False)

    def __post_init__(self) -> None:
        empty = ("",) * self.partitions
        self.assignment = Assignment(Table(0, empty, empty, ("",) * len(self.plan.lengths)))
        self.limit = self.settings.clocks
        self.checkpoints = CheckpointSchedule(self.partitions, self.settings.checkpoint_every)
        self._ledger = VersionLedger(self.partitions)
        self._final_loss = FinalLoss.of(self.plan.lengths, self.settings.loss_sample)
        self._decisions = Decisions(self.plan, self.settings.stragglers.wait_policy)
        self._clock_log = ClockLog(self._decisions, self._ledger)
        self._policy = self.settings.policy
        self._update_footprint()

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.partition_bytes)

    @property
    def table(self) -> Table:
        """Servers, backups and workers, as confirmed."""
        return self.assignment.table

    # -- policies ------------------------------------------------------------------------------------------------------

    def _update_footprint(self) -> None:
        """Reports the active nodes to the policy."""
        self._footprint_at = self.members.changes
        reliable, transient = self.members.active(reliable=True), self.members.active(reliable=False)
        self._footprint = Footprint(tuple(reliable), tuple(transient), self._speeds(reliable + transient))
        self._observe(NodesChanged(len(reliable), len(transient)))

    def _speeds(self, nodes: list[str]) -> dict[str, float]:
        """The speeds that placement assumes: with uneven work, every second node counts as faster than the node is."""
        heavy = self.settings.uneven
        return {name: heavy / (1 - heavy) for name in nodes if self.members[name].rank % 2} if heavy else {}

    def _current_footprint(self) -> Footprint:
        """The active nodes; the policy has seen them."""
        if self._footprint_at != self.members.changes:
            self._update_footprint()
        return self._footprint

    def _observe(self, report: TrainingReport) -> None:
        self._policy, proposals = self._policy.observe(report)
        for proposal in proposals:
            self._apply(proposal)

    def _apply(self, proposal: UseStage) -> None:
        """Every proposal is accepted so far; those that come with a reason are logged."""
        before, self.stage = self.stage, proposal.stage
        if proposal.reason:
            self._changed = True
            what = "stays" if self.stage == before else f"after stage {before}"
            self._note(f"stage {self.stage} {what}: {proposal.reason}")

    # -- the record that outlives a controller -------------------------------------------------------------------------

    def _remember(self) -> Remember:
        """The record with which a restarted controller resumes."""
        table = self.table
        return Remember(
            {
                "epoch": self.epoch,
                "table": [table.version, table.owners, table.backups, table.workers],
                "members": [(member.name, member.reliable, member.phase.value) for member in self.members],
                "previous": sorted(self.assignment.previous.items()),
                "stable": self.stable,
                "gone_back": self._rolled_back[0],
                "limit": self.limit,
                "stopping": self._stopping,
                "checkpoint": self.checkpoints.latest,
                "logged": self._clock_log.logged,
                "learned": self._policy.record(),
                "evictions": self.evictions,
                "failures": self.failures,
            }
        )

    @classmethod
    def resume(
        cls,
        plan: WorkPlan,
        partition_bytes: tuple[int, ...],
        settings: ControllerSettings,
        record: Mapping[str, Any],
        now: float,
    ) -> Self:
        """A controller that replaces one that was lost; it waits for the nodes to report what they hold."""
        controller = cls(plan, partition_bytes, settings)
        controller.epoch = record["epoch"]
        version, owners, backups, workers = record["table"]
        controller.assignment.table = Table(version, tuple(owners), tuple(backups), tuple(workers))
        controller.assignment.previous = {shard: list(names) for shard, names in record["previous"]}
        for name, reliable, phase in record["members"]:
            controller.members.join(name, reliable, now).phase = NodePhase(phase)
        controller.stable = record["stable"]
        # A resumed job may change its clock limit unless it was already stopping.
        if record["stopping"]:
            controller.limit = record["limit"]
        else:
            controller.limit = max(controller.settings.clocks, record["stable"])
        controller.checkpoints.latest, controller._stopping = record["checkpoint"], record["stopping"]
        controller._rolled_back = record["gone_back"], ("",) * controller.partitions
        controller._clock_log.logged, controller._clock_log.logged_at = record["logged"], now
        controller._policy = controller._policy.restored(record["learned"])
        controller._decisions.restore(record.get("accepted", ()))
        controller._update_footprint()
        if settings.stragglers.balance_servers:
            controller._placed = tuple(owners)
        controller.evictions, controller.failures = record["evictions"], record["failures"]
        if controller.epoch:
            controller.mode = Mode.RESUMING
            awaited = set(controller.members.names(*IN_EPOCH))
            controller._answers = Answers(awaited, controller.epoch, record["gone_back"])
            controller._note("controller restarted")
        return controller

    def note_underway(self, node: str, chunks: int) -> None:
        """A node has done chunks that it has not reported as a part of a clock."""
        if chunks or node in self._ledger.underway:
            self._ledger.underway[node] = chunks

    # -- output --------------------------------------------------------------------------------------------------------

    def _send(self, to: str, message: object) -> None:
        self._out.append(Send(to, message))

    def _broadcast(self, message: object, phases: tuple[NodePhase, ...]) -> None:
        for name in self.members.names(*phases):
            self._send(name, message)

    def _note(self, event: str) -> None:
        self._clock_log.note(event)
