"""The controller by hand: events in, exactly these instructions out; and events in any order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agileml.core.assignment import VERSIONS_PER_EPOCH as FIRST
from agileml.core.controller import LEFT_BEHIND, Controller
from agileml.core.controller_state import Mode
from agileml.core.events import (
    ControllerSettings,
    Failed,
    Finished,
    Instruction,
    Iteration,
    NodeLost,
    Remember,
    Tick,
)
from agileml.core.members import IN_EPOCH, NodePhase
from agileml.core.recovery import INIT
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
    Hello,
    Leave,
    Limit,
    Move,
    PartitionProgress,
    Ready,
    Recover,
    Restored,
    Route,
    Routed,
    Saved,
    Stable,
    Table,
    Taken,
    Tally,
    Version,
    Warned,
    WorkDone,
)
from agileml.work.plan import WorkPlan

PLAN = WorkPlan((2, 2, 2, 2), 0, 1)
BYTES = (8, 8)


def controller(reliable: int = 1, transient: int = 1, clocks: int = 5, **options: Any) -> Controller:  # noqa: ANN401
    return Controller(PLAN, BYTES, ControllerSettings(reliable, transient, clocks, **options))


def mode_of(control: Controller) -> Mode:
    return control.mode


def without_records(instructions: list[Instruction]) -> list[Instruction]:
    """All instructions but `Remember`, which always comes first."""
    assert not any(isinstance(one, Remember) for one in instructions[1:])
    return [one for one in instructions if not isinstance(one, Remember)]


def handle(control: Controller, *events: object, now: float = 0.0) -> list[Instruction]:
    """The instructions that follow from these events."""
    return [one for event in events for one in without_records(control.handle(event, now))]


def join(control: Controller, *names: str) -> list[Instruction]:
    for name in names:
        handle(control, Hello(name, name.startswith("r"), ""))
    return handle(control, *(Ready(name) for name in names))


def running(*names: str, clocks: int = 5, **options: Any) -> Controller:  # noqa: ANN401
    """A running job of these nodes at version 0."""
    control = controller(sum(name.startswith("r") for name in names), sum(name[0] == "t" for name in names), clocks)
    control.settings = ControllerSettings(control.settings.reliable, control.settings.transient, clocks, **options)
    join(control, *names)
    handle(control, *(Restored(name, 1) for name in names))
    assert mode_of(control) is Mode.RUNNING
    return control


def committed(control: Controller, clock: int, epoch: int = 1) -> list[Instruction]:
    """All servers and backups report a clock."""
    last = handle(control, WorkDone("r", epoch, clock, PLAN.accept_all(clock).chunks, 0.1, 0, 0.0, 0))
    for partition, (owner, backup) in enumerate(zip(control.table.owners, control.table.backups, strict=True)):
        if backup:
            last += handle(control, PartitionProgress(backup, epoch, partition, clock, backup=True))
        last += handle(control, PartitionProgress(owner, epoch, partition, clock, backup=False))
    return last


def test_a_job_starts_when_all_initial_nodes_are_ready() -> None:
    control = controller()
    assert handle(control, Hello("r", True, ""), Hello("t", False, ""), Ready("t")) == []
    table = Table(FIRST, ("r", "r"), ("", ""), ("r", "t", "r", "t"))
    recover = Recover(1, 0, table, (INIT, INIT), 5)
    assert handle(control, Ready("r")) == [Send("r", recover), Send("t", recover)]
    assert mode_of(control) is Mode.RECOVERING
    assert handle(control, Restored("r", 1)) == []
    assert mode_of(control) is Mode.RECOVERING
    handle(control, Restored("t", 1))
    assert mode_of(control) is Mode.RUNNING


def test_a_node_lost_before_its_hello_counts_as_joined() -> None:
    control = controller(transient=2)
    join(control, "r", "t")
    assert mode_of(control) is Mode.GATHERING
    sent = handle(control, NodeLost("u", "gone"))
    assert [type(one.message) for one in sent if isinstance(one, Send)] == [Recover, Recover]


def test_a_node_with_other_code_is_refused_with_both_versions() -> None:
    control = controller(code="abc")
    (sent,) = handle(control, Hello("t", False, "xyz"))
    assert sent == Send("t", Leave("t runs version xyz of the job's code, but the job runs abc"))
    assert control.members.get("t") is None


def test_a_node_joins_without_delaying_others() -> None:
    control = running("r", "t")
    sent = join(control, "u")
    # Two transient nodes per reliable node: stage 2, in which `t`, the longest running, serves and `r` keeps backups.
    assert sent == [
        Send("u", Enter(1, Table(FIRST, ("r", "r"), ("", ""), ("r", "t", "r", "t")), 5, 0)),
        Send("r", Move(1, 0, "t", "r")),
        Send("r", Move(1, 1, "t", "r")),
    ]
    assert control.stage == 2
    assert handle(control, Taken("t", 1, 0)) == []
    routes = Route(1, Table(FIRST + 2, ("t", "t"), ("r", "r"), ("r", "t", "r", "t")))
    assert handle(control, Taken("t", 1, 1)) == [Send(name, routes) for name in "rtu"]


def test_a_warned_node_hands_over_everything_drains_and_leaves() -> None:
    control = running("r", "t", "u")
    assert control.table == Table(FIRST, ("t", "t"), ("r", "r"), ("r", "t", "u", "r"))
    sent = handle(control, Warned("t", 120.0))
    # One transient node per reliable node: stage 1, so that the partitions move to their backups.
    assert sent == [
        Send("t", Move(1, 0, "r", "")),
        Send("t", Move(1, 1, "r", "")),
        Send("t", GiveShard(1, 1, "u", now=True)),
    ]
    assert handle(control, Taken("r", 1, 0), Adopted("u", 1, 1)) == []
    routes = Route(1, Table(FIRST + 2, ("r", "r"), ("", ""), ("r", "u", "u", "r")))
    assert handle(control, Taken("r", 1, 1)) == [Send(name, routes) for name in "rtu"]
    assert handle(control, Routed("r", 1, FIRST + 2), Routed("u", 1, FIRST + 2)) == []
    assert handle(control, Routed("t", 1, FIRST + 2)) == [Send("t", Drain(1, ("r", "u")))]
    assert handle(control, Drained("t", 1)) == [Send("t", Leave(LEFT_BEHIND))]
    assert control.members["t"].phase is NodePhase.GONE
    assert (control.evictions, control.failures, control.epoch) == (1, 0, 1)
    # Losing its machine afterwards is no failure.
    assert handle(control, NodeLost("t", "gone")) == []
    assert (control.failures, control.epoch) == (0, 1)


def test_a_node_warned_before_it_joined_the_epoch_leaves_at_once() -> None:
    control = running("r", "t")
    handle(control, Hello("u", False, ""))
    assert handle(control, Warned("u", 5.0)) == [Send("u", Leave("evicted before it joined the epoch"))]
    assert control.evictions == 1


def test_a_version_is_stable_once_all_backups_have_it() -> None:
    control = running("r", "t", "u")
    assert (
        handle(control, PartitionProgress("t", 1, 0, 1, backup=False), PartitionProgress("t", 1, 1, 1, backup=False))
        == []
    )
    assert handle(control, PartitionProgress("r", 1, 0, 1, backup=True)) == []
    sent = handle(control, PartitionProgress("r", 1, 1, 1, backup=True))
    assert sent == [Send(name, Stable(1, 1, checkpoint=False)) for name in "rt"]
    assert control.stable == 1


def test_a_checkpoint_is_requested_every_n_clocks_and_counts_when_complete() -> None:
    control = running("r", "t", checkpoint_every=2)
    assert Send("r", Stable(1, 1, checkpoint=False)) in committed(control, 1)
    assert Send("r", Stable(1, 2, checkpoint=True)) in committed(control, 2)
    handle(control, Saved("r", 1, 0, 2))
    assert control.checkpoint == -1
    handle(control, Saved("r", 1, 1, 2))
    assert control.checkpoint == 2


def test_no_checkpoint_is_requested_while_one_is_written_unless_it_is_overdue() -> None:
    control = running("r", "t", clocks=20, checkpoint_every=1)
    requested = []
    for clock in range(1, 12):
        requested += [clock] * (Send("r", Stable(1, clock, checkpoint=True)) in committed(control, clock))
        if clock == 3:
            handle(control, Saved("r", 1, 0, 1), Saved("r", 1, 1, 1))
    assert requested == [1, 4, 8]


def test_a_checkpoint_never_mixes_versions_from_before_and_after_a_rollback() -> None:
    control = running("r", "t", checkpoint_every=2)
    committed(control, 1)
    committed(control, 2)
    handle(control, Saved("r", 1, 0, 2))
    handle(control, NodeLost("r", "killed"))
    assert mode_of(control) is Mode.GATHERING
    join(control, "r2")
    assert (control.epoch, control.stable) == (2, 0)
    handle(control, *(Restored(name, 2) for name in ("r2", "t")))
    handle(control, Saved("r2", 2, 1, 2))
    assert control.checkpoint == -1
    handle(control, Saved("r2", 2, 0, 2))
    assert control.checkpoint == 2


def test_a_lost_active_server_rolls_all_nodes_back_to_the_backups() -> None:
    control = running("r", "t", "u", "v")
    assert control.table.owners == ("t", "u")
    committed(control, 1)
    # Clock 2 is committed, but not backed up.
    handle(control, PartitionProgress("t", 1, 0, 2, backup=False), PartitionProgress("u", 1, 1, 2, backup=False))
    sent = handle(control, NodeLost("t", "gone"))
    # Two transient nodes are left; the half that serves is `u`. The shard of `t` goes to the node with the fewest.
    table = Table(2 * FIRST, ("u", "u"), ("r", "r"), ("r", "r", "u", "v"))
    assert sent == [Send(name, Recover(2, 1, table, ("r", "r"), 5)) for name in "ruv"]
    assert (control.mode, control.failures) == (Mode.RECOVERING, 1)


def test_reports_of_an_earlier_epoch_are_ignored() -> None:
    control = running("r", "t", "u")
    handle(control, NodeLost("u", "gone"))
    before = control.table
    assert handle(control, PartitionProgress("r", 1, 0, 4, backup=True), Taken("t", 1, 0), Drained("t", 1)) == []
    assert (control.table, control.stable) == (before, 0)
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
    assert handle(control, Heartbeat("u")) == [Send("u", Leave(why))]
    assert handle(control, Heartbeat("unknown")) == [Send("unknown", Leave(why))]


def test_a_node_whose_hello_was_lost_may_send_another() -> None:
    control = running("r")
    assert handle(control, Ready("t"), Warned("t", 1.0)) == []
    handle(control, Hello("t", False, ""))
    assert [one.message for one in handle(control, Ready("t")) if isinstance(one, Send) and one.to == "t"] == [
        Enter(1, control.table, 5, 0)
    ]


def test_missing_heartbeats_are_a_loss() -> None:
    control = running("r", "t", "u", heartbeat_timeout=1.0)
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
    assert done == [Finished(2, versions), Send("r", Leave("the job is done")), Send("t", Leave("the job is done"))]
    assert handle(control, NodeLost("r", "gone"), Tick()) == []


def test_a_stopped_job_does_one_more_clock() -> None:
    control = running("r", "t", clocks=100, stop=lambda iteration: iteration.clock == 2)
    assert Send("r", Limit(1, 2)) not in committed(control, 1)
    sent = committed(control, 2)
    assert sent[-2:] == [Send("r", Limit(1, 3)), Send("t", Limit(1, 3))]
    assert control.limit == 3


def test_an_iteration_lists_the_events_since_the_last_one() -> None:
    control = running("r", "t")
    handle(control, Warned("t", 5.0))
    iterations = [one for one in committed(control, 1) if isinstance(one, Iteration)]
    assert iterations[0].events[-1] == "t warned: 5 s"
    assert (iterations[0].clock, iterations[0].stage, iterations[0].reliable, iterations[0].transient) == (1, 1, 1, 0)


def test_a_learned_stage_is_logged_with_its_reason_and_survives_a_restart() -> None:
    control = controller(clocks=9, policy=LearnedStage(skipped=0, needed=1))
    join(control, "r", "t")
    handle(control, Restored("r", 1), Restored("t", 1))
    assert control.stage == 1
    committed(control, 1)
    written: list[Instruction] = control.handle(WorkDone("r", 1, 2, PLAN.accept_all(2).chunks, 0.1, 5, 0.0, 0), 1.0)
    for partition in range(2):
        written += control.handle(PartitionProgress("r", 1, partition, 2, backup=False, pulled_bytes=5), 1.0)
    assert control.stage == 2
    assert [one for one in written if isinstance(one, Send) and isinstance(one.message, Move)] == [
        Send("r", Move(1, partition, "t", "r")) for partition in range(2)
    ]
    handle(control, *(Taken("t", 1, partition) for partition in range(2)))
    [line] = [one for one in committed(control, 3) if isinstance(one, Iteration)]
    reason = "100% of the traffic goes through reliable nodes, which stage 2 may relieve"
    assert f"stage 2 after stage 1: {reason}" in line.events
    [learned] = [one.record["learned"] for one in written if isinstance(one, Remember)]
    assert learned == [(0, 1, 2.0)]
    record = json.loads(json.dumps({**control._remember().record, "learned": learned}))
    assert Controller.resume(PLAN, BYTES, control.settings, record, 2.0)._remember().record["learned"] == learned


def test_a_broken_node_ends_the_job() -> None:
    control = running("r", "t")
    sent = handle(control, Broken("t", "app: clock 3: NaN"))
    assert sent[0] == Failed("app: clock 3: NaN")
    assert mode_of(control) is Mode.OVER


def test_an_unexpected_event_is_refused_with_the_recent_events() -> None:
    control = running("r", "t")
    with pytest.raises(InvalidTransition, match=r"received partition 1.*epoch 1 from version 0"):
        handle(control, Taken("t", 1, 1))
    with pytest.raises(InvalidTransition, match=r"has no rule for 'nonsense'.*epoch 1 from version 0"):
        handle(control, "nonsense")


# -- another controller takes over -------------------------------------------------------------------------------------


def restarted(control: Controller) -> Controller:
    (record,) = (one.record for one in control.handle(Hello("n", False, ""), 0.0) if isinstance(one, Remember))
    return Controller.resume(PLAN, BYTES, control.settings, record, 0.0)


def test_a_restarted_controller_rolls_back_to_the_common_version() -> None:
    control = running("r", "t", "u")
    committed(control, 1)
    after = restarted(control)
    assert (after.mode, after.epoch, after.table) == (Mode.RESUMING, 1, control.table)
    # Both partitions have version 2, but partition 1 only on `t`, which may be lost; version 1 is safe.
    holding = [((0, 1), (0, 2), (1, 1)), ((0, 2), (1, 1), (1, 2)), ((0, 2),)]
    answers = [Hello(name, name == "r", "", 1, 1, held) for name, held in zip("rtu", holding, strict=True)][::-1]
    assert handle(after, *answers[:2]) == []
    sent = handle(after, answers[2])
    assert isinstance(sent[0], Send)
    assert isinstance(sent[0].message, Recover)
    assert (sent[0].message.clock, sent[0].message.sources) == (1, ("r", "r"))
    assert [one.to for one in sent if isinstance(one, Send)] == ["r", "t", "u"]


def test_a_restarted_controller_does_not_wait_for_lost_nodes() -> None:
    after = restarted(running("r", "t", "u"))
    handle(after, Hello("r", True, "", 1, 0, ((0, 0), (1, 0))), Hello("t", False, "", 1, 0, ()))
    assert mode_of(after) is Mode.RESUMING
    handle(after, NodeLost("u", "gone"))
    assert mode_of(after) is Mode.RECOVERING
    assert after.epoch == 2


def test_a_restarted_controller_waits_for_a_reliable_node() -> None:
    control = running("r", "t", "u")
    committed(control, 1)
    handle(control, NodeLost("u", "gone"))
    after = restarted(control)
    handle(after, NodeLost("r", "gone"), Hello("t", False, "", 2, 1, ()))
    assert mode_of(after) is Mode.GATHERING
    sent = join(after, "r2")
    assert {one.to for one in sent if isinstance(one, Send)} == {"t", "r2"}
    assert mode_of(after) is Mode.RECOVERING


def test_a_stopped_job_ends_at_the_clock_it_has_reached() -> None:
    control = running("r", "t", "u", clocks=100, stop=lambda iteration: iteration.clock == 1)
    committed(control, 1)
    assert control.limit == 2
    after = restarted(control)
    # The nodes had not received the limit and have worked beyond it.
    held = tuple((partition, clock) for partition in (0, 1) for clock in (4, 5))
    handle(after, *(Hello(name, name == "r", "", 1, 4, held) for name in "rtu"))
    assert (after.stable, after.limit) == (5, 5)


def test_reports_of_moves_are_ignored_while_waiting_for_a_reliable_node() -> None:
    control = running("r", "t", "u")
    handle(control, Warned("t", 60.0), NodeLost("u", "gone"), NodeLost("r", "gone"))
    assert mode_of(control) is Mode.GATHERING
    assert handle(control, Taken("t", control.epoch, 0), Adopted("t", control.epoch, 0)) == []


def test_versions_held_from_an_earlier_epoch_count_up_to_the_start_of_the_last() -> None:
    control = running("r", "t", "u")
    committed(control, 1)
    handle(control, NodeLost("u", "gone"))
    after = restarted(control)
    stale = ((0, 0), (0, 1), (0, 7), (1, 0), (1, 1), (1, 7))
    handle(after, Hello("r", True, "", 1, 1, stale), Hello("t", False, "", 1, 1, stale))
    assert after.stable == 1


# -- any order of events -----------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["r0", "r1", "t0", "t1", "t2", "t3"])
EPOCHS = st.integers(1, 4)
SMALL = st.integers(0, 1)
CLOCKS = st.integers(0, 6)
EVENTS = st.one_of(
    st.builds(lambda name: Hello(name, name[0] == "r", ""), NAMES),
    st.builds(Ready, NAMES),
    st.builds(Heartbeat, NAMES),
    st.builds(Warned, NAMES, st.just(5.0)),
    st.builds(NodeLost, NAMES, st.just("gone")),
    st.just(Tick()),
    st.builds(Restored, NAMES, EPOCHS),
    st.builds(Routed, NAMES, EPOCHS, st.integers(1, 8)),
    st.builds(Drained, NAMES, EPOCHS),
    st.builds(PartitionProgress, NAMES, EPOCHS, SMALL, CLOCKS, st.booleans()),
    st.builds(Taken, NAMES, EPOCHS, SMALL),
    st.builds(Adopted, NAMES, EPOCHS, st.integers(0, 3)),
    st.builds(WorkDone, NAMES, EPOCHS, st.integers(1, 6), st.integers(1, 8), *[st.just(0)] * 4),
    st.builds(Saved, NAMES, EPOCHS, SMALL, CLOCKS),
)


def check(control: Controller) -> None:
    table = control.table
    placed = {*table.owners, *table.backups, *table.workers} - {""}
    if control.mode in (Mode.RUNNING, Mode.RECOVERING):
        assert all(table.owners)
        assert all(table.workers)
        assert all(control.members.alive(name) for name in placed)
        assert all(control.members[name].phase is not NodePhase.DRAINING for name in placed)
        assert control.members.names(*IN_EPOCH)
    assert control.stable <= control.limit
    assert all(backup != owner for owner, backup in zip(table.owners, table.backups, strict=True) if backup)


@settings(max_examples=150)
@given(st.integers(1, 2), st.integers(0, 3), st.lists(EVENTS, min_size=5, max_size=60))
def test_any_order_of_events_leaves_a_valid_state_or_raises_with_the_recent_events(
    reliable: int, transient: int, events: list[object]
) -> None:
    control = controller(reliable, transient)
    join(control, *[f"r{n}" for n in range(reliable)], *[f"t{n}" for n in range(transient)])
    for event in events:
        stable, epoch = control.stable, control.epoch
        try:
            control.handle(event, 0.0)
        except InvalidTransition as error:
            if "recent events" not in str(error):
                raise
            return
        check(control)
        assert control.epoch > epoch or control.stable >= stable
