"""The elasticity controller: who is here, who serves and backs up what, who works on what. Events in, instructions out.

Planned changes (nodes that join, warnings) move partitions and shards one by one while training goes on. Everything
else is one thing, a recovery: a new epoch, everyone back to the latest version that is safe, a new table. A node that
is lost while something moves is a recovery, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from agileml.core.controller_state import ControllerState, Mode
from agileml.core.events import Failed, Finished, Instruction, Iteration, Lost, Tick
from agileml.core.members import IN_EPOCH, Phase
from agileml.core.placement import placed
from agileml.core.recovery import CHECKPOINT, INIT, Copies, common, way_back
from agileml.errors import InvalidTransition
from agileml.policies.stage import Observed
from agileml.protocol.messages import (
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
    Taken,
    Warned,
    WorkDone,
)

GIVEN_UP_AFTER = 4
"""Checkpoints that are left out, at most, while one is still being written."""


@dataclass(slots=True)
class Controller(ControllerState):
    """The state machine. `handle` is the only way in."""

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
        if member is None and isinstance(event, Ready | Warned):
            # Its first word was lost with another controller; it will say who it is.
            return True
        if member is None or member.phase in (Phase.GONE, Phase.DEAD):
            # Thought dead, but alive: its epoch is over, and it must not go on.
            self._send(node, Leave("this node was given up; it is not part of the job any more"))
            return True
        member.heard = now
        if isinstance(event, WorkDone) or not hasattr(event, "epoch"):
            return False
        # Before everybody goes back anyway, news of single changes mean nothing.
        return bool(event.epoch != self.epoch or self.mode in (Mode.RESUMING, Mode.GATHERING))

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
                self._answers.hear(event)
                self._resume_if_all_answered()

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
        self._changed = True
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
            self._out.extend(self.assignment.hurry(event.node, self.epoch))
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
        self._answers.awaited.difference_update(member.name for member in dead)
        if self.mode is Mode.RESUMING:
            self._resume_if_all_answered()
        elif involved and self.mode is not Mode.GATHERING:
            self._recover()
        self._gather()

    # -- planned changes ---------------------------------------------------------------------------------------------

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
            desired = placed(footprint, self.stage, self.table, self.assignment.previous)
            self._out.extend(self.assignment.towards(desired, self.members, self.epoch))
        routes = self.assignment.new_routes()
        if routes is not None:
            self._broadcast(Route(self.epoch, routes), IN_EPOCH)
        for node in self.members.names(Phase.LEAVING):
            if self.assignment.free_of(node, self.members):
                self.members.turn(node, Phase.DRAINING)
                self._drain(node)

    def _moved(self, event: Taken | Adopted) -> None:
        match event:
            case Taken():
                left = self.table.owners[event.partition]
                move = self.assignment.taken(event.partition, event.node)
                self._ledger.moved(event.partition, left, move, self.stable)
            case Adopted():
                self.assignment.adopted(event.shard, event.node)
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
        self.assignment.renew(placed(footprint, self.stage, self.table, self.assignment.previous), self.epoch)
        self.stable = clock
        # Who had not heard that the job is to end has gone on.
        self.limit = max(self.limit, clock)
        self._gone_back = clock, sources
        self._collected.clear()
        self._asked = self.checkpoint
        # What was saved of later versions is of a past that will not be.
        self._saved = {saved: parts for saved, parts in self._saved.items() if saved <= clock}
        self._collecting = False
        self._ledger.go_back(clock)
        self.mode = Mode.RECOVERING
        self._note(f"epoch {self.epoch} from version {clock}")
        self._restoring = set(self.members.names(Phase.ACTIVE, Phase.LEAVING))
        for name in self._restoring:
            self.members[name].routed = self.table.version
        self._broadcast(Recover(self.epoch, clock, self.table, sources, self.limit), (Phase.ACTIVE, Phase.LEAVING))

    # -- after a restart ---------------------------------------------------------------------------------------------

    def _resume_if_all_answered(self) -> None:
        """Once all nodes have said what they hold, or are lost, everyone goes back to what they have in common."""
        if self.mode is Mode.RESUMING and not self._answers.awaited:
            self._go_back(*common(self._answers.held, self.members, self.partitions, self.checkpoint))

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
        due = bool(every) and safe // every > self.stable // every and self._wrote(safe)
        self._asked = safe if due else self._asked
        self.stable = safe
        self._ledger.settle(safe)
        holders = {*self.table.owners, *self.table.backups} | {move.to for move in self.assignment.moving.values()}
        for node in self.members.names(*IN_EPOCH):
            if node in holders:
                self._send(node, Stable(self.epoch, safe, due))

    def _wrote(self, clock: int) -> bool:
        """Whether the last checkpoint is there, or not to be expected any more: slow disks are not asked for more."""
        return self.checkpoint >= self._asked or clock >= self._asked + GIVEN_UP_AFTER * self.settings.checkpoint_every

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
        quiet = not (iteration.redone or iteration.events or self.assignment.moving)
        nodes = iteration.reliable, iteration.transient
        before = self._policy.why
        self._policy = self._policy.after(Observed(iteration.stage, *nodes, iteration.seconds, iteration.sums, quiet))
        if self._policy.why != before:
            self._changed = True
            kept = "stays" if self.stage == iteration.stage else f"after stage {iteration.stage}"
            self._note(f"stage {self.stage} {kept}: {self._policy.why}")
        if self.stage != iteration.stage:
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
