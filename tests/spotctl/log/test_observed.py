"""What a run observed: the availability of spot machines, and when the machines of a training
worked.
"""

from __future__ import annotations

from agileml.core.events import Iteration
from agileml.join import node_name
from agileml.policies.stage import ClockSums
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.log import events as ev
from spotctl.log.events import Moment, Stretch
from spotctl.log.folding import NO_MACHINES, NO_QUOTA, fold
from spotctl.log.observed import Timesheet, availability_of
from spotctl.log.state import EVICTED, LogRow, RunState
from spotctl.run.start.earlier_runs import _startups
from tests.spotctl.log import test_budget as budget
from tests.spotctl.run.worlds import START

MARKET = Market("aws", "us-east-1", "us-east-1a", "p3.2xlarge")


def order(intent: int, machines: int = 2, bid: int | None = 10**9) -> ev.RentIntended:
    return ev.RentIntended(
        intent, MARKET, machines, bid, 10**9, 1.0, reliable=False, lease_until=9 * HOUR
    )


def granted(intent: int, count: int, at: int) -> ev.Rented:
    return ev.Rented(intent, tuple(ev.Granted(f"m-{intent}-{i}", at) for i in range(count)))


def state(*events: tuple[int, ev.Event], provider: str = "aws") -> RunState:
    began = (0, ev.RunBegan("job", provider, {}, "", 0))
    return fold(
        LogRow(i, "r", at, event) for i, (at, event) in enumerate((began, *events), start=1)
    )


def test_refusals_grants_evictions_and_returns_are_spans() -> None:
    run = state(
        (MINUTE, order(1)),
        (MINUTE, ev.RentRefused(1, NO_MACHINES, "sold out")),
        (3 * MINUTE, order(2)),
        (3 * MINUTE, granted(2, 1, 3 * MINUTE)),
        (HOUR, ev.MachineWarned("m-2-0", HOUR + 2 * MINUTE, "eviction", "a test")),
        (HOUR + 2 * MINUTE, ev.MachineEnded("m-2-0", HOUR + 2 * MINUTE, EVICTED)),
        (HOUR + 5 * MINUTE, order(3)),
        (HOUR + 5 * MINUTE, granted(3, 2, HOUR + 5 * MINUTE)),
        (2 * HOUR, ev.MachineEnded("m-3-0", 2 * HOUR, "returned")),
    )
    known = [
        (span.since, span.until, span.machines, span.wanted, span.ended)
        for span in availability_of(run, 3 * HOUR)
    ]
    assert known == [
        (MINUTE, MINUTE, 0, 2, "refused"),
        (3 * MINUTE, HOUR + 2 * MINUTE, 1, 2, "evicted"),
        (HOUR + 5 * MINUTE, 3 * HOUR, 2, 2, ""),
    ]
    assert {span.source for span in availability_of(run, 3 * HOUR)} == {"run r of job"}
    ended = state(
        (0, order(1, machines=1)),
        (0, granted(1, 1, 0)),
        (HOUR, ev.MachineEnded("m-1-0", HOUR, "returned")),
    )
    assert [span.ended for span in availability_of(ended, 3 * HOUR)] == ["returned"]


def test_quotas_and_on_demand_machines_say_nothing_about_spot() -> None:
    run = state(
        (0, order(1)),
        (0, ev.RentRefused(1, NO_QUOTA, "no quota")),
        (MINUTE, order(2, bid=None)),
        (MINUTE, granted(2, 2, MINUTE)),
        (2 * MINUTE, order(3)),
    )
    assert availability_of(run, HOUR) == ()


def test_a_replayed_market_has_capacity_whatever_the_price_does() -> None:
    assert (
        availability_of(state((0, order(1)), (0, granted(1, 2, 0)), provider="local"), HOUR) == ()
    )


SPEED = 60.0
"""A second is a minute of the market."""


def iteration(
    clock: int, seconds: float, *events: str, chunks: int = 10, redone: int = 0
) -> Iteration:
    return Iteration(clock, seconds, 2, 1, 3, ClockSums(chunks), redone, events)


def at(minutes: float) -> int:
    return round(minutes * 60 * SECOND)


def test_nodes_that_are_ready_work_from_the_start_of_the_first_clock() -> None:
    event = Timesheet(SPEED).progressed(
        iteration(1, 4, "a ready", "b ready", "epoch 1 from version 0"), at(10), None
    )
    assert event.ready == (Moment("a", at(6)), Moment("b", at(6)))
    assert (event.clock, event.stage, event.left, event.redone) == (1, 2, (), ())


def test_a_node_is_logged_as_its_machine() -> None:
    machines = {
        node_name(machine): machine for machine in ("aws:us-east-1:i-1", "azure:eastus:group/m0")
    }
    events = ("aws.us-east-1.i-1 ready", "azure.eastus.group.m0 left")
    event = Timesheet(SPEED, machines.__getitem__).progressed(
        iteration(7, 4, *events), at(10), None
    )
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
    sheet = Timesheet(SPEED).progressed(
        iteration(1, 10, "m1-0 ready", "m2-0 ready"), START + at(12), None
    )
    orders = ((0, budget.order(1, 1, None, at(60))), (0, budget.order(2, 1, None, at(60))))
    rented = ((at(1), budget.granted(1, 1, at(1))), (at(8), budget.granted(2, 1, at(8))))
    assert list(_startups(budget.state(*orders, *rented, (at(12), sheet)))) == [at(1)]
