"""Deliberate bugs in the controller, in checkpoints, in the job loop and in mailboxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agileml.core import controller
from agileml.core.clocks import CheckpointSchedule
from agileml.core.controller import Controller
from agileml.core.members import IN_EPOCH, Members, NodePhase
from agileml.core.planned_changes import Assignment
from agileml.core.recovery import Epochs, Mode, VersionLedger
from agileml.core.roll_call import Consequence, NodeAnswer, RollCall
from agileml.engines.job_loop import CrashGuard
from agileml.protocol.actions import Save, Send
from agileml.protocol.messages import Hello, Stable, Warned
from agileml.roles.server import Server
from agileml.runtime import mailbox
from agileml.runtime.controller_process import Memory
from agileml.runtime.outbox import Outbox
from agileml.transport import QueueFull
from tests.agileml import trials
from tests.agileml.mutation import Mutant, aims

_warn, _lose, _stale = RollCall._warn, Members.lose, RollCall.stale
_set_stable, _close_clock = Server.set_stable, VersionLedger.close_clock
_request = CheckpointSchedule.request


def _whoever_sent_it(*_: object) -> bool:
    return True


def _nothing(*_: object) -> None:
    return None


def _no_order(*_: object) -> Iterator[Any]:
    return iter(())


def _warned_without_start(self: RollCall, event: Warned) -> Iterator[NodeAnswer]:
    return (answer for answer in _warn(self, event) if answer is not Consequence.GATHER)


def _unknown_ones_not_lost(self: Members, names: list[str]) -> dict[str, NodePhase]:
    return _lose(self, [name for name in names if self.get(name) is not None])


def _reports_of_any_epoch(
    self: RollCall, event: object, now: float, epoch: int, *, open_: bool
) -> bool | Send:
    if getattr(event, "epoch", None) is None or isinstance(event, Hello):
        return _stale(self, event, now, epoch, open_=open_)
    return _stale(self, replace(event, epoch=epoch), now, epoch, open_=open_)  # type: ignore[type-var]


def _first_answer_is_enough(self: Epochs) -> bool:
    return self.mode is Mode.RESUMING and bool(self.held)


def _started_without_reliable(self: Controller) -> None:
    if self.epochs.mode is Mode.GATHERING and self.members.names(*IN_EPOCH):
        self._recover()


def _lost_nodes_stay(self: Members, name: str) -> bool:
    return self.get(name) is not None


def _complete_at_once(
    self: CheckpointSchedule,
    clock: int,
    partition: int,  # noqa: ARG001
    now: float,  # noqa: ARG001
) -> bool:
    newer, self.latest = clock > self.latest, max(self.latest, clock)
    return newer


def _every_tenth(_: CheckpointSchedule, stable: int, before: int, now: float) -> bool:  # noqa: ARG001
    return stable // 10 > before // 10


def _waits_for_lost_ones(self: CheckpointSchedule, stable: int, before: int, now: float) -> bool:
    return self.latest >= self._requested and _request(self, stable, before, now)


def _oldest_under_its_name(self: Server, message: Stable) -> None:
    begin = len(self.out)
    oldest = {
        one.partition: one.versions[min(one.versions)] for one in self._holders() if one.versions
    }
    _set_stable(self, message)
    for at, one in enumerate(self.out[begin:], start=begin):
        if isinstance(one, Save):
            self.out[at] = replace(
                one, version=replace(oldest[one.partition], clock=one.version.clock)
            )


def _repeated_reports_forgotten(self: VersionLedger, accepted: Any) -> tuple[Any, int]:  # noqa: ANN401
    sums, _ = _close_clock(self, accepted)
    return sums, 0


def _only_new_clocks(self: CrashGuard, clock: int, progress: int) -> None:  # noqa: ARG001
    if clock > self._clock:
        self.in_a_row = self.in_one_clock = 0
    self._clock = clock


def _only_full_queues(self: Outbox, to: str, pending: list[object]) -> None:
    for number, message in enumerate(pending):
        try:
            self._endpoint.send(to, *self._codec.encode(message))
        except QueueFull:
            self._waiting[to] = pending[number:]
            return


ANY_LOSS = aims("2 3 1", "kill one, kill half", "Push Snapshot PartitionProgress")
RECOVERIES = aims("2 3 1", "kill one, suspect one, kill half", "Recover Restored Move Taken")
LOST_BACKUPS = aims("2 3", "kill reliable", "PartitionProgress Patch Stable")
RESTARTS = aims("4", "kill one, warn one, join", "Hello Ready Push") + aims(
    "2 3", "kill controller", "Patch"
)
WITHOUT_RELIABLE = aims("5", "join, warn one, kill one", "Hello Ready Pull Snapshot")
SAVED = aims("1 2", "kill everything, kill reliable", "Saved")

OF_CONTROL = (
    Mutant("any node may speak for another", controller, "may_send", _whoever_sent_it, ANY_LOSS),
    Mutant(
        "any node may speak for another, to a real process",
        mailbox,
        "may_say",
        _whoever_sent_it,
        trial=trials.a_node_cannot_speak_for_another,
    ),
    Mutant(
        "a warned node keeps promised shards until the end of its clock",
        Assignment,
        "expedite",
        _no_order,
        trial=trials.a_warned_node_does_not_wait_for_the_end_of_its_clock,
    ),
    Mutant(
        "a warning before the first clock starts no job",
        RollCall,
        "_warn",
        _warned_without_start,
        trial=trials.a_job_starts_whatever_happens_to_its_nodes,
    ),
    Mutant(
        "a node lost before its hello is not counted",
        Members,
        "lose",
        _unknown_ones_not_lost,
        trial=trials.a_job_starts_whatever_happens_to_its_nodes,
    ),
    Mutant(
        "the controller handles reports of earlier epochs",
        RollCall,
        "stale",
        _reports_of_any_epoch,
        RECOVERIES,
    ),
    Mutant(
        "a restarted controller goes on after the first answer",
        Epochs,
        "all_answered",
        property(_first_answer_is_enough),
        RESTARTS,
    ),
    Mutant(
        "a job goes on without a reliable node",
        Controller,
        "_gather",
        _started_without_reliable,
        WITHOUT_RELIABLE,
    ),
    Mutant(
        "a checkpoint that is never finished is the last one",
        CheckpointSchedule,
        "request",
        _waits_for_lost_ones,
        trial=trials.a_checkpoint_that_cannot_be_written_is_not_the_last,
    ),
    Mutant("a lost node can be a source", Members, "stays", _lost_nodes_stay, LOST_BACKUPS),
    Mutant(
        "a checkpoint is complete with its first partition",
        CheckpointSchedule,
        "add",
        _complete_at_once,
        SAVED,
    ),
    Mutant(
        "a checkpoint holds an earlier version than it says",
        Server,
        "set_stable",
        _oldest_under_its_name,
        trial=trials.a_lost_reliable_node_costs_one_clock,
    ),
    Mutant(
        "only every tenth clock is saved",
        CheckpointSchedule,
        "request",
        _every_tenth,
        trial=trials.a_lost_reliable_node_costs_one_clock,
    ),
    Mutant(
        "chunks that die with their node are not counted",
        VersionLedger,
        "lose",
        _nothing,
        trial=trials.redone_work_is_counted,
    ),
    Mutant(
        "chunks that are done again are not counted",
        VersionLedger,
        "close_clock",
        _repeated_reports_forgotten,
        trial=trials.redone_work_is_counted,
    ),
    Mutant(
        "clocks that are done again are no progress",
        CrashGuard,
        "advance",
        _only_new_clocks,
        trial=trials.a_job_that_redoes_clocks_is_not_given_up,
    ),
    Mutant(
        "a peer that is lost as soon as it is linked ends a node",
        Outbox,
        "_send_all",
        _only_full_queues,
        trial=trials.a_peer_lost_as_soon_as_it_is_linked_costs_only_its_messages,
    ),
    Mutant(
        "the latest checkpoint is not written to the record",
        Memory,
        "remember_checkpoint",
        _nothing,
        trial=trials.a_restarted_controller_knows_the_latest_checkpoint,
    ),
)
