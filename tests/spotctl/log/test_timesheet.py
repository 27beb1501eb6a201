"""When machines worked, from finished clocks."""

from __future__ import annotations

from agileml.core.events import Iteration
from agileml.join import node_name
from agileml.policies.policy import ClockSums
from pricing_data.units import SECOND
from spotctl.log.events import Moment, Stretch
from spotctl.log.timesheet import Timesheet
from spotctl.run.start.measured_run import _startups
from tests.spotctl.log.test_budget import granted, order, state
from tests.spotctl.run.worlds import START

SPEED = 60.0
"""A second is a minute of the market."""


def iteration(clock: int, seconds: float, *events: str, chunks: int = 10, redone: int = 0) -> Iteration:
    return Iteration(clock, seconds, 2, 1, 3, ClockSums(chunks), redone, events)


def at(minutes: float) -> int:
    return round(minutes * 60 * SECOND)


def test_nodes_that_are_ready_work_from_the_start_of_the_first_clock() -> None:
    event = Timesheet(SPEED).progressed(iteration(1, 4, "a ready", "b ready", "epoch 1 from version 0"), at(10), None)
    assert event.ready == (Moment("a", at(6)), Moment("b", at(6)))
    assert (event.clock, event.stage, event.left, event.redone) == (1, 2, (), ())


def test_a_node_is_logged_as_its_machine() -> None:
    machines = {node_name(machine): machine for machine in ("aws:us-east-1:i-1", "azure:eastus:group/m0")}
    events = ("aws.us-east-1.i-1 ready", "azure.eastus.group.m0 left")
    event = Timesheet(SPEED, machines.__getitem__).progressed(iteration(7, 4, *events), at(10), None)
    assert [moment.id for moment in (*event.ready, *event.left)] == list(machines.values())


def test_later_events_are_dated_to_the_middle_of_a_clock() -> None:
    events = (
        "c ready",
        "d warned: 2 s",
        "d left",
        "e lost: it went away",
        "x is not ready",
        "waiting for a reliable node",
    )
    event = Timesheet(SPEED).progressed(iteration(7, 4, *events), at(10), None)
    assert (event.ready, event.left) == ((Moment("c", at(8)),), (Moment("d", at(8)),))


def test_redone_work_takes_its_share_of_a_clock() -> None:
    sheet = Timesheet(SPEED)
    sheet.progressed(iteration(1, 4, chunks=10), at(4), None)
    event = sheet.progressed(iteration(2, 8, chunks=16, redone=30), at(12), None)
    # 30 chunks again and 10 of its own: three quarters of eight minutes.
    assert event.redone == (Stretch(at(6), at(12)),)


def test_a_pending_event_is_merged_into_the_next() -> None:
    sheet = Timesheet(SPEED)
    first = sheet.progressed(iteration(1, 4, "a ready"), at(4), None)
    second = sheet.progressed(iteration(2, 2, "b ready", redone=10), at(6), first)
    third = sheet.progressed(iteration(3, 2, "a left"), at(8), second)
    assert [one.id for one in third.ready] == ["a", "b"]
    assert third.left == (Moment("a", at(7)),)
    assert third.redone == (Stretch(at(5), at(6)),)
    assert sheet.progressed(iteration(4, 2), at(10), None).ready == ()


def test_a_machine_rented_during_a_clock_says_nothing_of_start_ups() -> None:
    """A clock that lost all machines is done by later ones, whose start-up was negative here."""
    sheet = Timesheet(SPEED).progressed(iteration(1, 10, "m1-0 ready", "m2-0 ready"), START + at(12), None)
    orders = ((0, order(1, 1, None, at(60))), (0, order(2, 1, None, at(60))))
    rented = ((at(1), granted(1, 1, at(1))), (at(8), granted(2, 1, at(8))))
    assert list(_startups(state(*orders, *rented, (at(12), sheet)))) == [at(1)]
