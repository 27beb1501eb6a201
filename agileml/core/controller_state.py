"""Where a job stands, as its controller knows it; and the part of it that outlives the controller, as a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from agileml.core.assignment import Assignment
from agileml.core.events import ControllerSettings, Instruction, Remember, Send
from agileml.core.members import IN_EPOCH, Members, Phase
from agileml.core.progress import Ledger
from agileml.core.recovery import Answers
from agileml.core.work import Plan
from agileml.policies.report import Footprint
from agileml.policies.stage import ByRatio, StagePolicy
from agileml.protocol.messages import Table, Version


class Mode(Enum):
    """What the controller is about."""

    GATHERING = "gathering"
    """Waits for nodes: those of the start, or one that can take what was lost."""
    RESUMING = "resuming"
    """Started again: waits for the nodes to say what they hold."""
    RECOVERING = "recovering"
    RUNNING = "running"
    OVER = "over"


@dataclass(slots=True)
class ControllerState:
    """What a controller knows and has still to say."""

    plan: Plan
    partitions: int
    settings: ControllerSettings
    members: Members = field(default_factory=Members)
    mode: Mode = Mode.GATHERING
    epoch: int = 0
    assignment: Assignment = field(init=False)
    stable: int = 0
    limit: int = 0
    evictions: int = 0
    failures: int = 0
    checkpoint: int = -1
    _ledger: Ledger = field(init=False)
    _policy: StagePolicy = field(init=False)
    _out: list[Instruction] = field(default_factory=list)
    _gone_back: tuple[int, tuple[str, ...]] = (-1, ())
    _restoring: set[str] = field(default_factory=set)
    _answers: Answers = field(default_factory=Answers)
    _changed: bool = False
    _stopping: bool = False
    _collecting: bool = False
    _collected: dict[int, Version] = field(default_factory=dict)
    _saved: dict[int, set[int]] = field(default_factory=dict)
    _asked: int = -1
    """The clock of the checkpoint that was asked for last."""
    _logged: int = 0
    _logged_at: float | None = None
    _events: list[str] = field(default_factory=list)
    _story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        empty = ("",) * self.partitions
        self.assignment = Assignment(Table(0, empty, empty, ("",) * len(self.plan.lengths)))
        self.limit = self.settings.clocks
        self._ledger = Ledger(self.plan, self.partitions)
        self._policy = self.settings.stage or ByRatio(self.settings.thresholds)

    def _footprint(self) -> Footprint:
        return Footprint(tuple(self.members.usable(reliable=True)), tuple(self.members.usable(reliable=False)))

    @property
    def table(self) -> Table:
        """Who serves, who backs up, who works, as far as it is confirmed."""
        return self.assignment.table

    @property
    def stage(self) -> int:
        """The stage of the footprint as it is."""
        return self._policy.stage(self._footprint())

    # -- what outlives a controller ------------------------------------------------------------------------------------

    def _remember(self) -> Remember:
        """What a controller that is started again has to know."""
        table = self.table
        return Remember(
            {
                "epoch": self.epoch,
                "table": [table.version, table.owners, table.backups, table.workers],
                "members": [(member.name, member.reliable, member.phase.value) for member in self.members],
                "previous": sorted(self.assignment.previous.items()),
                "stable": self.stable,
                "gone_back": self._gone_back[0],
                "limit": self.limit,
                "stopping": self._stopping,
                "checkpoint": self.checkpoint,
                "logged": self._logged,
                "learned": self._policy.record(),
                "evictions": self.evictions,
                "failures": self.failures,
            }
        )

    @classmethod
    def resume(
        cls, plan: Plan, partitions: int, settings: ControllerSettings, record: Mapping[str, Any], now: float
    ) -> Self:
        """A controller that takes over from one that was lost: it waits for the nodes to say who they are."""
        controller = cls(plan, partitions, settings)
        controller.epoch = record["epoch"]
        version, owners, backups, workers = record["table"]
        controller.assignment.table = Table(version, tuple(owners), tuple(backups), tuple(workers))
        controller.assignment.previous = {shard: list(names) for shard, names in record["previous"]}
        for name, reliable, phase in record["members"]:
            controller.members.join(name, reliable, now).phase = Phase(phase)
        controller.stable = record["stable"]
        # Who goes on with a job may let it run longer, or less long, than it was to; not once it has been ending.
        if record["stopping"]:
            controller.limit = record["limit"]
        else:
            controller.limit = max(controller.settings.clocks, record["stable"])
        controller.checkpoint, controller._stopping = record["checkpoint"], record["stopping"]
        controller._gone_back = record["gone_back"], ("",) * partitions
        controller._logged, controller._logged_at = record["logged"], now
        controller._policy = controller._policy.recalling([(mix, at, took) for mix, at, took in record["learned"]])
        controller.evictions, controller.failures = record["evictions"], record["failures"]
        if controller.epoch:
            controller.mode = Mode.RESUMING
            awaited = set(controller.members.names(*IN_EPOCH))
            controller._answers = Answers(awaited, controller.epoch, record["gone_back"])
            controller._note("the controller was started again")
        return controller

    # -- saying ------------------------------------------------------------------------------------------------------

    def _send(self, to: str, message: object) -> None:
        self._out.append(Send(to, message))

    def _broadcast(self, message: object, phases: tuple[Phase, ...]) -> None:
        for name in self.members.names(*phases):
            self._send(name, message)

    def _note(self, event: str) -> None:
        self._events.append(event)
        self._story = [*self._story[-19:], event]
