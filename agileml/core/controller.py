"""The elasticity controller: members, placement of partitions and shards, rollback. Events in, instructions out.

Planned changes (nodes that join, eviction warnings) move partitions and shards one by one while training continues.
Every loss leads to a recovery: a new epoch in which all nodes return to the latest safe version, with a new table.
"""

from __future__ import annotations

from dataclasses import dataclass

from agileml.core.controller_state import ControllerState, Mode
from agileml.core.events import Failed, Finished, Instruction, Iteration, NodeLost, RememberCheckpoint, StopJob, Tick
from agileml.core.gathering import can_start, shortage
from agileml.core.liveness import hung, silent
from agileml.core.members import IN_EPOCH, OUT, NodePhase
from agileml.core.placement import Footprint, may_serve, target_table
from agileml.core.recovery import CHECKPOINT, INIT, KnownCopies, common_version, rollback_point
from agileml.core.senders import may_send
from agileml.errors import InvalidTransition
from agileml.policies.flexrr import Reassignment, help_groups
from agileml.policies.policy import ClockFinished
from agileml.protocol.messages import (
    Adopted,
    Broken,
    Collect,
    Collected,
    Drain,
    Drained,
    Enter,
    Evaluate,
    Evaluated,
    Heartbeat,
    Hello,
    Helped,
    HelpGroup,
    Leave,
    Limit,
    PartitionProgress,
    Ready,
    Recover,
    Restored,
    Route,
    Routed,
    Saved,
    ServerTimed,
    Stable,
    Table,
    Taken,
    Warned,
    WorkDone,
)

LEFT_BEHIND = "evicted; it holds nothing of the job any more"
EVICTED_EARLY = "evicted before it joined the epoch"
DECLARED_LOST = "this node was declared lost and is no longer part of the job"


@dataclass(slots=True)
class Controller(ControllerState):
    """The state machine. All input arrives through `handle`."""

    def handle(self, event: object, now: float, sender: str | None = None) -> list[Instruction]:
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
        """Whether an event is to be ignored: its node is out, or its epoch is over. It counts as a sign of life."""
        node = getattr(event, "node", None)
        member = self.members.get(node) if node is not None else None
        if node is None or isinstance(event, Hello | NodeLost):
            return False
        if member is None and isinstance(event, Warned):
            return False
        if member is None and isinstance(event, Ready | Heartbeat):
            # Its hello is on the way, or was lost with an earlier controller; then it will send another.
            return True
        if member is None or member.phase in OUT:
            # It was taken for dead, but is alive: it must not continue in its old epoch.
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
                self._hello(event, now)
            case Ready() | Restored() | Routed() | Drained():
                self._arrive(event)
            case Warned():
                self._warned(event)
            case NodeLost():
                self._lost([event.node], event.why)
            case Tick() | Heartbeat():
                self._watch(event, now)
            case PartitionProgress() | WorkDone() | Saved() | Collected() | Evaluated() | Helped() | ServerTimed():
                self._progress(event)
            case Taken() | Adopted():
                self._moved(event, now)
            case Broken():
                self._fail(event.message)
            case StopJob():
                self._stop()
            case _:
                raise InvalidTransition(f"the controller has no rule for {event!r}")

    # -- nodes join and leave ----------------------------------------------------------------------------------------

    def _hello(self, event: Hello, now: float) -> None:
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
            # It was warned or lost before its hello arrived, or while the controller was away.
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

    def _arrive(self, event: Ready | Restored | Routed | Drained) -> None:
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

    def _warned(self, event: Warned) -> None:
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
                self._lost([event.node], why)
                self._send(event.node, Leave(f"this node was given up: {why}", lost=True))
        elif lost := silent(self.members, now, self.settings.heartbeat_timeout):
            self._lost(lost, f"no heartbeat for {self.settings.heartbeat_timeout:g} s")
        elif self.settings.needs_all and not self.epoch:
            self._wait_for_nodes(now)

    def _wait_for_nodes(self, now: float) -> None:
        """Ends a job whose nodes do not come."""
        if self._waiting_since is None:
            self._waiting_since = now
        longest, missing = self.settings.startup_timeout, shortage(self.members, self.settings)
        if missing and now - self._waiting_since > longest:
            recent = "".join(f"; {event}" for event in self._clock_log.recent_events)
            self._fail(f"training did not start within {longest:g} s: {missing}{recent}")

    def _lost(self, nodes: list[str], why: str) -> None:
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

    # -- planned changes ---------------------------------------------------------------------------------------------

    def _replan(self) -> None:
        """Lets ready nodes join the epoch, and requests the moves that lead to the target table."""
        if self.mode is not Mode.RUNNING:
            return
        for node in self.members.names(NodePhase.READY):
            self.members.set_phase(node, NodePhase.ACTIVE)
            self.members[node].routed = self.table.version
            self._send(node, Enter(self.epoch, self.table, self.limit, self.stable))
            self._changed = True
        footprint = self._current_footprint()
        if footprint.reliable or footprint.transient:
            self._out.extend(self.assignment.move_towards(self._target(footprint), self.members, self.epoch))
        routes = self.assignment.take_new_routes()
        if routes is not None:
            self._broadcast(Route(self.epoch, routes), IN_EPOCH)
        if self.settings.stragglers.reassign:
            self._form_groups()
        for node in self.members.names(NodePhase.LEAVING):
            if self.assignment.is_free(node, self.members):
                self.members.set_phase(node, NodePhase.DRAINING)
                self._drain(node)

    def _form_groups(self) -> None:
        """Says which workers may help which, where that has changed."""
        working = set(self.table.workers)
        workers = [name for name in self.members.names(NodePhase.ACTIVE) if name in working]
        for name, others in help_groups(workers, Reassignment().helpers).items():
            if self._groups.get(name) != others:
                self._groups[name] = others
                self._send(name, HelpGroup(self.epoch, others))

    def _target(self, footprint: Footprint) -> Table:
        placed, more = self._placed, self._more_servers
        return target_table(
            footprint, self.stage, self.table, self.assignment.previous, self.partition_bytes, placed, more
        )

    def _balance_servers(self, now: float) -> None:
        """Moves partitions away from slow servers, once those that move have arrived."""
        if self.mode is not Mode.RUNNING or self.assignment.moving:
            return
        servers = may_serve(self._current_footprint(), self.stage, self.partitions, self._more_servers)
        self._balance, place = self._balance.propose(self.table.owners, self.partition_bytes, servers)
        if place is not None:
            self._placed, self._moving_since = place.owners, now
            self._more_servers += place.short
            self._note(f"partitions move to other servers: {place.reason}")
            self._replan()

    def _moved(self, event: Taken | Adopted, now: float) -> None:
        match event:
            case Taken():
                left = self.table.owners[event.partition]
                move = self.assignment.partition_arrived(event.partition, event.node)
                self._ledger.add_move(event.partition, left, move, self.stable)
                if self._moving_since is not None:
                    self._ledger.count_move(self.partition_bytes[event.partition], now - self._moving_since)
                    self._moving_since = now if self.assignment.moving else None
            case Adopted():
                self.assignment.shard_arrived(event.shard, event.node)
                if not self.assignment.worth_planning():
                    return
        # Not recorded: a restarted controller asks the nodes what they hold.
        self._replan()

    def _drain(self, node: str) -> None:
        peers = tuple(name for name in self.members.names(*IN_EPOCH) if name != node)
        self._send(node, Drain(self.epoch, peers))

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
        self._groups.clear()
        self.mode = Mode.RECOVERING
        self._note(f"epoch {self.epoch} from version {clock}")
        self._restoring = set(self.members.names(NodePhase.ACTIVE, NodePhase.LEAVING))
        for name in self._restoring:
            self.members[name].routed = self.table.version
        self._broadcast(
            Recover(self.epoch, clock, self.table, sources, self.limit), (NodePhase.ACTIVE, NodePhase.LEAVING)
        )

    # -- after a restart ---------------------------------------------------------------------------------------------

    def _resume_if_all_answered(self) -> None:
        """Once every node has answered or is lost, rolls back to the latest version that they have in common."""
        if self.mode is Mode.RESUMING and not self._answers.awaited:
            self._roll_back(*common_version(self._answers.held, self.members, self.partitions, self.checkpoints.latest))

    # -- progress and the end ----------------------------------------------------------------------------------------

    def _progress(
        self, event: PartitionProgress | WorkDone | Saved | Collected | Evaluated | Helped | ServerTimed
    ) -> None:
        match event:
            case WorkDone():
                self._ledger.add_work(event)
            case PartitionProgress():
                self._ledger.add_progress(event)
                self._advance_stable()
            case Collected():
                self._collected[event.partition] = event.version
            case Evaluated():
                self._final_loss.add(event)
            case Helped():
                self._ledger.add_help(event)
            case ServerTimed():
                self._balance = self._balance.timed(event.server, event.sent_bytes, event.seconds)
            case Saved():
                if self.checkpoints.add(event.clock, event.partition):
                    self._out.append(RememberCheckpoint(event.clock))

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
        if (repeated := self._clock_log.repeated()) is not None:
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
        return self._clock_log.finished(now, self.limit, self.stage, nodes)

    def _learn(self, iteration: Iteration, now: float) -> None:
        quiet = not (iteration.redone or iteration.events or self.assignment.moving)
        nodes = iteration.reliable, iteration.transient
        self._observe(ClockFinished(iteration.stage, *nodes, iteration.seconds, iteration.sums, quiet))
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
            self._out.append(Finished(self.limit, versions, self._final_loss.loss))
            self._broadcast(Leave("the job is done"), (NodePhase.LOADING, NodePhase.READY, *IN_EPOCH))

    def _fail(self, why: str) -> None:
        self.mode = Mode.OVER
        self._out.append(Failed(why))
        self._broadcast(Leave(why), (NodePhase.LOADING, NodePhase.READY, *IN_EPOCH))
