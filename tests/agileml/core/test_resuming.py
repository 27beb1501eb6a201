"""Another controller takes over: it resumes from the record and from what the nodes hold."""

from __future__ import annotations

from agileml.core.controller import Controller
from agileml.core.events import (
    NodeLost,
    Remember,
)
from agileml.core.recovery import Mode
from agileml.protocol.actions import Send
from agileml.protocol.messages import (
    Adopted,
    Hello,
    Recover,
    Taken,
    Warned,
)
from tests.agileml.core.control import BYTES, PLAN, committed, handle, join, mode_of, running


def restarted(control: Controller) -> Controller:
    (record,) = (
        one.record
        for one in control.handle(Hello("n", False, ""), 0.0)
        if isinstance(one, Remember)
    )
    return Controller.resume(PLAN, BYTES, control.settings, record, 0.0)


def test_a_restarted_controller_rolls_back_to_the_common_version() -> None:
    control = running("r", "t", "u")
    committed(control, 1)
    after = restarted(control)
    assert (after.epochs.mode, after.epoch, after.table) == (Mode.RESUMING, 1, control.table)
    # Both partitions have version 2, but partition 1 only on `t`, which may be lost; version 1 is
    # safe.
    holding = [((0, 1), (0, 2), (1, 1)), ((0, 2), (1, 1), (1, 2)), ((0, 2),)]
    answers = [
        Hello(name, name == "r", "", 1, 1, held) for name, held in zip("rtu", holding, strict=True)
    ][::-1]
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
    assert control.last_clock.limit == 2
    after = restarted(control)
    # The nodes had not received the limit and have worked beyond it.
    held = tuple((partition, clock) for partition in (0, 1) for clock in (4, 5))
    handle(after, *(Hello(name, name == "r", "", 1, 4, held) for name in "rtu"))
    assert (after.clocks.stable, after.last_clock.limit) == (5, 5)


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
    assert after.clocks.stable == 1
