"""Schedules that are played in virtual time."""

from __future__ import annotations

import json

import pytest

from agileml.errors import BadArgument
from agileml.pipeline.schedule.schedules import (
    Pass,
    PipelineStep,
    ScheduleShape,
    orders,
    replicated_orders,
)
from agileml.pipeline.schedule.simulator import (
    StageTimes,
    play,
    timeline_page,
    trace_json,
)
from tests.agileml.pipeline.schedule.test_schedules import played


def test_two_one_one_needs_one_input_more_than_its_depth() -> None:
    """The first stage takes twice as long on twice the replicas, which synchronize after every
    round.
    """
    times = [StageTimes(2 / 3, 4 / 3), StageTimes(1 / 3, 2 / 3), StageTimes(1 / 3, 2 / 3)]
    speeds = [
        200 / play(replicated_orders([2, 1, 1], 200, extra), times).seconds for extra in (0, 1)
    ]
    assert speeds[0] == pytest.approx(0.66, abs=0.01)
    assert speeds[1] == pytest.approx(0.98, abs=0.01)


def test_transfers_take_a_link_in_turn_and_leave_compute_alone() -> None:
    shape = ScheduleShape("2bw", 2, 8, batches=6)
    lines = [[order] for order in orders(shape)]
    # Two inputs in flight go once round both stages and back over the link in 3 + 0.5 + 3 + 0.5
    # seconds.
    assert play(lines, [StageTimes(1, 2, send=0.5), StageTimes(1, 2)]).period() == pytest.approx(
        8 * 3.5
    )
    # The link is the slowest stage of this pipeline.
    assert play(lines, [StageTimes(1, 2, send=6.0), StageTimes(1, 2)]).period() >= 8 * 6.0


def test_a_timeline_shows_every_operation() -> None:
    run = played(ScheduleShape("flush", 2, 4))
    events = json.loads(trace_json(run))["traceEvents"]
    assert len(events) == 2 * (2 * 4 + 1)
    assert {event["name"] for event in events} >= {"F0", "B3", "U3"}
    page = timeline_page(run, "a <b>")
    assert page.count("<rect") == len(events)
    assert "a &lt;b&gt;" in page


def test_a_deadlock_names_the_stage() -> None:
    order = (PipelineStep(Pass.BACKWARD, 0), PipelineStep(Pass.FORWARD, 0))
    with pytest.raises(BadArgument, match="pipeline stage 1 waits forever for the input of B0"):
        play([[order], [order]], [StageTimes(1, 1)] * 2)
