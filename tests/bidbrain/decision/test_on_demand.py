"""When a decider turns to on-demand machines to meet a deadline, and when it comes back to spot."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation
from bidbrain.strategies.deadline import DeadlineStrategy, DeadlineTerms
from bidbrain.strategies.spells import SpotSpell
from bidbrain.strategies.standard import AlwaysOnDemand
from pricing_data.units import DAY, HOUR, MINUTE, SECOND
from spotctl.planning.facts import OVERHEADS
from tests.bidbrain.decision.deciders import (
    BASELINE,
    LAST,
    WORK,
    A,
    B,
    C,
    Wants,
    deciding,
    held,
    rents,
    situation,
)
from tests.spotctl.planning.worlds import CENT, NOW


@pytest.mark.parametrize(
    ("deadline", "pressed"), [(LAST - 1, True), (LAST, False), (NOW, True), (None, False)]
)
def test_on_demand_machines_take_over_close_to_the_deadline(
    deadline: int | None, pressed: bool
) -> None:
    made = deciding(Rent(B, 8, CENT), deadline=deadline)
    expected = [Rent(A, 8, None)] if pressed else [Rent(B, 8, CENT)]
    assert rents(made.decide(situation(work=WORK))) == expected


@pytest.mark.parametrize(
    ("usual", "hours", "machines"), [(CENT, 9, B), (CENT - 1, 9, None), (CENT - 1, 1, A)]
)
def test_a_job_that_waits_rents_at_usual_prices_while_its_deadline_allows(
    usual: int, hours: int, machines: Offer | None
) -> None:
    usual_prices = dict.fromkeys((A.market, B.market, C.market), usual)
    wanting = Wanting(Rent(B, 8, CENT))
    made = deciding(deadline=NOW + hours * HOUR)
    made = replace(made, strategy=wanting, usual_prices=usual_prices)
    found = rents(made.decide(situation(work=WORK)))
    assert [rent.offer for rent in found] == ([] if machines is None else [machines])


@dataclass
class Wanting:
    """A strategy that wants a machine if it is offered."""

    rent: Rent
    name: str = "told"

    def decide(self, situation: Situation) -> Decision:
        offered = self.rent.offer in situation.offers
        return Decision((self.rent,) if offered else (), NOW + HOUR, "as told")


def test_time_for_checkpoints_counts_against_the_deadline() -> None:
    """Six hours of work on all machines, and eight to the deadline: enough at full speed, too
    little at 0.75.
    """
    made, now = deciding(deadline=NOW + 8 * HOUR), situation(work=32.0 * 6 * HOUR)
    assert not rents(made.decide(now))
    slowed = replace(made, speed=0.75).decide(now)
    assert [(rent.machines, rent.bid) for rent in rents(slowed)] == [(8, None)]


def test_the_net_keeps_what_runs_and_fills_up_what_is_missing() -> None:
    made = deciding(Return(1), Rent(B, 8, CENT), deadline=LAST - 2 * MINUTE - 1)
    assert made.decide(situation(held(1, B, 8), work=WORK)).actions == ()
    assert rents(made.decide(situation(held(1, B, 4), work=WORK))) == [Rent(A, 4, None)]
    assert rents(made.decide(situation(held(1, B, 3), work=WORK))) == [Rent(A, 5, None)]


def test_half_of_the_machines_on_spot_are_not_enough_close_to_the_deadline() -> None:
    """4 of 8 machines, 4.0 hours left at that rate, 2.17 hours to the deadline."""
    made = deciding(deadline=NOW + round(2.17 * HOUR))
    assert rents(made.decide(situation(held(1, B, 4), work=4 * B.nu * 4.0 * HOUR))) == [
        Rent(A, 4, None)
    ]


def test_spot_machines_are_replaced_while_they_run_once_another_eviction_would_cost_the_deadline() -> (
    None
):
    """An eviction of all loses up to 7 minutes. Eight more machines are not allowed, four are."""
    late = NOW + HOUR + 6 * MINUTE + 59 * SECOND
    full = deciding(limits=MachineLimits(1, 16, {}), deadline=late)
    assert full.decide(situation(held(1, B, 8), work=WORK)).actions == (
        Return(1, NOW + 5 * MINUTE, replaced=True),
        BASELINE,
    )
    swapped = deciding(deadline=late).decide(situation(held(1, B, 8), work=WORK))
    assert swapped.actions == (Return(1), BASELINE)
    half = deciding(limits=MachineLimits(1, 16, {}), deadline=late - 3 * MINUTE)
    decided = half.decide(situation(held(1, A, 4, None), held(2, B, 4), work=WORK))
    assert decided.actions == (
        Return(2, NOW + 5 * MINUTE, replaced=True),
        replace(BASELINE, machines=4),
    )
    # Replacing them now would itself cost the deadline.
    assert (
        deciding(deadline=NOW + HOUR + MINUTE).decide(situation(held(1, B, 8), work=WORK)).actions
        == ()
    )


def test_slower_spot_machines_make_room_for_the_deadline() -> None:
    slow = Offer(C.market, 2.0, 10 * CENT)
    made = deciding(deadline=NOW + 80 * MINUTE)
    kept = Holding(1, Rent(slow, 8, CENT), NOW - HOUR, NOW - HOUR)
    assert made.decide(situation(kept, work=WORK)).actions == ()
    assert replace(made, deadline=NOW + 73 * MINUTE).decide(situation(kept, work=WORK)).actions == (
        Return(1),
        BASELINE,
    )


def test_a_job_with_slack_waits_for_spot_and_buys_on_demand_once_slack_is_worth_more() -> None:
    """Hours of slack: waiting costs nothing, until slack that could still bring spot is worth less
    than the price.
    """
    worth = DeadlineStrategy(DeadlineTerms(4 * HOUR, 6 * MINUTE, 20.0))
    made = replace(deciding(deadline=NOW + 6 * HOUR), worth=worth)
    down = replace(situation(work=4 * WORK, offers=()), spell=lambda: SpotSpell.begun(up=False))
    assert made.decide(down).actions == ()
    assert made.decide(down).reason == "waits for spot, with 2.00 h of slack"
    assert rents(replace(made, deadline=NOW + round(4.3 * HOUR)).decide(down)) == [BASELINE]


def test_a_job_that_wants_machines_on_demand_gets_them_at_once() -> None:
    made = replace(deciding(deadline=NOW + DAY), strategy=AlwaysOnDemand())
    assert rents(made.decide(situation(work=WORK))) == [BASELINE]
    part = made.decide(situation(held(1, A, 5, None), work=WORK))
    assert rents(part) == [Rent(A, 3, None)]
    assert not made.decide(situation(held(1, A, 8, None), work=WORK)).actions


def test_on_demand_machines_give_way_to_spot_when_slack_allows_it() -> None:
    worth = DeadlineStrategy(DeadlineTerms(4 * HOUR, 6 * MINUTE, 20.0))
    made = replace(deciding(Rent(B, 8, CENT), deadline=NOW + 6 * HOUR), worth=worth)
    on_demand = situation(held(1, A, 8, None), work=4 * WORK)
    assert made.decide(on_demand).actions == (Return(1), Rent(B, 8, CENT))
    assert replace(made, deadline=NOW + 4 * HOUR + 20 * MINUTE).decide(on_demand).actions == ()
    closed = replace(on_demand, offers=())
    assert replace(made, strategy=Wants(())).decide(closed).actions == (Return(1),)


def test_a_quota_of_few_on_demand_machines_casts_the_net_earlier() -> None:
    """An hour of work on 8 machines takes two on the 4 that the quota holds."""

    def wanted(minutes: int, now: Situation) -> tuple[Rent | Return, ...]:
        limits, spot = (
            MachineLimits(1, 8, {}, on_demand={A.market: 4}),
            [Rent(B, 8, CENT)] if now.offers else [],
        )
        return deciding(*spot, limits=limits, deadline=NOW + minutes * MINUTE).decide(now).actions

    begins, half = situation(work=WORK), replace(BASELINE, machines=4)
    assert wanted(4 * 60, begins) == (Rent(B, 8, CENT),)
    assert wanted(2 * 60 + 10, begins) == (half,)
    # On demand alone it would be late: spot does more, and gives way only where there is none.
    assert wanted(90, begins) == (Rent(B, 8, CENT),)
    assert wanted(90, replace(begins, offers=())) == (half,)
    assert wanted(90, situation(held(1, A, 4, None), work=WORK)) == (Return(1), Rent(B, 8, CENT))
    assert wanted(90, situation(held(1, A, 4, None), work=WORK, offers=())) == ()


def test_without_an_open_market_machines_on_demand_are_rented_until_one_opens() -> None:
    assert rents(deciding().decide(situation(offers=()))) == [BASELINE]
    assert deciding().decide(situation(held(1, A, 8, None), offers=())).actions == ()


def test_spot_is_left_before_filling_what_is_missing_takes_the_time_for_it() -> None:
    """Machines are evicted one by one: each replacement stops the others, until the last eviction
    is too much.
    """
    holdings = held(0, A, 4), held(1, A, 3, None)
    leaving = OVERHEADS.startup / 2 + OVERHEADS.eviction + 2 * OVERHEADS.resize
    filling = OVERHEADS.startup / 8 + OVERHEADS.resize
    calm, close = (
        deciding(deadline=NOW + HOUR + round(leaving + part * filling)).decide(
            situation(*holdings, work=32.0 * HOUR)
        )
        for part in (1.01, 0.99)
    )
    assert Rent(A, 5, None) not in calm.actions
    assert set(close.actions) >= {Rent(A, 5, None), Return(0)}


def test_spot_machines_that_were_to_leave_later_make_room_for_those_on_demand() -> None:
    later = replace(held(0, A, 7), leaves_at=NOW + HOUR // 2)
    leaving = OVERHEADS.startup + OVERHEADS.eviction + 2 * OVERHEADS.resize
    close = deciding(deadline=NOW + HOUR + leaving - SECOND).decide(
        situation(later, held(1, A, 1), work=32.0 * HOUR)
    )
    assert set(close.actions) >= {Rent(A, 8, None), Return(0), Return(1)}


def test_on_demand_machines_of_another_market_are_ordered_while_the_first_refuses_them() -> None:
    made = deciding(Rent(B, 8, CENT), deadline=NOW + HOUR)
    close = situation(work=32.0 * HOUR)
    assert rents(made.decide(close)) == [BASELINE]
    assert rents(made.decide(replace(close, refused={(A.market, False): 8}))) == [Rent(B, 8, None)]
    small = replace(made, limits=MachineLimits(1, 8, {}, on_demand={B.market: 7}))
    assert rents(small.decide(replace(close, refused={(A.market, False): 8}))) == [Rent(C, 8, None)]


def test_spot_machines_do_what_they_can_while_on_demand_machines_are_refused_everywhere() -> None:
    made = deciding(Rent(B, 8, CENT), deadline=NOW + HOUR)
    refused = {(one.market, False): 8 for one in (A, B, C)}
    assert rents(made.decide(replace(situation(work=32.0 * HOUR), refused=refused))) == [
        Rent(B, 8, CENT)
    ]
    # What is held on demand stays, and the rest is asked for again.
    some = replace(situation(held(1, A, 4, None), work=32.0 * HOUR), refused=refused)
    assert made.decide(some).actions == (Rent(A, 4, None),)
    idle = replace(deciding(deadline=NOW + HOUR), strategy=Wants(()))
    assert rents(idle.decide(replace(situation(work=32.0 * HOUR), refused=refused))) == [BASELINE]
