"""The elasticity controller: members, placement of partitions and shards, rollback. Events in, instructions out.

Planned changes (nodes that join, eviction warnings) move partitions and shards one by one while training continues:
`planned_changes`. Every loss leads to a recovery: a new epoch in which all nodes return to the latest safe version,
with a new table. What nodes report of their work, and the job's end, are in `training_progress`.
"""

from __future__ import annotations

from dataclasses import dataclass

from agileml.core.controller_state import Mode
from agileml.core.events import ControllerInstruction, NodeLost, StopJob, Tick
from agileml.core.gathering import can_start, shortage
from agileml.core.liveness import hung, silent
from agileml.core.members import IN_EPOCH, OUT, NodePhase
from agileml.core.recovery import CHECKPOINT, INIT, KnownCopies, common_version, rollback_point
from agileml.core.senders import may_send
from agileml.core.training_progress import NodeProgress, TrainingProgress
from agileml.errors import InvalidTransition
from agileml.protocol.messages import (
    Adopted,
    Broken,
    Drained,
    Heartbeat,
    Hello,
    Leave,
    Ready,
    Recover,
    Restored,
    Routed,
    Taken,
    Warned,
    WorkDone,
)

LEFT_BEHIND = "evicted; it holds nothing of the job any more"
EVICTED_EARLY = "evicted before it joined the epoch"
DECLARED_LOST = "this node was declared lost and is no longer part of the job"


@dataclass(slots=True)
class Controller(TrainingProgress):
    """The state machine. All input arrives through `handle`."""

    def handle(self, event: object, now: float, sender: str | None = None) -> list[ControllerInstruction]:
        """Processes an event and returns the instructions that follow from it, in order.

        `sender` is the process that sent it; None for what the controller's own process has noticed. What a process
        may not say is ignored.
        InvalidTransition if the event contradicts the state; the message names the event and the recent ones.
        """
        if self.mode is Mode.OVER or (sender is not None and not may_send(sender, event)):
            return []
        try:
            if not self._stale(event, now):
                self._process(event, now)
                self._current_footprint()
                self._decide(now)
                self._log(now)
                self._finish()
        except InvalidTransition as error:
            raise InvalidTransition(
                f"{error}; event: {event!r}; recent events: {self._clock_log.recent_events}"
            ) from error
        instructions = [self._remember(), *self._out] if self._changed else list(self._out)
        self._changed = False
        self._out.clear()
        return instructions

    def _stale(self, event: object, now: float) -> bool:
        """Whether an event is only a sign of life, because its node is out or its epoch is over."""
        node = getattr(event, "node", None)
        member = self.members.get(node) if node is not None else None
        if node is None or isinstance(event, Hello | NodeLost):
            return False
        if member is None and isinstance(event, Warned):
            return False
        if member is None and isinstance(event, Ready | Heartbeat):
            # The node's hello is on the way, or was lost with an earlier controller; then the node will send another.
            return True
        if member is None or member.phase in OUT:
            # The node was taken for dead, but is alive: it must not continue in its old epoch.
            lost = member is None or member.phase is NodePhase.DEAD
            self._send(node, Leave(DECLARED_LOST if lost else LEFT_BEHIND, lost))
            return True
        member.last_heard = now
        if isinstance(event, WorkDone) or not hasattr(event, "epoch"):
            return False
        # Before a rollback of all nodes, reports of single changes are irrelevant.
        return bool(event.epoch != self.epoch or self.mode in (Mode.RESUMING, Mode.GATHERING))

    def _process(self, event: object, now: float) -> None:
        match event:
            case Hello():
                self._handle_hello(event, now)
            case Ready() | Restored() | Routed() | Drained():
                self._handle_arrival(event)
            case Warned():
                self._handle_warning(event)
            case NodeLost():
                self._lose([event.node], event.why)
            case Tick() | Heartbeat():
                self._watch(event, now)
            case _ if isinstance(event, NodeProgress):
                self._handle_progress(event)
            case Taken() | Adopted():
                self._confirm_move(event, now)
            case Broken():
                self._fail(event.message)
            case StopJob():
                self._stop()
            case _:
                raise InvalidTransition(f"the controller has no rule for {event!r}")

    # -- nodes join and leave ----------------------------------------------------------------------------------------

    def _handle_hello(self, event: Hello, now: float) -> None:
        if self.settings.code and event.code != self.settings.code:
            why = f"{event.node} runs version {event.code} of the job's code, but the job runs {self.settings.code}"
            self._send(event.node, Leave(why))
            self._note(f"refused: {why}")
            self._exclude(event, now)
            return
        member = self.members.get(event.node)
        if member is None:
            self.members.join(event.node, event.reliable, now)
            self._changed = True
        elif member.phase in OUT:
            # The node was warned or lost before its hello arrived, or while the controller was away.
            lost = member.phase is NodePhase.DEAD
            self._send(event.node, Leave(DECLARED_LOST if lost else EVICTED_EARLY, lost))
        else:
            member.last_heard = now
            if self.mode is Mode.RESUMING:
                self._answers.add(event)
                self._resume_if_all_answered()

    def _exclude(self, refused: Hello, now: float) -> None:
        """The first clock does not wait for a node that was refused."""
        if self.members.get(refused.node) is None:
            self.members.join(refused.node, refused.reliable, now)
            self.members.set_phase(refused.node, NodePhase.GONE)
            self._changed = True
            self._gather()

    def _handle_arrival(self, event: Ready | Restored | Routed | Drained) -> None:
        match event:
            case Ready():
                if self.members[event.node].phase is NodePhase.LOADING:
                    self.members.set_phase(event.node, NodePhase.READY)
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
                if self.members[event.node].phase is NodePhase.DRAINING:
                    self._dismiss(event.node)
        self._replan()

    def _dismiss(self, node: str) -> None:
        self.members.set_phase(node, NodePhase.GONE)
        self._changed = True
        self._send(node, Leave(LEFT_BEHIND))
        self._note(f"{node} left")
        for other in self.members.names(NodePhase.DRAINING):
            self._drain(other)

    def _gather(self) -> None:
        """Starts once the first nodes are ready; continues once there is a reliable node again."""
        if self.mode is Mode.GATHERING and can_start(self.members, self.settings, self.epoch):
            self._recover()

    def _handle_warning(self, event: Warned) -> None:
        # Like a loss, a warning may come before the hello.
        member = self.members.get(event.node) or self.members.join(event.node, reliable=False, now=0.0)
        self._note(f"{event.node} warned: {event.seconds:g} s")
        if member.phase is NodePhase.ACTIVE:
            self.members.set_phase(event.node, NodePhase.LEAVING)
            self._out.extend(self.assignment.expedite(event.node, self.epoch))
            self._replan()
        elif member.phase in (NodePhase.LOADING, NodePhase.READY):
            self.members.set_phase(event.node, NodePhase.GONE)
            self._send(event.node, Leave(EVICTED_EARLY))
        else:
            return
        self.evictions += 1
        self._changed = True
        # The first clock may have waited for this node alone.
        self._gather()

    def _watch(self, event: Tick | Heartbeat, now: float) -> None:
        """Gives up nodes that are silent, and a node whose heartbeat says that it hangs."""
        if isinstance(event, Heartbeat):
            self.members[event.node].beating = True
            self.note_underway(event.node, event.unreported)
            if why := hung(event, self.settings):
                self._lose([event.node], why)
                self._send(event.node, Leave(f"this node was declared lost: {why}", lost=True))
        elif lost := silent(self.members, now, self.settings.heartbeat_timeout):
            self._lose(lost, f"no heartbeat for {self.settings.heartbeat_timeout:g} s")
        elif self.settings.may_lack_nodes and not self.epoch:
            self._wait_for_nodes(now)

    def _wait_for_nodes(self, now: float) -> None:
        """Ends a job whose nodes do not come."""
        if self._waiting_since is None:
            self._waiting_since = now
        longest, missing = self.settings.startup_timeout, shortage(self.members, self.settings)
        if missing and now - self._waiting_since > longest:
            recent = "".join(f"; {event}" for event in self._clock_log.recent_events)
            self._fail(f"training did not start within {longest:g} s: {missing}{recent}")

    def _lose(self, nodes: list[str], why: str) -> None:
        # A node may be lost before its hello arrives; it counts as joined.
        members = [self.members.get(name) or self.members.join(name, reliable=False, now=0.0) for name in nodes]
        dead = [member for member in members if member.phase not in (NodePhase.GONE, NodePhase.DEAD)]
        involved = any(member.phase in IN_EPOCH for member in dead)
        for member in dead:
            self.members.set_phase(member.name, NodePhase.DEAD)
            self.failures += 1
            self._ledger.lose(member.name)
            self._note(f"{member.name} lost: {why}")
        self._changed = bool(dead)
        self._answers.awaited.difference_update(member.name for member in dead)
        if self.mode is Mode.RESUMING:
            self._resume_if_all_answered()
        elif involved and self.mode is not Mode.GATHERING:
            self._recover()
        self._gather()

    # -- recovery ----------------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Rolls back to the latest version that is known to be safe."""
        copies = KnownCopies(self.table, self._ledger, self.stable, self.checkpoints.latest, *self._rolled_back)
        self._roll_back(*rollback_point(self.members, copies))

    def _roll_back(self, clock: int, sources: tuple[str, ...]) -> None:
        """Starts a new epoch from a version, with the nodes that are left."""
        for node in self.members.names(NodePhase.DRAINING):
            self.members.set_phase(node, NodePhase.GONE)
            self._send(node, Leave(LEFT_BEHIND))
        for node in self.members.names(NodePhase.READY):
            self.members.set_phase(node, NodePhase.ACTIVE)
        footprint = self._current_footprint()
        self._changed = True
        needs_reliable = CHECKPOINT in sources or INIT in sources or not footprint.transient
        if needs_reliable and not footprint.reliable:
            self.mode = Mode.GATHERING
            self._note("waiting for a reliable node")
            return
        self.epoch += 1
        self.assignment.reset(self._target(footprint), self.epoch)
        self.stable = clock
        # Nodes that had not received the limit have worked beyond it.
        self.limit = max(self.limit, clock)
        self._rolled_back = clock, sources
        self._collected.clear()
        self._final_loss.reset()
        self.checkpoints.roll_back(clock)
        self._collecting = False
        self._clock_log.roll_back(clock)
        self._decisions.roll_back()
        self._groups.clear()
        self.mode = Mode.RECOVERING
        self._note(f"epoch {self.epoch} from version {clock}")
        self._restoring = set(self.members.names(NodePhase.ACTIVE, NodePhase.LEAVING))
        for name in self._restoring:
            self.members[name].routed = self.table.version
        self._broadcast(
            Recover(self.epoch, clock, self.table, sources, self.limit, self._decisions.after(clock)),
            (NodePhase.ACTIVE, NodePhase.LEAVING),
        )

    # -- after a restart ---------------------------------------------------------------------------------------------

    def _resume_if_all_answered(self) -> None:
        """Once every node has answered or is lost, rolls back to the latest version that they have in common."""
        if self.mode is Mode.RESUMING and not self._answers.awaited:
            self._roll_back(*common_version(self._answers.held, self.members, self.partitions, self.checkpoints.latest))
