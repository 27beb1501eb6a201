"""The start of a job: nodes that join, are refused, are warned or are lost before the first
clock."""

from __future__ import annotations

from agileml.core.events import Failed, NodeLost, Tick
from agileml.core.members import MAX_OUT, OUT
from agileml.core.planned_changes import VERSIONS_PER_EPOCH as FIRST
from agileml.core.recovery import INIT, Mode
from agileml.core.roll_call import EVICTED_EARLY
from agileml.protocol.actions import Send
from agileml.protocol.messages import (
    Enter,
    Hello,
    Leave,
    Ready,
    Recover,
    Restored,
    Table,
    Warned,
)
from tests.agileml.core.control import controller, handle, join, mode_of, running


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
    assert control.members.names(*OUT) == ["t"]


def test_a_job_starts_without_a_node_that_is_refused() -> None:
    control = controller(transient=2, code="abc")
    for name in "rt":
        handle(control, Hello(name, name == "r", "abc"), Ready(name))
    assert mode_of(control) is Mode.GATHERING
    sent = handle(control, Hello("u", False, "xyz"))
    assert [
        one.to for one in sent if isinstance(one, Send) and isinstance(one.message, Recover)
    ] == ["r", "t"]
    # It may say so again before it leaves.
    assert [type(one) for one in handle(control, Hello("u", False, "xyz"))] == [Send]


def test_a_node_warned_before_it_joined_the_epoch_leaves_at_once() -> None:
    control = running("r", "t")
    handle(control, Hello("u", False, ""))
    assert handle(control, Warned("u", 5.0)) == [Send("u", Leave(EVICTED_EARLY))]
    assert control.members.evictions == 1


def test_a_node_whose_hello_was_lost_may_send_another() -> None:
    control = running("r")
    assert handle(control, Ready("t")) == []
    handle(control, Hello("t", False, ""))
    assert [
        one.message
        for one in handle(control, Ready("t"))
        if isinstance(one, Send) and one.to == "t"
    ] == [Enter(1, control.table, 5, 0)]


def test_a_job_starts_without_a_node_that_is_warned_last() -> None:
    control = controller(transient=2)
    join(control, "r", "t")
    handle(control, Hello("u", False, ""))
    assert mode_of(control) is Mode.GATHERING
    sent = handle(control, Warned("u", 5.0))
    assert [(type(one.message), one.to) for one in sent if isinstance(one, Send)] == [
        (Leave, "u"),
        (Recover, "r"),
        (Recover, "t"),
    ]
    assert (control.members.evictions, control.members.failures) == (1, 0)


def test_a_node_warned_before_its_hello_counts_as_joined_and_is_told_to_leave() -> None:
    control = controller()
    join(control, "r")
    sent = handle(control, Warned("t", 5.0))
    assert [
        one.to for one in sent if isinstance(one, Send) and isinstance(one.message, Recover)
    ] == ["r"]
    assert handle(control, Hello("t", False, "")) == [Send("t", Leave(EVICTED_EARLY))]
    assert handle(control, Ready("t")) != []
    # Its machine goes as announced.
    assert handle(control, NodeLost("t", "gone")) == []
    assert (control.members.evictions, control.members.failures) == (1, 0)


def test_nodes_that_were_lost_and_forgotten_count_as_joined() -> None:
    control = controller(transient=2 * MAX_OUT)
    join(control, "r", "t")
    for number in range(2 * MAX_OUT - 1):
        assert mode_of(control) is Mode.GATHERING
        handle(control, NodeLost(f"t{number}", "gone"))
    assert mode_of(control) is Mode.RECOVERING


# -- nodes that people start -----------------------------------------------------------------------


def test_a_job_that_needs_all_its_nodes_waits_for_others_in_place_of_those_that_left() -> None:
    control = controller(transient=2, needs_all=True)
    join(control, "r", "t")
    handle(control, NodeLost("t", "killed"))
    join(control, "u")
    handle(control, Warned("u", 5.0))
    join(control, "v")
    assert mode_of(control) is Mode.GATHERING
    sent = join(control, "w")
    assert [
        one.to for one in sent if isinstance(one, Send) and isinstance(one.message, Recover)
    ] == ["r", "v", "w"]


def test_a_job_says_which_nodes_have_not_come() -> None:
    control = controller(
        reliable=2, transient=2, needs_all=True, may_lack_nodes=True, startup_timeout=60.0
    )
    join(control, "r", "t")
    handle(control, NodeLost("t", "killed"))
    for now in (100.0, 159.0):
        control.members["r"].last_heard = now
        assert handle(control, Tick(), now=now) == []
    control.members["r"].last_heard = 161.0
    failed, *told = handle(control, Tick(), now=161.0)
    assert failed == Failed(
        "training did not start within 60 s: of 2+2 nodes, 1+0 have joined (r); missing: 1 "
        "reliable and 2 transient; r ready; t ready; t lost: killed"
    )
    assert [type(one.message) for one in told if isinstance(one, Send)] == [Leave]


def test_a_job_whose_fleet_may_lack_nodes_waits_once_for_each_but_not_for_ever() -> None:
    control = controller(transient=2, may_lack_nodes=True, startup_timeout=60.0)
    join(control, "r", "t")
    for now in (0.0, 61.0):
        for name in "rt":
            control.members[name].last_heard = now
        answer = handle(control, Tick(), now=now)
    assert "of 1+2 nodes, 1+1 have joined (r, t); missing: 1 transient" in str(answer[0])
    control = controller(transient=2, may_lack_nodes=True)
    join(control, "r", "t")
    sent = handle(control, NodeLost("u", "its machine is gone"))
    assert [type(one.message) for one in sent if isinstance(one, Send)] == [Recover, Recover]


def test_a_job_whose_nodes_are_loading_goes_on_waiting() -> None:
    control = controller(needs_all=True, may_lack_nodes=True, startup_timeout=60.0)
    handle(control, Hello("r", True, ""), Hello("t", False, ""), Ready("t"))
    for now in (0.0, 100.0):
        for name in "rt":
            control.members[name].last_heard = now
        assert handle(control, Tick(), now=now) == []
    assert handle(control, Ready("r")) != []
    assert mode_of(control) is Mode.RECOVERING
