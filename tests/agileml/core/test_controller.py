"""The controller by hand: events in, exactly these instructions out."""

from __future__ import annotations

import json

import pytest

from agileml.core.controller import Controller
from agileml.core.events import (
    ControllerInstruction,
    Failed,
    Finished,
    Implausible,
    Iteration,
    NodeLost,
    Remember,
    StopJob,
    Tick,
)
from agileml.core.members import NodePhase
from agileml.core.planned_changes import VERSIONS_PER_EPOCH as FIRST
from agileml.core.recovery import Mode
from agileml.core.roll_call import LEFT_BEHIND
from agileml.errors import InvalidTransition
from agileml.policies.stage import LearnedStage
from agileml.protocol.actions import Send
from agileml.protocol.messages import (
    Adopted,
    Broken,
    Collect,
    Collected,
    Drain,
    Drained,
    Enter,
    GiveShard,
    Heartbeat,
    Leave,
    Limit,
    Move,
    PartitionProgress,
    Recover,
    Restored,
    Route,
    Routed,
    Stable,
    Table,
    Taken,
    Tally,
    Version,
    Warned,
    WorkDone,
)
from tests.agileml.core.control import (
    BYTES,
    PLAN,
    committed,
    controller,
    handle,
    join,
    mode_of,
    running,
)


def test_a_node_joins_without_delaying_others() -> None:
    control = running("r", "t")
    sent = join(control, "u")
    # Two transient nodes per reliable node: stage 2, in which `t`, the longest running, serves and
    # `r` keeps backups.
    assert sent == [
        Send("u", Enter(1, Table(FIRST, ("r", "r"), ("", ""), ("r", "t", "r", "t")), 5, 0)),
        Send("r", Move(1, 0, "t", "r")),
        Send("r", Move(1, 1, "t", "r")),
        # Of two nodes with two shards, the one that no longer serves gives one to the new node.
        Send("r", GiveShard(1, 2, "u", now=False)),
    ]
    assert control.stages.stage == 2
    assert handle(control, Taken("t", 1, 0)) == []
    routes = Route(1, Table(FIRST + 2, ("t", "t"), ("r", "r"), ("r", "t", "r", "t")))
    assert handle(control, Taken("t", 1, 1)) == [Send(name, routes) for name in "rtu"]


def test_a_warned_node_hands_over_everything_drains_and_leaves() -> None:
    control = running("r", "t", "u")
    assert control.table == Table(FIRST, ("t", "t"), ("r", "r"), ("r", "t", "u", "t"))
    sent = handle(control, Warned("t", 120.0))
    # One transient node per reliable node: stage 1, so that the partitions move to their backups.
    assert sent == [
        Send("t", Move(1, 0, "r", "")),
        Send("t", Move(1, 1, "r", "")),
        Send("t", GiveShard(1, 1, "r", now=True)),
        Send("t", GiveShard(1, 3, "u", now=True)),
    ]
    assert handle(control, Taken("r", 1, 0), Adopted("r", 1, 1), Adopted("u", 1, 3)) == []
    routes = Route(1, Table(FIRST + 2, ("r", "r"), ("", ""), ("r", "r", "u", "u")))
    assert handle(control, Taken("r", 1, 1)) == [Send(name, routes) for name in "rtu"]
    assert handle(control, Routed("r", 1, FIRST + 2), Routed("u", 1, FIRST + 2)) == []
    assert handle(control, Routed("t", 1, FIRST + 2)) == [Send("t", Drain(1, ("r", "u")))]
    assert handle(control, Drained("t", 1)) == [Send("t", Leave(LEFT_BEHIND))]
    assert control.members["t"].phase is NodePhase.GONE
    assert (control.members.evictions, control.members.failures, control.epoch) == (1, 0, 1)
    # Losing its machine afterwards is no failure.
    assert handle(control, NodeLost("t", "gone")) == []
    assert (control.members.failures, control.epoch) == (0, 1)


def test_a_version_is_stable_once_all_backups_have_it() -> None:
    control = running("r", "t", "u")
    assert (
        handle(
            control,
            PartitionProgress("t", 1, 0, 1, backup=False),
            PartitionProgress("t", 1, 1, 1, backup=False),
        )
        == []
    )
    assert handle(control, PartitionProgress("r", 1, 0, 1, backup=True)) == []
    sent = handle(control, PartitionProgress("r", 1, 1, 1, backup=True))
    assert sent == [Send(name, Stable(1, 1, checkpoint=True)) for name in "rt"]
    assert control.clocks.stable == 1


def test_a_lost_active_server_rolls_all_nodes_back_to_the_backups() -> None:
    control = running("r", "t", "u", "v")
    assert control.table.owners == ("t", "u")
    committed(control, 1)
    # Clock 2 is committed, but not backed up.
    handle(
        control,
        PartitionProgress("t", 1, 0, 2, backup=False),
        PartitionProgress("u", 1, 1, 2, backup=False),
    )
    sent = handle(control, NodeLost("t", "gone"))
    # Two transient nodes are left; the half that serves is `u`. It gets the shard of `t`, too.
    table = Table(2 * FIRST, ("u", "u"), ("r", "r"), ("r", "u", "u", "v"))
    assert sent == [Send(name, Recover(2, 1, table, ("r", "r"), 5)) for name in "ruv"]
    assert (control.epochs.mode, control.members.failures) == (Mode.RECOVERING, 1)


def test_reports_of_an_earlier_epoch_are_ignored() -> None:
    control = running("r", "t", "u")
    handle(control, NodeLost("u", "gone"))
    before = control.table
    assert (
        handle(
            control, PartitionProgress("r", 1, 0, 4, backup=True), Taken("t", 1, 0), Drained("t", 1)
        )
        == []
    )
    assert (control.table, control.clocks.stable) == (before, 0)
    assert handle(control, Restored("r", 1), Restored("t", 1)) == []
    assert mode_of(control) is Mode.RECOVERING


def test_a_loss_during_recovery_starts_another_recovery() -> None:
    control = running("r", "t", "u", "v")
    committed(control, 1)
    handle(control, NodeLost("t", "gone"), Restored("r", 2))
    sent = handle(control, NodeLost("u", "gone"))
    assert {one.to for one in sent if isinstance(one, Send)} == {"r", "v"}
    (again, _) = (one.message for one in sent if isinstance(one, Send))
    assert isinstance(again, Recover)
    # No node has reported in epoch 2; the sources of version 1 still have it.
    assert (again.epoch, again.clock, again.sources) == (3, 1, ("r", "r"))


def test_without_a_reliable_node_a_job_waits_for_one() -> None:
    control = running("r", "t")
    assert handle(control, NodeLost("r", "gone")) == []
    assert mode_of(control) is Mode.GATHERING
    sent = join(control, "r2")
    assert [one.to for one in sent if isinstance(one, Send)] == ["t", "r2"]
    handle(control, Restored("t", 2), Restored("r2", 2))
    assert mode_of(control) is Mode.RUNNING


def test_a_node_declared_lost_is_told_to_leave() -> None:
    control = running("r", "t", "u")
    handle(control, NodeLost("u", "gone"))
    why = "this node was declared lost and is no longer part of the job"
    assert handle(control, Heartbeat("u")) == [Send("u", Leave(why, lost=True))]
    assert handle(control, Routed("unknown", 1, 1)) == [Send("unknown", Leave(why, lost=True))]


def test_a_heartbeat_may_arrive_before_the_hello_of_its_node() -> None:
    control = running("r", "t")
    assert handle(control, Heartbeat("u")) == []


def test_a_node_that_hangs_is_lost_although_it_sends_heartbeats() -> None:
    control = running("r", "t", "u", hang_timeout=30.0)
    handle(control, Heartbeat("u", 29.0, 1.0), Heartbeat("t", 140.0, 30.0))
    assert control.members.failures == 0
    sent = handle(control, Heartbeat("u", 31.0, 1.0))
    why = "it hangs: no progress for 31 s, and a step usually takes 1 s"
    assert Send("u", Leave(f"this node was declared lost: {why}", lost=True)) in sent
    assert [name for name in "rtu" if control.members[name].phase is NodePhase.DEAD] == ["u"]


def test_missing_heartbeats_are_a_loss() -> None:
    control = running("r", "t", "u", heartbeat_timeout=1.0)
    handle(control, Heartbeat("r"), Heartbeat("t"), Heartbeat("u"))
    handle(control, Heartbeat("r"), Heartbeat("t"), now=0.9)
    handle(control, Tick(), now=1.1)
    assert [name for name in "rtu" if control.members[name].phase is NodePhase.DEAD] == ["u"]


def test_the_last_clock_is_collected() -> None:
    control = running("r", "t", clocks=2)
    committed(control, 1)
    sent = committed(control, 2)
    assert [one for one in sent if isinstance(one, Send) and isinstance(one.message, Collect)] == [
        Send("r", Collect(1, 0, 2)),
        Send("r", Collect(1, 1, 2)),
    ]
    versions = tuple(Version(2, Tally(16, 0), []) for _ in range(2))
    assert handle(control, Collected("r", 1, 0, versions[0])) == []
    done = handle(control, Collected("r", 1, 1, versions[1]))
    last = Finished(2, versions, tally=control.clocks.decisions.tally(2))
    assert done == [
        last,
        Send("r", Leave("the job is done")),
        Send("t", Leave("the job is done")),
    ]
    assert handle(control, NodeLost("r", "gone"), Tick()) == []


def test_a_stopped_job_does_one_more_clock() -> None:
    control = running("r", "t", clocks=100, stop=lambda iteration: iteration.clock == 2)
    assert Send("r", Limit(1, 2)) not in committed(control, 1)
    sent = committed(control, 2)
    assert sent[-2:] == [Send("r", Limit(1, 3)), Send("t", Limit(1, 3))]
    assert control.last_clock.limit == 3


def test_a_job_that_is_interrupted_ends_with_its_last_stable_version() -> None:
    control = running("r", "t", clocks=100)
    committed(control, 1)
    # Clock 2 is committed by one server only.
    handle(control, PartitionProgress("r", 1, 0, 2, backup=False))
    sent = handle(control, StopJob())
    assert [one for one in sent if isinstance(one, Send)] == [
        *(Send(node, Limit(1, 1)) for node in "rt"),
        *(Send("r", Collect(1, partition, 1)) for partition in (0, 1)),
    ]
    # Pressed again, or told again to a restarted controller, it changes nothing.
    assert [one for one in handle(control, StopJob()) if isinstance(one, Send)] == []
    versions = tuple(Version(1, Tally(8, 0), []) for _ in range(2))
    handle(control, Collected("r", 1, 0, versions[0]))
    assert handle(control, Collected("r", 1, 1, versions[1]))[0] == Finished(
        1, versions, tally=control.clocks.decisions.tally(1)
    )


def test_a_job_that_is_interrupted_before_it_runs_ends_with_the_initial_model() -> None:
    control = controller()
    handle(control, StopJob())
    sent = join(control, "r", "t")
    assert {
        one.message.limit
        for one in sent
        if isinstance(one, Send) and isinstance(one.message, Recover)
    } == {0}
    sent = handle(control, Restored("r", 1), Restored("t", 1))
    assert {
        one.message.clock
        for one in sent
        if isinstance(one, Send) and isinstance(one.message, Collect)
    } == {0}


def test_an_iteration_lists_the_events_since_the_last_one() -> None:
    control = running("r", "t")
    handle(control, Warned("t", 5.0))
    iterations = [one for one in committed(control, 1) if isinstance(one, Iteration)]
    assert iterations[0].events[-1] == "t warned: 5 s"
    assert (
        iterations[0].clock,
        iterations[0].stage,
        iterations[0].reliable,
        iterations[0].transient,
    ) == (1, 1, 1, 0)


def test_a_learned_stage_is_logged_with_its_reason_and_survives_a_restart() -> None:
    control = controller(clocks=9, policy=LearnedStage(skipped=0, needed=1))
    join(control, "r", "t")
    handle(control, Restored("r", 1), Restored("t", 1))
    assert control.stages.stage == 1
    committed(control, 1)
    written: list[ControllerInstruction] = control.handle(
        WorkDone("r", 1, 2, PLAN.accept_all(2).chunks, 0.1, 5, 0.0, 0), 1.0
    )
    for partition in range(2):
        written += control.handle(
            PartitionProgress("r", 1, partition, 2, backup=False, pulled_bytes=5), 1.0
        )
    assert control.stages.stage == 2
    assert [one for one in written if isinstance(one, Send) and isinstance(one.message, Move)] == [
        Send("r", Move(1, partition, "t", "r")) for partition in range(2)
    ]
    handle(control, *(Taken("t", 1, partition) for partition in range(2)))
    [line] = [one for one in committed(control, 3) if isinstance(one, Iteration)]
    reason = "100% of the traffic goes through reliable nodes, which stage 2 may relieve"
    assert f"stage 2 after stage 1: {reason}" in line.events
    [remembered] = [one.record for one in written if isinstance(one, Remember)]
    learned = remembered["learned"]
    assert learned == [(0, 1, 2.0)]
    record = json.loads(json.dumps(remembered))
    assert Controller.resume(PLAN, BYTES, control.settings, record, 2.0).stages.record() == {
        "learned": learned
    }


def test_a_broken_node_ends_the_job() -> None:
    control = running("r", "t")
    sent = handle(control, Broken("t", "app: clock 3: NaN"))
    assert sent[0] == Failed("app: clock 3: NaN, on node t")
    assert mode_of(control) is Mode.OVER


def test_an_unexpected_event_is_refused_with_the_recent_events() -> None:
    control = running("r", "t")
    with pytest.raises(Implausible, match=r"^Taken of what is not its own"):
        handle(control, Taken("t", 1, 1))
    with pytest.raises(
        InvalidTransition, match=r"has no rule for 'nonsense'.*epoch 1 from version 0"
    ):
        handle(control, "nonsense")


def test_a_job_does_not_end_with_an_earlier_version_than_the_stable_one() -> None:
    """Servers forget what came before it. Here the reports of backups come before those of the
    servers.
    """
    control = running("r", "t", "u", clocks=9, stop=lambda iteration: iteration.clock == 1)
    assert set(control.table.backups) == {"r"}
    for clock in (1, 2, 3):
        for partition in range(2):
            handle(control, PartitionProgress("r", 1, partition, clock, backup=True))
    assert control.clocks.stable == 3
    handle(control, WorkDone("t", 1, 1, 8, 0.1, 0, 0.0, 0))
    for partition, owner in enumerate(control.table.owners):
        handle(control, PartitionProgress(owner, 1, partition, 1, backup=False))
    assert control.last_clock.limit == 3
