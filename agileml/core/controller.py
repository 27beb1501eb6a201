"""The elasticity controller: who is here, who serves and backs up what, who works on what. Events in, instructions out.

Planned changes (nodes that join, warnings) move partitions and shards one by one while training goes on. Everything
else is one thing, a recovery: a new epoch, everyone back to the latest version that is safe, a new table. A node that
is lost while something moves is a recovery, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from agileml.core.arrangement import Arrangement
from agileml.core.events import (
    ControllerSettings,
    Failed,
    Finished,
    Instruction,
    Iteration,
    Lost,
    Remember,
    Send,
    Tick,
)
from agileml.core.members import IN_EPOCH, Members, Phase
from agileml.core.placement import Footprint, placed
from agileml.core.progress import Ledger
from agileml.core.recovery import CHECKPOINT, INIT, Copies, common, way_back
from agileml.core.stages import ByRatio, Observed, StagePolicy
from agileml.core.work import Plan
from agileml.errors import InvalidTransition
from agileml.messages import (
    Adopted,
    Broken,
    Collect,
    Collected,
    Drain,
    Drained,
    Enter,
    Heartbeat,
    Hello,
    Leave,
    Limit,
    Progress,
    Ready,
    Recover,
    Restored,
    Route,
    Routed,
    Saved,
    Stable,
    Table,
    Taken,
    Version,
    Warned,
    WorkDone,
)


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
class Controller:
    """The state machine. `handle` is the only way in."""

    plan: Plan
    partitions: int
    settings: ControllerSettings
    members: Members = field(default_factory=Members)
    mode: Mode = Mode.GATHERING
    epoch: int = 0
    arrangement: Arrangement = field(init=False)
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
    _awaited: set[str] = field(default_factory=set)
    _held: dict[int, dict[int, str]] = field(default_factory=dict)
    _changed: bool = False
    _stopping: bool = False
    _collecting: bool = False
    _collected: dict[int, Version] = field(default_factory=dict)
    _saved: dict[int, set[int]] = field(default_factory=dict)
    _logged: int = 0
    _logged_at: float | None = None
    _events: list[str] = field(default_factory=list)
    _story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        empty = ("",) * self.partitions
        self.arrangement = Arrangement(Table(0, empty, empty, ("",) * len(self.plan.lengths)))
        self.limit = self.settings.clocks
        self._ledger = Ledger(self.plan, self.partitions)
        self._policy = self.settings.stage or ByRatio(self.settings.thresholds)

    def handle(self, event: object, now: float) -> list[Instruction]:
        """Take an event; what is to be done about it."""
        if self.mode is Mode.OVER:
            return []
        try:
            if not self._stale(event, now):
                self._take(event, now)
                self._log(now)
                self._finish()
        except InvalidTransition as error:
            raise InvalidTransition(f"{error}; it was {event!r}, before it came {self._story[-5:]}") from error
        instructions = [self._remember(), *self._out] if self._changed else list(self._out)
        self._changed = False
        self._out.clear()
        return instructions

    def _stale(self, event: object, now: float) -> bool:
        """Whether it comes from a node that is out, or from an epoch that is over. Hearing it is a sign of life."""
        node = getattr(event, "node", None)
        member = self.members.get(node) if node is not None else None
        if node is None or isinstance(event, Hello | Lost):
            return False
        if member is None or member.phase in (Phase.GONE, Phase.DEAD):
            # Thought dead, but alive: its epoch is over, and it must not go on.
            self._send(node, Leave("this node was given up; it is not part of the job any more"))
            return True
        member.heard = now
        if isinstance(event, WorkDone) or not hasattr(event, "epoch"):
            return False
        # Before the nodes have said what they hold, news of single changes mean nothing.
        return bool(event.epoch != self.epoch or self.mode is Mode.RESUMING)

    def _take(self, event: object, now: float) -> None:
        match event:
            case Hello():
                self._hello(event, now)
            case Ready() | Restored() | Routed() | Drained():
                self._arrive(event)
            case Warned() | Lost() | Tick():
                self._threatened(event, now)
            case Progress() | WorkDone() | Saved():
                self._progress(event)
            case Taken() | Adopted():
                self._moved(event)
            case Collected():
                self._collected[event.partition] = event.version
            case Broken():
                self._fail(event.message)
            case _ if not isinstance(event, Heartbeat):
                raise InvalidTransition(f"the controller does not know {event!r}")

    # -- nodes come and go -------------------------------------------------------------------------------------------

    def _hello(self, event: Hello, now: float) -> None:
        if self.settings.code and event.code != self.settings.code:
            why = f"{event.node} runs version {event.code} of the job's code, the job runs {self.settings.code}"
            self._send(event.node, Leave(why))
            self._note(f"refused: {why}")
            return
        member = self.members.get(event.node)
        if member is None:
            self.members.join(event.node, event.reliable, now)
            self._changed = True
        else:
            member.heard = now
            if self.mode is Mode.RESUMING:
                self._answered(event)

    def _arrive(self, event: Ready | Restored | Routed | Drained) -> None:
        match event:
            case Ready():
                if self.members[event.node].phase is Phase.LOADING:
                    self.members.turn(event.node, Phase.READY)
                    self._changed = True
                    self._note(f"{event.node} ready")
                    self._gather()
            case Restored():
                self._restoring.discard(event.node)
                if not self._restoring and self.mode is Mode.RECOVERING:
                    self.mode = Mode.RUNNING
            case Routed():
                self.members[event.node].routed = event.version
            case Drained():
                if self.members[event.node].phase is Phase.DRAINING:
                    self._dismiss(event.node)
        self._replan()

    def _dismiss(self, node: str) -> None:
        self.members.turn(node, Phase.GONE)
        self._send(node, Leave("evicted; nothing of the job is left here"))
        self._note(f"{node} left")
        for other in self.members.names(Phase.DRAINING):
            self._drain(other)

    def _gather(self) -> None:
        """Begin once the nodes of the start are there; go on once there is a reliable node again."""
        if self.mode is not Mode.GATHERING:
            return
        here = [member for member in self.members if member.phase in (Phase.LOADING, Phase.READY, Phase.ACTIVE)]
        loading = any(member.phase is Phase.LOADING for member in here)
        if any(member.reliable and member.phase is not Phase.LOADING for member in here) and (
            self.epoch > 0 or (self._all_came() and not loading)
        ):
            self._recover()

    def _all_came(self) -> bool:
        """Whether as many nodes as expected have come; some may be gone again."""
        return sum(1 for _ in self.members) >= self.settings.reliable + self.settings.transient

    def _threatened(self, event: Warned | Lost | Tick, now: float) -> None:
        match event:
            case Warned():
                self._warned(event)
            case Lost():
                self._lost([event.node], event.why)
            case Tick():
                self._look_for_silent(now)

    def _warned(self, event: Warned) -> None:
        member = self.members[event.node]
        self._note(f"{event.node} warned: {event.seconds:g} s")
        if member.phase is Phase.ACTIVE:
            self.members.turn(event.node, Phase.LEAVING)
            self._out.extend(self.arrangement.hurry(event.node, self.epoch))
            self._replan()
        elif member.phase in (Phase.LOADING, Phase.READY):
            self.members.turn(event.node, Phase.GONE)
            self._send(event.node, Leave("evicted before it was taken in"))
        else:
            return
        self.evictions += 1
        self._changed = True

    def _look_for_silent(self, now: float) -> None:
        silent = [
            member.name
            for member in self.members
            if member.phase not in (Phase.GONE, Phase.DEAD) and now - member.heard > self.settings.heartbeat_timeout
        ]
        if silent:
            self._lost(silent, f"nothing heard for {self.settings.heartbeat_timeout:g} s")

    def _lost(self, nodes: list[str], why: str) -> None:
        # A node may be lost before its first word is heard; it counts among those that came.
        members = [self.members.get(name) or self.members.join(name, reliable=False, now=0.0) for name in nodes]
        dead = [member for member in members if member.phase not in (Phase.GONE, Phase.DEAD)]
        involved = any(member.phase in IN_EPOCH for member in dead)
        for member in dead:
            self.members.turn(member.name, Phase.DEAD)
            self.failures += 1
            self._note(f"{member.name} lost: {why}")
        self._changed = bool(dead)
        self._awaited.difference_update(member.name for member in dead)
        if self.mode is Mode.RESUMING:
            self._resume_if_all_answered()
        elif involved and self.mode is not Mode.GATHERING:
            self._recover()
        self._gather()

    # -- planned changes ---------------------------------------------------------------------------------------------

    def _footprint(self) -> Footprint:
        return Footprint(tuple(self.members.usable(reliable=True)), tuple(self.members.usable(reliable=False)))

    @property
    def table(self) -> Table:
        """Who serves, who backs up, who works, as far as it is confirmed."""
        return self.arrangement.table

    @property
    def stage(self) -> int:
        """The stage of the footprint as it is."""
        return self._policy.stage(self._footprint())

    def _replan(self) -> None:
        """Take in who is ready, and set in motion what is not where it should be."""
        if self.mode is not Mode.RUNNING:
            return
        for node in self.members.names(Phase.READY):
            self.members.turn(node, Phase.ACTIVE)
            self.members[node].routed = self.table.version
            self._send(node, Enter(self.epoch, self.table, self.limit, self.stable))
            self._changed = True
        footprint = self._footprint()
        if footprint.reliable or footprint.transient:
            desired = placed(footprint, self.stage, self.table, self.arrangement.previous)
            self._out.extend(self.arrangement.towards(desired, self.members, self.epoch))
        routes = self.arrangement.new_routes()
        if routes is not None:
            self._broadcast(Route(self.epoch, routes), IN_EPOCH)
        for node in self.members.names(Phase.LEAVING):
            if self.arrangement.free_of(node, self.members):
                self.members.turn(node, Phase.DRAINING)
                self._drain(node)

    def _moved(self, event: Taken | Adopted) -> None:
        match event:
            case Taken():
                left = self.table.owners[event.partition]
                move = self.arrangement.taken(event.partition, event.node)
                self._ledger.moved(event.partition, left, move, self.stable)
            case Adopted():
                self.arrangement.adopted(event.shard, event.node)
        # Not written down: a controller that takes over asks the nodes what they hold.
        self._replan()

    def _drain(self, node: str) -> None:
        peers = tuple(name for name in self.members.names(*IN_EPOCH) if name != node)
        self._send(node, Drain(self.epoch, peers))

    # -- recovery ----------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Go back to the latest version that is safe, as far as is known."""
        copies = Copies(self.table, self._ledger, self.stable, self.checkpoint, *self._gone_back)
        self._go_back(*way_back(self.members, copies))

    def _go_back(self, clock: int, sources: tuple[str, ...]) -> None:
        """A new epoch: everyone back to a version, and on with those who are left."""
        for node in self.members.names(Phase.DRAINING):
            self.members.turn(node, Phase.GONE)
            self._send(node, Leave("evicted; nothing of the job is left here"))
        for node in self.members.names(Phase.READY):
            self.members.turn(node, Phase.ACTIVE)
        footprint = self._footprint()
        self._changed = True
        homeless = CHECKPOINT in sources or INIT in sources or not footprint.transient
        if homeless and not footprint.reliable:
            self.mode = Mode.GATHERING
            self._note("waiting for a reliable node")
            return
        self.epoch += 1
        self.arrangement.renew(placed(footprint, self.stage, self.table, self.arrangement.previous), self.epoch)
        self.stable = clock
        self._gone_back = clock, sources
        self._collected.clear()
        self._collecting = False
        self._ledger.go_back(clock)
        self.mode = Mode.RECOVERING
        self._note(f"epoch {self.epoch} from version {clock}")
        self._restoring = set(self.members.names(Phase.ACTIVE, Phase.LEAVING))
        for name in self._restoring:
            self.members[name].routed = self.table.version
        self._broadcast(Recover(self.epoch, clock, self.table, sources, self.limit), (Phase.ACTIVE, Phase.LEAVING))

    # -- after a restart ---------------------------------------------------------------------------------------------

    def _remember(self) -> Remember:
        """What a controller that is started again has to know."""
        table = self.table
        return Remember(
            {
                "epoch": self.epoch,
                "table": [table.version, table.owners, table.backups, table.workers],
                "members": [(member.name, member.reliable, member.phase.value) for member in self.members],
                "previous": sorted(self.arrangement.previous.items()),
                "stable": self.stable,
                "gone_back": self._gone_back[0],
                "limit": self.limit,
                "stopping": self._stopping,
                "checkpoint": self.checkpoint,
                "logged": self._logged,
                "evictions": self.evictions,
                "failures": self.failures,
            }
        )

    @classmethod
    def resume(
        cls, plan: Plan, partitions: int, settings: ControllerSettings, record: Mapping[str, Any], now: float
    ) -> Controller:
        """A controller that takes over from one that was lost: it waits for the nodes to say who they are."""
        controller = cls(plan, partitions, settings)
        controller.epoch = record["epoch"]
        version, owners, backups, workers = record["table"]
        controller.arrangement.table = Table(version, tuple(owners), tuple(backups), tuple(workers))
        controller.arrangement.previous = {shard: list(names) for shard, names in record["previous"]}
        for name, reliable, phase in record["members"]:
            controller.members.join(name, reliable, now).phase = Phase(phase)
        controller.stable, controller.limit = record["stable"], record["limit"]
        controller.checkpoint, controller._stopping = record["checkpoint"], record["stopping"]
        controller._gone_back = record["gone_back"], ("",) * partitions
        controller._logged, controller._logged_at = record["logged"], now
        controller.evictions, controller.failures = record["evictions"], record["failures"]
        if controller.epoch:
            controller.mode = Mode.RESUMING
            controller._awaited = set(controller.members.names(*IN_EPOCH))
            controller._note("the controller was started again")
        return controller

    def _answered(self, event: Hello) -> None:
        """A node says what it holds; once all have, or are lost, everyone goes back to what they have in common."""
        latest = event.stable if event.epoch == self.epoch else self._gone_back[0]
        for partition, clock in event.holds:
            if event.epoch == self.epoch or clock <= latest:
                holders = self._held.setdefault(partition, {})
                # Whoever is reliable is asked first: another may be gone before it has answered.
                if clock not in holders or event.reliable:
                    holders[clock] = event.node
        self._awaited.discard(event.node)
        self._resume_if_all_answered()

    def _resume_if_all_answered(self) -> None:
        if self.mode is Mode.RESUMING and not self._awaited:
            self._go_back(*common(self._held, self.members, self.partitions, self.checkpoint))

    # -- progress and the end ----------------------------------------------------------------------------------------

    def _progress(self, event: Progress | WorkDone | Saved) -> None:
        match event:
            case WorkDone():
                self._ledger.worked(event)
            case Progress():
                self._ledger.report(event)
                self._settle()
            case Saved():
                saved = self._saved.setdefault(event.clock, set())
                saved.add(event.partition)
                if len(saved) == self.partitions:
                    self.checkpoint = max(self.checkpoint, event.clock)
                    self._changed = True
                    self._saved = {clock: parts for clock, parts in self._saved.items() if clock > event.clock}

    def _settle(self) -> None:
        # Nothing later than the last clock: its versions are what the job is for.
        safe = min(self._ledger.safe(self.table.backups), self.limit)
        if safe <= self.stable or self.mode is not Mode.RUNNING:
            return
        every = self.settings.checkpoint_every
        due = bool(every) and safe // every > self.stable // every
        self.stable = safe
        self._ledger.settle(safe)
        holders = {*self.table.owners, *self.table.backups} | {move.to for move in self.arrangement.moving.values()}
        for node in self.members.names(*IN_EPOCH):
            if node in holders:
                self._send(node, Stable(self.epoch, safe, due))

    def _log(self, now: float) -> None:
        """Say of each clock, once it is complete, what it took."""
        if self._logged_at is None:
            if self.epoch:
                self._logged_at = now
            return
        while self._logged < self._ledger.reached and self._told_of(self._logged + 1):
            self._logged += 1
            sums, redone = self._ledger.close(self._logged)
            footprint = self._footprint()
            iteration = Iteration(
                self._logged,
                now - self._logged_at,
                self.stage,
                len(footprint.reliable),
                len(footprint.transient),
                sums,
                redone,
                tuple(self._events),
            )
            self._logged_at = now
            self._events.clear()
            self._out.append(iteration)
            self._learn(iteration)
            if self._logged < self.limit and not self._stopping and self.settings.stop(iteration):
                self._stopping = self._changed = True
                self.limit = self._ledger.reached + 1
                self._broadcast(Limit(self.epoch, self.limit), IN_EPOCH)

    def _learn(self, iteration: Iteration) -> None:
        quiet = not (iteration.redone or iteration.events or self.arrangement.moving)
        nodes = iteration.reliable, iteration.transient
        self._policy = self._policy.after(Observed(iteration.stage, *nodes, iteration.seconds, iteration.sums, quiet))
        if self.stage != iteration.stage:
            self._note(f"stage {self.stage} after stage {iteration.stage}")
            self._replan()

    def _told_of(self, clock: int) -> bool:
        """Whether every worker has reported a clock, or never will."""
        sums = self._ledger.clocks.get(clock)
        complete = sums is not None and sums.chunks >= self.plan.total(clock)
        return complete or self._ledger.reached > clock or clock == self.limit

    def _finish(self) -> None:
        """Once the last clock is everywhere, fetch the model: it stays, for nothing later is ever stable."""
        if self.mode is not Mode.RUNNING or self._ledger.reached < self.limit:
            return
        if not self._collecting:
            self._collecting = True
            for partition, owner in enumerate(self.table.owners):
                self._send(owner, Collect(self.epoch, partition, self.limit))
        if len(self._collected) == self.partitions:
            self.mode = Mode.OVER
            self._out.append(Finished(self.limit, tuple(self._collected[p] for p in range(self.partitions))))
            self._broadcast(Leave("the job is done"), (Phase.LOADING, Phase.READY, *IN_EPOCH))

    def _fail(self, why: str) -> None:
        self.mode = Mode.OVER
        self._out.append(Failed(why))
        self._broadcast(Leave(why), (Phase.LOADING, Phase.READY, *IN_EPOCH))

    # -- saying ------------------------------------------------------------------------------------------------------

    def _send(self, to: str, message: object) -> None:
        self._out.append(Send(to, message))

    def _broadcast(self, message: object, phases: tuple[Phase, ...]) -> None:
        for name in self.members.names(*phases):
            self._send(name, message)

    def _note(self, event: str) -> None:
        self._events.append(event)
        self._story = [*self._story[-19:], event]
