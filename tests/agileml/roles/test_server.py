"""The server by harness: messages in, exactly these actions out."""

from __future__ import annotations

import numpy as np
import pytest

from agileml.errors import InvalidTransition
from agileml.params.commit import CommitRule, Declarations
from agileml.params.deltas import Delta, RowDelta
from agileml.params.layout import Layout
from agileml.params.reads import WantedRows
from agileml.protocol.actions import CONTROLLER, Action, Fetch, Save, Send
from agileml.protocol.messages import (
    Collect,
    Collected,
    Handover,
    Move,
    NeedVersion,
    PartitionProgress,
    PartitionUpdate,
    Patch,
    PendingPush,
    Pull,
    Push,
    Reads,
    Recover,
    Restore,
    Snapshot,
    Stable,
    Table,
    Taken,
    Tally,
    UpdateEntry,
    Version,
    Waiting,
)
from agileml.roles.partitions import ServingRules
from agileml.roles.server import Server
from agileml.work import CountedWork, WorkPlan
from tests.agileml.toys import Decades

PLAN = WorkPlan((2, 2), 0, 1)
RULE = CommitRule(Layout.cut({"w": np.zeros((2, 2), np.float32)}, 2), Declarations.of(Decades()))
INIT = ("init", "init")


def table(owners: tuple[str, str], backups: tuple[str, str] = ("", ""), version: int = 1) -> Table:
    return Table(version, owners, backups, ("w", "w"))


def serving(rule: CommitRule) -> ServingRules:
    return ServingRules(CountedWork(PLAN), rule, ordered=True, fresh=False)


class Harness:
    """A server and its actions."""

    def __init__(self, name: str = "s") -> None:
        self.out: list[Action] = []
        self.server = Server(name, serving(RULE), initial, self.out)

    def actions(self) -> list[Action]:
        actions = list(self.out)
        self.out.clear()
        return actions

    def recover(
        self, of: Table, epoch: int = 1, clock: int = 0, sources: tuple[str, str] = INIT
    ) -> list[Action]:
        self.server.recover(Recover(epoch, clock, of, sources, 9))
        return self.actions()


def initial(partition: int) -> Version:
    return version(0, partition)


def version(clock: int, value: float, chunks: int = 0) -> Version:
    return Version(clock, Tally(chunks, 0), [np.full((1, 2), value, np.float32)])


def push(clock: int, *partitions: int, shard: int = 0, want: int = -1, worker: str = "w") -> Push:
    delta: Delta = [RowDelta(None, np.ones((1, 2), np.float32))]
    parts = tuple(
        PartitionUpdate(partition, (UpdateEntry(shard, 0, delta),)) for partition in partitions
    )
    return Push(1, worker, clock, ((shard, 0, 2),), parts, want)


def messages_of(actions: list[Action], kind: type) -> list[tuple[str, object]]:
    return [
        (one.to, one.message)
        for one in actions
        if isinstance(one, Send) and isinstance(one.message, kind)
    ]


def test_a_clock_is_committed_streamed_and_answered() -> None:
    harness = Harness()
    assert harness.recover(table(("s", "x"), ("b", "b"))) == [
        Send(CONTROLLER, PartitionProgress("s", 1, 0, 0, backup=False))
    ]
    harness.server.push(push(1, 0, want=1))
    assert harness.actions() == []
    harness.server.push(push(1, 0, shard=1, want=1, worker="v"))
    patch, progress, *answers = harness.actions()
    assert isinstance(patch, Send)
    assert isinstance(patch.message, Patch)
    assert (patch.to, patch.message.base, patch.message.clock, patch.message.tally.chunks) == (
        "b",
        0,
        1,
        4,
    )
    assert isinstance(progress, Send)
    assert progress.message == PartitionProgress(
        "s", 1, 0, 1, backup=False, pulled_bytes=0, backup_bytes=8
    )
    snapshots = [
        (to, one.version, one.values[0].values.tolist())  # type: ignore[attr-defined]
        for to, one in messages_of(answers, Snapshot)
    ]
    assert snapshots == [("w", 1, [[2, 2]]), ("v", 1, [[2, 2]])]


def test_a_pull_waits_for_its_version() -> None:
    harness = Harness()
    harness.recover(table(("s", "x")))
    harness.server.pull(Pull(1, "w", 0, 0))
    assert len(messages_of(harness.actions(), Snapshot)) == 1
    harness.server.pull(Pull(1, "w", 0, 1))
    assert harness.actions() == []
    harness.server.push(push(1, 0))
    harness.server.push(push(1, 0, shard=1))
    assert [to for to, _ in messages_of(harness.actions(), Snapshot)] == ["w"]


def test_a_partition_moves_with_its_state_and_later_messages_are_forwarded() -> None:
    harness, other = Harness(), Harness("t")
    harness.recover(table(("s", "s"), ("b", "b")))
    other.recover(table(("s", "s"), ("b", "b")))
    harness.server.push(push(1, 0, 1, want=1))
    harness.server.move(Move(1, 0, "t", "b"))
    ((to, handover),) = messages_of(harness.actions(), Handover)
    assert isinstance(handover, Handover)
    assert (to, handover.clock, handover.backup, handover.stamped) == ("t", 0, "b", 0)
    assert [one.clock for one in handover.versions] == [0]
    assert handover.waiting == (Waiting("w", 1, whole=False),)
    (pending,) = handover.pending
    assert (type(pending), pending.clock, pending.covers) == (PendingPush, 1, ((0, 0, 2),))
    # A push to both: only the part of the moved partition is forwarded.
    harness.server.push(push(1, 0, 1, shard=1))
    ((to, forwarded),) = messages_of(harness.actions(), Push)
    assert isinstance(forwarded, Push)
    assert (to, forwarded.covers, [part.partition for part in forwarded.parts]) == (
        "t",
        ((1, 0, 2),),
        [0],
    )
    other.server.take_over(handover)
    assert other.actions() == [Send(CONTROLLER, Taken("t", 1, 0))]
    other.server.push(push(1, 0, shard=1))
    assert [to for to, _ in messages_of(other.actions(), Snapshot)] == ["w"]
    assert other.server.served[0].latest.tally == harness.server.served[1].latest.tally
    harness.server.pull(Pull(1, "v", 0, 1))
    assert harness.actions() == [Send("t", Pull(1, "v", 0, 1))]


def test_a_partition_moves_to_its_backup_without_versions_once_the_last_patch_is_there() -> None:
    harness, backup = Harness(), Harness("b")
    harness.recover(table(("s", "x"), ("b", "b")))
    backup.recover(table(("s", "x"), ("b", "b")))
    harness.server.push(push(1, 0))
    harness.server.push(push(1, 0, shard=1))
    ((_, patch),) = messages_of(harness.actions(), Patch)
    harness.server.move(Move(1, 0, "b", ""))
    ((_, handover),) = messages_of(harness.actions(), Handover)
    assert isinstance(handover, Handover)
    assert isinstance(patch, Patch)
    assert (handover.versions, handover.clock) == ((), 1)
    backup.server.take_over(handover)
    # Messages for it wait, too.
    backup.server.pull(Pull(1, "w", 0, 1))
    assert backup.actions() == []
    backup.server.patch(patch)
    sent = backup.actions()
    assert Send(CONTROLLER, Taken("b", 1, 0)) in sent
    assert [to for to, _ in messages_of(sent, Snapshot)] == ["w"]


def test_a_worker_receives_the_rows_it_reads_or_the_whole_partition_on_request() -> None:
    layout = Layout.cut({"w": np.zeros((6, 2), np.float32)}, 1)
    rule = CommitRule(layout, RULE.declared)
    out: list[Action] = []
    start = Version(0, Tally(0, 0), [np.arange(12, dtype=np.float32).reshape(6, 2)])
    server = Server("s", serving(rule), lambda _: start, out)
    server.recover(Recover(1, 0, Table(1, ("s",), ("",), ("w", "w")), ("init",), 9))
    rows: WantedRows = [np.array([1, 4], np.int32)]
    server.set_reads(Reads(1, "w", 0, rows))
    server.push(Push(1, "w", 1, ((0, 0, 2),), (PartitionUpdate(0, ()),), 0))
    server.push(Push(1, "v", 1, ((1, 0, 1),), (PartitionUpdate(0, ()),), 0))
    server.pull(Pull(1, "w", 0, 0))
    server.forget("w")
    server.push(Push(1, "w", 2, ((1, 1, 2),), (PartitionUpdate(0, ()),), 0))
    sent = [(to, one.values[0]) for to, one in messages_of(out, Snapshot)]  # type: ignore[attr-defined]
    assert [(to, None if part.rows is None else part.rows.tolist()) for to, part in sent] == [
        ("w", [1, 4]),
        ("v", None),
        ("w", None),
        ("w", None),
    ]
    assert sent[0][1].values.tolist() == [[2, 3], [8, 9]]


def test_reads_are_forwarded_to_the_current_owner() -> None:
    harness, other = Harness(), Harness("t")
    harness.recover(table(("s", "s")))
    other.recover(table(("s", "s")))
    reads = Reads(1, "w", 0, [np.array([0], np.int32)])
    harness.server.set_reads(reads)
    harness.server.move(Move(1, 0, "t", ""))
    ((_, handover),) = messages_of(harness.actions(), Handover)
    assert isinstance(handover, Handover)
    other.server.take_over(handover)
    assert other.server.served[0].readers.rows == {}
    harness.server.set_reads(reads)
    assert harness.actions() == [Send("t", reads)]
    other.server.set_reads(reads)
    assert other.server.served[0].readers.rows.keys() == {"w"}


def test_reads_of_an_arriving_partition_wait_for_it() -> None:
    harness = Harness()
    harness.recover(table(("s", "s")), epoch=2, clock=1, sources=("r", "r"))
    harness.server.set_reads(Reads(2, "w", 0, [np.array([0], np.int32)]))
    harness.server.restore(0, version(1, 7.0), table(("s", "s")))
    assert harness.server.served[0].readers.rows.keys() == {"w"}


def test_a_message_for_an_unknown_partition_is_refused() -> None:
    harness = Harness()
    harness.recover(table(("s", "x")))
    with pytest.raises(
        InvalidTransition,
        match="s received a message for partition 1, which it never had in this epoch",
    ):
        harness.server.pull(Pull(1, "w", 1, 0))


def test_a_new_backup_receives_every_version_a_rollback_may_need() -> None:
    harness = Harness()
    harness.recover(table(("s", "x"), ("b", "b")))
    for shard in (0, 1):
        harness.server.push(push(1, 0, shard=shard))
    harness.actions()
    harness.server.reroute(table(("s", "x"), ("c", "c"), version=2))
    patches = messages_of(harness.actions(), Patch)
    assert [(to, one.base, one.clock) for to, one in patches] == [("c", -1, 0), ("c", -1, 1)]  # type: ignore[attr-defined]


def test_a_former_backup_keeps_its_copy_until_a_later_version_is_stable() -> None:
    backup = Harness("b")
    backup.recover(table(("s", "x"), ("b", "b")))
    backup.server.reroute(table(("s", "x"), ("c", "b"), version=2))
    assert backup.server.holds() == ((0, 0), (1, 0))
    backup.server.set_stable(Stable(1, 0, checkpoint=False))
    assert backup.server.holds() == ((0, 0), (1, 0))
    backup.server.set_stable(Stable(1, 1, checkpoint=False))
    assert backup.server.holds() == ((1, 0),)


def test_checkpoints_are_written_by_the_backup_or_an_owner_without_one() -> None:
    harness, backup = Harness(), Harness("b")
    for one in (harness, backup):
        one.recover(table(("s", "s"), ("b", "")))
        one.server.set_stable(Stable(1, 0, checkpoint=True))
    assert [one.partition for one in harness.actions() if isinstance(one, Save)] == [1]
    assert [one.partition for one in backup.actions() if isinstance(one, Save)] == [0]


def test_recovery_from_local_remote_and_saved_versions() -> None:
    harness = Harness()
    harness.recover(table(("s", "x")))
    for shard in (0, 1):
        harness.server.push(push(1, 0, shard=shard))
    harness.actions()
    sent = harness.recover(table(("s", "s")), epoch=2, clock=1, sources=("s", "r"))
    assert sent == [
        Send(CONTROLLER, PartitionProgress("s", 2, 0, 1, backup=False)),
        Send("r", NeedVersion(2, "s", 1, 1)),
    ]
    # Messages for a partition that has not arrived wait.
    harness.server.pull(Pull(2, "w", 1, 1))
    assert harness.actions() == []
    harness.server.restore(1, version(1, 7.0), table(("s", "s")))
    sent = harness.actions()
    assert sent[0] == Send(CONTROLLER, PartitionProgress("s", 2, 1, 1, backup=False))
    assert [to for to, _ in messages_of(sent, Snapshot)] == ["w"]
    assert harness.recover(table(("s", "s")), 3, 5, ("checkpoint", "checkpoint")) == [
        Fetch(3, 0, 5),
        Fetch(3, 1, 5),
    ]


def test_the_recovered_version_is_provided_until_a_later_one_is_stable() -> None:
    harness = Harness()
    harness.recover(table(("s", "s")))
    harness.recover(table(("x", "x")), epoch=2, sources=("s", "s"))
    harness.server.provide(NeedVersion(2, "x", 0, 0))
    ((to, restored),) = messages_of(harness.actions(), Restore)
    assert (to, type(restored)) == ("x", Restore)
    harness.server.set_stable(Stable(2, 1, checkpoint=False))
    with pytest.raises(InvalidTransition, match="s has no version 0 of partition 0"):
        harness.server.provide(NeedVersion(2, "x", 0, 0))


def test_a_patch_that_arrives_before_the_version_it_builds_on_is_applied_with_it() -> None:
    harness = Harness("b")
    requested = harness.recover(table(("s", "x"), ("b", "")), epoch=2, clock=1, sources=("s", "x"))
    assert requested == [Send("s", NeedVersion(2, "b", 0, 1))]
    harness.server.patch(
        Patch(2, 0, 1, 2, Tally(8, 0), [RowDelta(None, np.full((1, 2), 5, np.float32))])
    )
    assert harness.actions() == []
    harness.server.restore(0, version(1, 3.0, 4), table(("s", "x"), ("b", "")))
    # The job may end here, so this patch must not wait for another one.
    assert harness.actions() == [
        Send(CONTROLLER, PartitionProgress("b", 2, 0, clock, backup=True)) for clock in (1, 2)
    ]


def test_a_missing_source_version_is_refused() -> None:
    with pytest.raises(InvalidTransition, match="s should have version 3 of partition 0"):
        Harness().recover(table(("s", "x")), 2, 3, ("s", "x"))


def test_the_last_version_is_collected_after_a_move() -> None:
    harness = Harness()
    harness.recover(table(("s", "s")))
    harness.server.collect(Collect(1, 0, 0))
    ((to, collected),) = messages_of(harness.actions(), Collected)
    assert (to, type(collected)) == (CONTROLLER, Collected)
    harness.server.move(Move(1, 0, "t", ""))
    harness.actions()
    harness.server.collect(Collect(1, 0, 0))
    assert harness.actions() == [Send("t", Collect(1, 0, 0))]
