"""The elasticity controller: events in, instructions out. It routes each event to the part that
knows the subject.

`roll_call`: who is there. `stages`: which stage that leads to. `planned`: who serves, backs up and
works on what, and changes of that (nodes that join, eviction warnings), which move partitions and
shards one by one while training continues. `clocks`: which versions are committed, safe, saved and
logged. `last_clock`: when the job ends. Every loss leads to a recovery: a new epoch (`epochs`) in
which all nodes return to the latest safe version, with a new table.

No part knows another one, or the controller, which turns their answers into instructions.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, get_args

from agileml.core.clocks import ClockProgress, ClockReport, LastClock
from agileml.core.events import (
    ControllerInstruction,
    ControllerSettings,
    Failed,
    Finished,
    Implausible,
    Remember,
    RememberCheckpoint,
    StopJob,
)
from agileml.core.members import IN_EPOCH, Members, NodePhase, may_send
from agileml.core.placement import Stages
from agileml.core.planned_changes import PlannedChanges
from agileml.core.recovery import CHECKPOINT, INIT, Epochs, Mode, common_version, rollback_point
from agileml.core.roll_call import (
    LEFT_BEHIND,
    Consequence,
    LostNodes,
    NodeAnswer,
    NodeEvent,
    RollCall,
    can_start,
)
from agileml.errors import InvalidTransition
from agileml.policies.stage import ClockFinished, ClockSums
from agileml.protocol import messages
from agileml.protocol.actions import Send
from agileml.protocol.messages import (
    Enter,
    Heartbeat,
    Hello,
    Leave,
    Limit,
    PartitionProgress,
    Recover,
    Saved,
    Table,
)
from agileml.work import WorkPlan, sampled_items

RECORDED = (
    *("epoch", "table", "members", "previous", "stable", "gone_back", "limit", "stopping"),
    *("checkpoint", "logged", "learned", "evictions", "failures"),
)
"""Entries of the record from which a restarted controller resumes, in the order in which they are
written."""

MAX_CLOCKS_AHEAD = 100_000
"""Clocks that nodes can have reported before all servers have: the links of these may be slower."""

IN_JOB = (NodePhase.LOADING, NodePhase.READY, *IN_EPOCH)
"""Phases in which a node is told that the job is over."""


ClockEvent = ClockReport | Saved | messages.SquareOfPart | messages.Collected | messages.Evaluated
"""Reports of work on clocks, and on the result of the last one."""

TableEvent = messages.Restored | messages.Taken | messages.Adopted | messages.ServerTimed
"""Reports of changes of the table, and of what may lead to one."""


class Controller:
    """The state machine. All input arrives through `handle`. `partition_bytes` is the weight of
    each partition.
    """

    def __init__(
        self, plan: WorkPlan, partition_bytes: tuple[int, ...], settings: ControllerSettings
    ) -> None:
        self.settings = settings
        self.roll_call = RollCall(settings)
        self.epochs = Epochs()
        self.stages = Stages(settings.policy, settings.uneven)
        self.planned = PlannedChanges.none(partition_bytes, len(plan.lengths))
        self.clocks = ClockProgress.none(plan, len(partition_bytes), settings)
        sampled = enumerate(sampled_items(plan.lengths, settings.loss_sample))
        self.last_clock = LastClock(
            settings.clocks, {shard: count for shard, count in sampled if count}
        )
        self._out: list[ControllerInstruction] = []
        self._changed = False
        self._now = 0.0
        self._observe_nodes()

    # -- for those who watch a job -----------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of the current epoch; 0 before the first."""
        return self.epochs.number

    @property
    def reported(self) -> int:
        """Grows whenever workers report more chunks."""
        return self.clocks.ledger.reported

    @property
    def table(self) -> Table:
        """Servers, backups and workers, as confirmed."""
        return self.planned.assignment.table

    @property
    def members(self) -> Members:
        """The nodes."""
        return self.roll_call.members

    # -- events ------------------------------------------------------------------------------------

    def handle(
        self, event: object, now: float, sender: str | None = None
    ) -> list[ControllerInstruction]:
        """Processes an event and returns the instructions that follow from it, in order.

        `sender` is the process that sent it; None for what the controller's own process has
        noticed. What a process may not say is ignored. InvalidTransition if the event contradicts
        the state; the message names the event and the recent ones.
        """
        if self.epochs.mode is Mode.OVER or (sender is not None and not may_send(sender, event)):
            return []

        self._now = now
        try:
            self._process(event)
        except InvalidTransition as error:
            recent = self.clocks.log.recent_events
            raise InvalidTransition(
                f"{error}; event: {event!r}; recent events: {recent}"
            ) from error

        instructions = list(self._out)
        if self._changed:
            # Before all others: the record from which a restarted controller resumes.
            parts = (
                self.epochs,
                self.planned,
                self.members,
                self.clocks,
                self.last_clock,
                self.stages,
            )
            record = {key: value for part in parts for key, value in part.record().items()}
            remember = Remember({key: record[key] for key in RECORDED})
            instructions.insert(0, remember)

        self._changed = False
        self._out.clear()
        return instructions

    def granted(self, node: str, order: object) -> frozenset[tuple[int, int]]:
        """The copies that a node is to save: partitions that it holds or is being sent, with the
        order's clock.
        """
        if not isinstance(order, messages.Stable) or not order.checkpoint:
            return frozenset()

        table = self.table
        moving = self.planned.assignment.moving
        holders = zip(table.owners, table.backups, strict=True)
        held = {partition for partition, pair in enumerate(holders) if node in pair}
        held.update(
            partition for partition, move in moving.items() if node in (move.to, move.backup)
        )

        return frozenset((partition, order.clock) for partition in held)

    def _process(self, event: object) -> None:
        open_ = self.epochs.mode not in (Mode.RESUMING, Mode.GATHERING)
        stale = self.roll_call.stale(event, self._now, self.epochs.number, open_=open_)
        if isinstance(stale, Send):
            self._out.append(stale)
        if stale:
            return

        self._check(event)
        rule = ROUTES.get(type(event))
        if rule is None:
            raise InvalidTransition(f"the controller has no rule for {event!r}")

        rule(self, event)
        self._observe_nodes()
        # Which chunks make up the next clock, once enough workers are done.
        if self.clocks.decisions.policy is not None and self.epochs.mode is Mode.RUNNING:
            self._out.extend(
                self.clocks.decide(self.table.workers, self._now, self.members, self.epochs.number)
            )

        self._log()

        # Once every partition has the last clock, fetches the model and its loss, and then ends the
        # job.
        last = self.last_clock
        if self.epochs.mode is not Mode.RUNNING or self.clocks.ledger.reached < last.limit:
            return
        owners = self.table.owners
        self._out.extend(last.requests(self.epochs.number, owners, self.members.names(*IN_EPOCH)))
        finished = last.finished(len(owners), self.clocks.decisions.tally)
        if finished is not None:
            self._end(finished, "the job is done")

    def _check(self, event: object) -> None:
        """Raises Implausible if a node reports what is not for it to report."""
        node = getattr(event, "node", "")
        assignment = self.planned.assignment
        if isinstance(event, Hello) or not hasattr(event, "epoch"):
            return

        member = self.members.get(node)
        partition = getattr(event, "partition", -1)
        believed = member is not None and member.phase in IN_EPOCH
        match event:
            case messages.Taken():
                move = assignment.moving.get(partition)
                believed &= move is not None and move.to == node
            case messages.Adopted():
                believed &= assignment.giving.get(event.shard) == node
            case PartitionProgress() | messages.SquareOfPart() | messages.Collected():
                believed &= node in assignment.holders.get(partition, ())

        if (
            not believed
            or getattr(event, "clock", 0) > self.clocks.ledger.reached + MAX_CLOCKS_AHEAD
        ):
            raise Implausible(f"{type(event).__name__} of what is not its own: {event!r:.200}")

    # -- who is there ------------------------------------------------------------------------------

    def _attend(self, event: NodeEvent) -> None:
        if isinstance(event, Heartbeat):
            self.clocks.ledger.note_underway(event.node, event.unreported)
        for answer in self.roll_call.handle(event, self._now, self.epochs.number):
            self._follow(answer)

    def _follow(self, answer: NodeAnswer) -> None:
        match answer:
            case Send():
                self._out.append(answer)
            case str():
                self.clocks.log.note(answer)
            case Consequence.REMEMBER:
                self._changed = True
            case Consequence.GATHER:
                self._gather()
            case Consequence.REPLAN:
                self._replan()
            case messages.Warned():
                self._out.extend(self.planned.assignment.expedite(answer.node, self.epochs.number))
                self._replan()
            case Hello() if self.epochs.mode is Mode.RESUMING:
                self.epochs.answer(answer)
                self._resume_if_all_answered()
            case LostNodes():
                self._lose(answer)
            case Failed():
                events = "".join(f"; {event}" for event in self.clocks.log.recent_events)
                why = answer.why + events
                self._end(Failed(why), why)

    def _gather(self) -> None:
        """Starts once the first nodes are ready; continues once a node is there that can hold the
        model.
        """
        if self.epochs.mode is Mode.GATHERING and can_start(
            self.members, self.settings, self.epochs.number
        ):
            self._recover()

    def _lose(self, lost: LostNodes) -> None:
        for name in lost.phases:
            self.clocks.ledger.lose(name)
            self.clocks.log.note(f"{name} lost: {lost.why}")

        self._changed = bool(lost.phases)
        self.epochs.awaited.difference_update(lost.phases)
        if self.epochs.mode is Mode.RESUMING:
            self._resume_if_all_answered()
        elif self.epochs.mode is not Mode.GATHERING and any(
            phase in IN_EPOCH for phase in lost.phases.values()
        ):
            self._recover()

        self._gather()

    # -- recovery ----------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Rolls back to the latest version that is known to be safe."""
        clocks = self.clocks
        saved = self.clocks.checkpoints.latest
        self._roll_back(
            *rollback_point(
                self.members, self.table, clocks.ledger, clocks.stable, saved, self.epochs
            )
        )

    def _resume_if_all_answered(self) -> None:
        """Once every node has answered or is lost, rolls back to the latest version that they have
        in common.
        """
        if self.epochs.all_answered:
            held = self.epochs.held
            latest = self.clocks.checkpoints.latest
            self._roll_back(*common_version(held, self.members, len(self.table.owners), latest))

    def _roll_back(self, clock: int, sources: tuple[str, ...]) -> None:
        """Starts a new epoch from a version, with the nodes that are left."""
        for node in self.members.names(NodePhase.DRAINING):
            # They hold nothing.
            self.members.set_phase(node, NodePhase.GONE)
            self._out.append(Send(node, Leave(LEFT_BEHIND)))
        self.members.activate_ready()
        self._observe_nodes()
        self._changed = True
        footprint = self.stages.footprint
        stored = bool(self.settings.reliable) and (CHECKPOINT in sources or INIT in sources)

        if not footprint.reliable and (stored or not footprint.transient):
            self.epochs.enter(Mode.GATHERING)
            self.clocks.log.note(
                "waiting for a reliable node" if self.settings.reliable else "waiting for a node"
            )
            return

        nodes = self.members.names(NodePhase.ACTIVE, NodePhase.LEAVING)
        self.epochs.begin(clock, sources, nodes)
        self.planned.begin(footprint, self.stages.stage, self.epochs.number)
        self.clocks.roll_back(clock, loads=CHECKPOINT in sources)
        self.last_clock.roll_back(clock)
        self.clocks.log.note(f"epoch {self.epochs.number} from version {clock}")
        for name in nodes:
            self.members[name].routed = self.table.version
        decided = self.clocks.decisions.after(clock)
        limit = self.last_clock.limit
        recover = Recover(self.epochs.number, clock, self.table, sources, limit, decided)
        self._broadcast(recover, nodes)

    # -- planned changes ---------------------------------------------------------------------------

    def _replan(self) -> None:
        """Lets ready nodes join the epoch, and requests the moves that lead to the target table."""
        if self.epochs.mode is not Mode.RUNNING:
            return

        for node in self.members.activate_ready():
            self.members[node].routed = self.table.version
            stable = self.clocks.stable
            limit = self.last_clock.limit
            decided = self.clocks.decisions.after(stable)
            enter = Enter(self.epochs.number, self.table, limit, stable, decided)
            self._out.append(Send(node, enter))
            self._changed = True

        self._observe_nodes()
        stages = self.stages
        epoch = self.epochs.number
        reassignment = self.settings.stragglers.reassignment

        helpers = reassignment.helpers if reassignment is not None else None
        self._out.extend(
            self.planned.orders(self.members, stages.footprint, stages.stage, epoch, helpers)
        )

        for node in self.members.names(NodePhase.LEAVING):
            if self.planned.assignment.is_free(node, self.members):
                self.members.set_phase(node, NodePhase.DRAINING)
                self._out.append(self.roll_call.drain(node, epoch))

    def _change(self, event: TableEvent) -> None:
        """A step of a change of the table is done, or says which change would help."""
        match event:
            case messages.Restored():
                self.epochs.restored(event.node)
                self._replan()
            case messages.ServerTimed():
                measured = (event.server, event.sent_bytes, event.seconds)
                self.planned.policy = self.planned.policy.with_measurement(*measured)
            case messages.Adopted():
                if self.planned.assignment.shard_arrived(event.shard, event.node):
                    self._replan()
            case messages.Taken():
                assignment = self.planned.assignment
                ledger = self.clocks.ledger
                left = assignment.table.owners[event.partition]
                move = assignment.partition_arrived(event.partition, event.node)
                ledger.add_move(event.partition, left, move, self.clocks.stable)
                seconds = self.planned.seconds_of_move(self._now)
                if seconds is not None:
                    # Moves count for the clock that is in progress.
                    sums = ledger.clocks.setdefault(ledger.reached + 1, ClockSums())
                    sums.moved_bytes += self.planned.partition_bytes[event.partition]
                    sums.suspended_seconds += seconds

                # Not recorded: a restarted controller asks the nodes what they hold.
                self._replan()

    def _observe_nodes(self) -> None:
        """Lets the policy see which nodes are active now."""
        self._note_reasons(self.stages.observe_nodes(self.members))

    def _note_reasons(self, reasons: Iterable[str]) -> None:
        for reason in reasons:
            self._changed = True
            self.clocks.log.note(reason)

    # -- clocks ------------------------------------------------------------------------------------

    def _report(self, event: ClockEvent) -> None:
        """A node has done a part of a clock, or of what follows the last one."""
        match event:
            case messages.SquareOfPart():
                self._out.extend(self.clocks.norms.add(event, self.members))
            case Saved():
                if self.clocks.checkpoints.add(event.clock, event.partition, self._now):
                    self._out.append(RememberCheckpoint(event.clock))
            case messages.Collected() | messages.Evaluated():
                self.last_clock.add(event)
            case _:
                self.clocks.add(event, self.epochs.number)

        if isinstance(event, PartitionProgress) and self.epochs.mode is Mode.RUNNING:
            limit = self.last_clock.limit
            stable = self.clocks.advance_stable(
                self.planned.assignment, self.members, limit, self.epochs.number, self._now
            )
            self._out.extend(stable)

    def _log(self) -> None:
        """Returns an `Iteration` for each clock that is complete."""
        log = self.clocks.log
        if log.logged_at is None:
            if self.epochs.number:
                log.logged_at = self._now
            return

        repeated = log.take_repeated()
        if repeated is not None:
            self._out.append(repeated)
        while True:
            self._observe_nodes()
            footprint = self.stages.footprint
            limit = self.last_clock.limit
            nodes = len(footprint.reliable), len(footprint.transient)
            iteration = log.close_next(self._now, limit, self.stages.stage, nodes)
            if iteration is None:
                return
            self._out.append(iteration)
            quiet = not (iteration.redone or iteration.events or self.planned.assignment.moving)
            nodes = (iteration.reliable, iteration.transient)
            partitions = len(self.table.owners)
            clock = ClockFinished(
                iteration.stage, *nodes, iteration.seconds, iteration.sums, quiet, partitions
            )
            self._note_reasons(self.stages.observe(clock))
            if self.stages.stage != iteration.stage:
                self._replan()

            if self.settings.stragglers.balance_servers and self.epochs.mode is Mode.RUNNING:
                self._observe_nodes()
                place = self.planned.balance_servers(
                    self.stages.footprint, self.stages.stage, self._now
                )
                if place is not None:
                    self.clocks.log.note(f"partitions move to other servers: {place.reason}")
                    self._replan()

            if self.last_clock.may_stop_after(iteration.clock) and self.settings.stop(iteration):
                self._stop(StopJob(finish=True))

    # -- the end of the job ------------------------------------------------------------------------

    def _stop(self, event: StopJob) -> None:
        stable = self.clocks.stable
        if not event.finish:
            is_new = self.last_clock.interrupt(stable)
        else:
            is_new = self.last_clock.may_stop_after(stable)
            if is_new:
                self._changed = True
                self.last_clock.stop(self.clocks.ledger.reached, stable)

        if is_new:
            limit = Limit(self.epochs.number, self.last_clock.limit)
            self._broadcast(limit, self.members.names(*IN_EPOCH))

    def _report_broken(self, event: messages.Broken) -> None:
        named = event.node in event.message
        why = event.message if named else f"{event.message}, on node {event.node}"
        self._end(Failed(why), why)

    def _end(self, ended: Finished | Failed, why: str) -> None:
        self.epochs.enter(Mode.OVER)
        self._out.append(ended)
        self._broadcast(Leave(why), self.members.names(*IN_JOB))

    def _broadcast(self, message: object, nodes: Iterable[str]) -> None:
        self._out.extend(Send(name, message) for name in nodes)

    # -- the record that outlives a controller -----------------------------------------------------

    @classmethod
    def resume(
        cls,
        plan: WorkPlan,
        partition_bytes: tuple[int, ...],
        settings: ControllerSettings,
        record: Mapping[str, Any] | None,
        now: float,
    ) -> Self:
        """A new controller; one with a record replaces one that was lost, and waits for the nodes
        to report what they hold."""
        controller = cls(plan, partition_bytes, settings)
        if record is None:
            return controller

        controller.members.restore(record, now)
        controller.planned.restore(record, balances=settings.stragglers.balance_servers)
        controller.clocks.restore(record, now)
        controller.last_clock.restore(record)
        controller._note_reasons(controller.stages.restore(record, controller.members))
        controller.epochs.restore(record, len(partition_bytes), controller.members.names(*IN_EPOCH))
        if controller.epochs.number:
            controller.clocks.log.note("controller restarted")

        return controller


ROUTES: dict[type, Callable[[Controller, Any], None]] = {
    **dict.fromkeys(get_args(NodeEvent), Controller._attend),
    **dict.fromkeys(get_args(ClockEvent), Controller._report),
    **dict.fromkeys(get_args(TableEvent), Controller._change),
    messages.Broken: Controller._report_broken,
    StopJob: Controller._stop,
}
"""The rule for each event."""
