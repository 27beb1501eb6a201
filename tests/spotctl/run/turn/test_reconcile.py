"""Reconciling what is wanted with what is held: cases solved by hand."""

from __future__ import annotations

import pytest

from bidbrain.strategies.base import Decision, Return
from pricing_data.units import HOUR, MINUTE
from spotctl.clouds.link import LeaseTimes
from spotctl.log import events as ev
from spotctl.log.folding import fold
from spotctl.log.state import RunState
from spotctl.run.turn import reconcile
from tests.spotctl.log.test_budget import granted, order, state
from tests.spotctl.run.worlds import START

LEASE_TIMES = LeaseTimes(startup=2 * MINUTE)
NOW = START + HOUR


def held(*more: tuple[int, ev.Event], bid: int | None = 80_000_000) -> RunState:
    began = ev.RunBegan("job", "fake", {}, "", 0)
    return state((0, began), (0, order(1, 1, bid, 2 * HOUR)), (0, granted(1, 1)), *more)


@pytest.mark.parametrize(
    ("share_left", "expected"),
    # After an hour, 1/61 left takes one more minute, and 1/21 three.
    [(1 / 61, True), (1 / 21, False), (1.0, False)],
)
def test_nothing_is_rented_that_would_come_too_late(share_left: float, expected: bool) -> None:
    assert reconcile.nearly_done(held(), share_left, NOW, LEASE_TIMES) is expected


def test_a_run_is_nearly_done_only_with_machines_that_stay() -> None:
    soon = START + HOUR + MINUTE // 2
    warned = (60, ev.MachineWarned("m1-0", soon, "eviction", "fake"))
    returning = (60, ev.ReturnIntended(2, ("m1-0",), "enough"))
    assert not reconcile.nearly_done(held(warned), 1 / 61, NOW, LEASE_TIMES)
    assert not reconcile.nearly_done(held(returning), 1 / 61, NOW, LEASE_TIMES)
    assert not reconcile.nearly_done(held(bid=None), 1 / 61, NOW, LEASE_TIMES), (
        "reliable machines alone are slow"
    )
    assert not reconcile.nearly_done(fold(()), 1 / 61, NOW, LEASE_TIMES)
    assert not reconcile.nearly_done(held(), 1 / 61, NOW, LEASE_TIMES, 2), "a gang needs two"
    leaving = (60, ev.ReturnScheduled(1, soon))
    assert not reconcile.nearly_done(held(leaving), 1 / 61, NOW, LEASE_TIMES)


def test_a_job_that_should_be_done_rents_nothing_more_unless_a_machine_goes() -> None:
    later = START + 3 * HOUR
    assert reconcile.nearly_done(held(), 0.0, NOW, LEASE_TIMES)
    assert not reconcile.nearly_done(
        held((60, ev.MachineWarned("m1-0", later, "eviction", "fake"))), 0.0, NOW, LEASE_TIMES
    )


def test_a_renewal_without_an_answer_is_not_asked_for_again() -> None:
    """In every turn, each open one is repeated: the turns would become ever longer."""
    due = START + 2 * HOUR - MINUTE
    (first,) = reconcile.upkeep(held(), due, LEASE_TIMES)
    assert isinstance(first, reconcile.Renew)
    asked = (7000, ev.RenewIntended(2, first.machines, first.until))
    assert reconcile.upkeep(held(asked), due, LEASE_TIMES) == []
    assert reconcile.upkeep(held(asked, (7000, ev.Renewed(2))), first.until - MINUTE, LEASE_TIMES)


@pytest.mark.parametrize("minutes", [0, 7])
def test_a_return_at_the_end_of_a_paid_hour_is_requested_before_it(minutes: int) -> None:
    """Requested at that moment, it would come a turn too late, and another hour would be paid."""
    state = held()
    ends = state.allocations[1].started + 2 * HOUR + minutes * MINUTE
    (scheduled,) = reconcile.actions_of(state, Decision((Return(1, ends),)), NOW, LEASE_TIMES)
    assert isinstance(scheduled, reconcile.ScheduleReturn)
    assert scheduled.at == (ends if minutes else ends - LEASE_TIMES.notice)


def test_the_work_has_half_a_notice_where_the_paid_hour_ends_soon() -> None:
    state = held()
    ends = state.allocations[1].started + HOUR
    now = ends - LEASE_TIMES.notice
    (scheduled,) = reconcile.actions_of(state, Decision((Return(1, ends),)), now, LEASE_TIMES)
    assert isinstance(scheduled, reconcile.ScheduleReturn)
    assert scheduled.at == now + LEASE_TIMES.notice // 2
