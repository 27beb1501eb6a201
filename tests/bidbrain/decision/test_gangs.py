"""Jobs whose machines work together: how a decider starts, completes, moves and shrinks them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.decision.roaming import Roaming
from bidbrain.strategies.base import Offer, Rent, Return, SpotRecord
from bidbrain.strategies.spells import Known
from pricing_data.units import HOUR, MINUTE
from spotctl.planning.facts import OVERHEADS
from tests.bidbrain.decision.deciders import (
    BASELINE,
    LAST,
    WORK,
    A,
    B,
    Wants,
    deciding,
    held,
    rents,
    situation,
)
from tests.spotctl.planning.worlds import CENT, NOW


def test_a_gang_is_of_one_market() -> None:
    made = deciding(
        Rent(A, 2, CENT), Rent(B, 1, CENT), limits=MachineLimits(3, 3, {}, together=True)
    )
    assert rents(made.decide(situation())) == [Rent(A, 3, CENT)]


def gang(*wanted: Rent | Return) -> Decider:
    return deciding(*wanted, limits=MachineLimits(8, 8, {}, together=True))


def test_a_gang_that_lost_machines_is_completed_by_more_of_the_same_while_that_sells() -> None:
    lost = held(1, B, 5, 3 * CENT)
    assert rents(gang().decide(situation(lost))) == [Rent(B, 3, 3 * CENT)]
    assert rents(gang().decide(situation(lost, offers=(A,)))) == [Rent(A, 3, A.on_demand)]
    assert rents(gang().decide(situation(lost, offers=()))) == [Rent(A, 3, None)]
    assert rents(gang().decide(situation(held(1, B, 8, 3 * CENT)))) == []
    leaving = replace(held(1, B, 8, 3 * CENT), leaves_at=NOW + MINUTE)
    assert rents(gang(Rent(A, 8, CENT)).decide(situation(leaving))) == [Rent(A, 8, CENT)]
    later = replace(leaving, leaves_at=NOW + HOUR)
    assert rents(gang(Rent(A, 8, CENT)).decide(situation(later))) == []


def test_a_gang_that_may_shrink_is_bought_whole_and_waits_for_its_own_market_while_it_works() -> (
    None
):
    made = deciding(limits=MachineLimits(4, 8, {}, together=True))
    assert rents(replace(made, strategy=Wants((Rent(B, 4, CENT),))).decide(situation())) == [
        Rent(B, 8, CENT)
    ]
    lost = held(1, B, 5, 3 * CENT)
    assert rents(made.decide(situation(lost))) == [Rent(B, 3, 3 * CENT)]
    goes_on = made.decide(situation(lost, offers=(A,)))
    assert goes_on.actions == ()
    assert goes_on.reason == "continues with 5 of 8 nodes: their market has no more now"
    assert rents(made.decide(situation(held(1, B, 3, 3 * CENT), offers=(A,)))) == [
        Rent(A, 5, A.on_demand)
    ]


@pytest.mark.parametrize(
    ("least", "holds", "refused", "asked", "fewer"),
    [
        (2, 0, 0, 8, False),
        (2, 0, 8, 5, True),
        (2, 0, 5, 3, True),
        (2, 0, 3, 2, True),
        (2, 0, 2, 8, False),
        (2, 5, 3, 2, True),
        (2, 5, 2, 1, True),
        (2, 5, 1, 3, False),
        (2, 5, 8, 3, False),
        (8, 0, 8, 8, False),
    ],
)
def test_a_gang_that_a_market_refuses_asks_it_for_fewer_and_then_for_all_again(
    least: int, holds: int, refused: int, asked: int, *, fewer: bool
) -> None:
    holdings = (held(1, B, holds, CENT),) if holds else ()
    made = deciding(
        *(() if holds else (Rent(B, 8, CENT),)), limits=MachineLimits(least, 8, {}, together=True)
    )
    decision = made.decide(
        replace(situation(*holdings), refused={(B.market, True): refused, (B.market, False): 7})
    )
    assert rents(decision) == [Rent(B, asked, CENT)]
    assert decision.reason.endswith(f"; asks for {asked}, since {refused} were refused") is fewer


def test_a_gang_that_lacks_nodes_close_to_its_deadline_moves_on_demand_as_a_whole() -> None:
    short = deciding(limits=MachineLimits(4, 8, {}, together=True), deadline=NOW + HOUR)
    decision = short.decide(
        situation(held(1, B, 5, 3 * CENT), work=0.95 * HOUR * BASELINE.machines * A.nu)
    )
    assert decision.actions == (Return(1, NOW + OVERHEADS.startup, replaced=True), Rent(A, 8, None))


# Spot costs a twentieth of what on demand does, and of two hours nothing lasted.
FAILING = SpotRecord(
    taken=(NOW - HOUR, NOW - 30 * MINUTE, NOW - MINUTE), paid=HOUR, lasting=HOUR // 30
)


@pytest.mark.parametrize(
    ("record", "flees"),
    [
        (FAILING, True),
        (replace(FAILING, lasting=HOUR // 10), False),
        (replace(FAILING, taken=FAILING.taken[1:]), False),
        (replace(FAILING, taken=(NOW - 3 * HOUR, *FAILING.taken[1:])), False),
        (replace(FAILING, fallbacks=(NOW - 45 * MINUTE,)), False),
    ],
)
def test_a_gang_takes_refuge_on_demand_where_spot_keeps_failing(
    record: SpotRecord, flees: bool
) -> None:
    decision = gang(Rent(B, 8, 3 * CENT)).decide(replace(situation(), record=record))
    assert rents(decision) == [Rent(A, 8, None) if flees else Rent(B, 8, 3 * CENT)]
    assert (
        decision.reason.startswith(
            "spot keeps failing: 3 evictions in 2 hours, 3% of the paid time was useful, at 5% of"
        )
        is flees
    )


def test_a_gang_keeps_its_refuge_longer_each_time_and_comes_back_when_it_is_calm() -> None:
    refuge, made = held(7, A, 8, None), gang(Rent(B, 8, 3 * CENT))
    first = replace(FAILING, fallbacks=(NOW - HOUR + 1,))
    assert made.decide(replace(situation(refuge), record=first)).actions == ()
    back = made.decide(replace(situation(refuge), record=replace(first, fallbacks=(NOW - HOUR,))))
    assert back.actions == (Return(7, NOW + OVERHEADS.startup, replaced=True), Rent(B, 8, 3 * CENT))
    assert back.reason == "back to spot: as told"
    unkept = replace(first, fallbacks=(NOW - HOUR,), resumes=False)
    assert made.decide(replace(situation(refuge), record=unkept)).actions == ()
    again = replace(first, fallbacks=(NOW - 5 * HOUR, NOW - HOUR))
    assert made.decide(replace(situation(refuge), record=again)).actions == ()
    assert gang().decide(replace(situation(refuge), record=first)).actions == ()


def test_a_gang_stays_on_demand_close_to_the_deadline() -> None:
    pressed = replace(gang(Rent(B, 8, 3 * CENT)), deadline=LAST - 1)
    assert pressed.decide(situation(held(7, A, 8, None), work=WORK)).actions == ()
    assert len(pressed.decide(situation(held(7, A, 8, None), work=WORK / 2)).actions) == 2


def test_a_gang_that_no_quota_holds_on_demand_waits_for_spot() -> None:
    limits = MachineLimits(8, 8, {}, together=True, on_demand={A.market: 7})
    for deadline in (None, NOW + HOUR):
        made = deciding(Rent(B, 8, CENT), limits=limits, deadline=deadline)
        assert rents(made.decide(situation(work=WORK))) == [Rent(B, 8, CENT)]
        assert (
            rents(replace(made, strategy=Wants(())).decide(situation(work=WORK, offers=()))) == []
        )


def test_a_gang_is_not_on_demand_on_slower_machines_which_its_deadline_does_not_allow() -> None:
    slow = Offer(replace(A.market, zone="z", instance_type="slow"), A.nu / 2, CENT)
    roaming = Roaming((A, slow), np.zeros((2, 2)), Known.nothing(("near", "near")))
    gang = deciding(limits=MachineLimits(8, 8, {}, together=True), deadline=NOW + 21 * HOUR)
    decider = replace(gang, offers=(A, slow), roaming=roaming)
    patient = decider.decide(situation(work=32.0 * 20 * HOUR, offers=()))
    assert [rent for rent in rents(patient) if rent.offer == slow] == []
    hurried = replace(decider, deadline=NOW + 20 * HOUR).decide(
        situation(work=32.0 * 20 * HOUR, offers=())
    )
    assert rents(hurried) == [BASELINE]


@pytest.mark.parametrize("deadline", [None, LAST - 6 * MINUTE])
def test_a_gang_on_demand_returns_the_granted_part_of_an_order(deadline: int | None) -> None:
    """Both would be paid, and evictions of the part would disturb the gang."""
    made = deciding(limits=MachineLimits(8, 8, {}, together=True), deadline=deadline)
    whole, part = held(1, A, 8, None), held(2, B, 3, 3 * CENT)
    assert Return(2) in made.decide(situation(whole, part, work=WORK)).actions


def test_a_gang_with_time_orders_the_rest_of_its_order_before_it_leaves_on_demand() -> None:
    made = deciding(limits=MachineLimits(8, 8, {}, together=True), deadline=NOW + 20 * HOUR)
    decided = made.decide(situation(held(1, A, 8, None), held(2, B, 3, 3 * CENT), work=WORK))
    assert decided.actions == (
        Return(1, NOW + OVERHEADS.startup, replaced=True),
        Rent(B, 5, 3 * CENT),
    )
