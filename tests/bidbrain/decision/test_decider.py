"""Whatever a strategy wants, a decider keeps to the job's limits and budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bidbrain.decision.limits import CommonQuota, MachineLimits
from bidbrain.decision.roaming import Roaming
from bidbrain.strategies.base import Decision, Offer, Rent, Return, SavedState
from bidbrain.strategies.spells import Known
from pricing_data.units import HOUR, MINUTE
from tests.bidbrain.decision.deciders import ROOM, A, B, C, deciding, held, rents, situation
from tests.spotctl.planning.worlds import CENT, NOW

SHARED = {A.market: 2, B.market: 4}
"""What one machine of each takes of a quota that both count against."""


def test_a_budget_keeps_back_what_a_move_of_the_checkpoint_costs() -> None:
    far = Offer(replace(A.market, region="far", zone="far-a"), 4.0, 20 * CENT)
    per_gb = np.array([[0.0, 0.1], [0.1, 0.0]])
    roaming = Roaming((A, far), per_gb, Known.nothing(("near", "far")))
    gang = deciding(limits=MachineLimits(8, 8, {}, together=True), deadline=NOW + 23 * HOUR)
    decider = replace(gang, offers=(A, far), roaming=roaming)
    saved = SavedState(A.market, 100.0)
    here = replace(situation(work=32.0 * 20 * HOUR, offers=(A, far)), saved=saved, usd_left=9.0)
    # Only the far market has spot now: the move takes $10 of what is left.
    away = replace(here, offers=(far,), price=lambda one: CENT if one == far else 40 * CENT)
    assert not [rent for rent in rents(decider.decide(away)) if rent.offer == far]
    assert [
        rent for rent in rents(decider.decide(replace(away, usd_left=11.0))) if rent.offer == far
    ]


def test_what_is_within_the_limits_is_done_as_wanted() -> None:
    decision = deciding(Rent(A, 3, CENT), Return(1)).decide(situation(held(1, B, 8)))
    assert decision == Decision((Rent(A, 3, CENT), Return(1)), NOW + HOUR, "as told")


def test_what_is_returned_now_makes_room_and_what_leaves_later_does_not() -> None:
    now = deciding(Return(1), Rent(A, 8, CENT)).decide(situation(held(1, B, 8)))
    assert rents(now) == [Rent(A, 8, CENT)]
    later = deciding(Return(1, NOW + HOUR), Rent(A, 8, CENT)).decide(situation(held(1, B, 8)))
    assert rents(later) == []


def test_disks_and_addresses_are_part_of_what_a_lease_costs() -> None:
    wanted = Rent(A, 8, 30 * CENT)
    made = deciding(wanted)
    assert rents(made.decide(replace(situation(), usd_left=0.33))) == [replace(wanted, machines=4)]
    made = replace(made, held_price=lambda rent: 30 * CENT if rent.bid is not None else 0)
    assert rents(made.decide(replace(situation(), usd_left=0.33))) == [replace(wanted, machines=2)]


def test_a_budget_that_does_not_cover_what_is_wanted_tries_fewer_machines_other_markets_and_lower_bids() -> (
    None
):
    """16 minutes of three machines at 30 cents are 24 cents; bids near the price of 1 cent cost a
    twentieth of that.
    """
    made = deciding(Rent(A, 3, 30 * CENT), limits=MachineLimits(3, 8, {}))
    poor = replace(situation(), usd_left=0.16)
    (bought,) = rents(made.decide(poor))
    assert bought.machines == 8
    assert bought.bid is not None
    assert CENT <= bought.bid < 30 * CENT
    assert "the budget of $0.16 does not cover that" in made.decide(poor).reason
    nothing = made.decide(replace(poor, usd_left=0.001))
    assert (nothing.actions, nothing.unaffordable) == ((), True)
    closed = made.decide(replace(poor, offers=()))
    assert (closed.actions, closed.unaffordable) == ((), True)


def test_on_demand_machines_of_several_markets_keep_to_the_quota_that_they_share() -> None:
    made = deciding(Rent(B, 8, None), limits=replace(ROOM, shared=(CommonQuota(16, SHARED),)))
    assert rents(made.decide(situation())) == [Rent(B, 4, None)]
    assert rents(made.decide(situation(held(1, A, 2, None)))) == [Rent(B, 3, None)]
    assert rents(made.decide(situation(held(1, A, 8, None)))) == []
    assert rents(made.decide(situation(held(1, C, 2, None)))) == [Rent(B, 4, None)]


def test_the_budget_covers_the_longer_lease_of_machines_that_boot_slowly() -> None:
    """On demand at $0.20/h, 8 machines cost $0.43 in 16 minutes, and $1.92 in 72 minutes."""
    usual = replace(deciding(Rent(A, 8, None)), slow_leases={B.market: 72 * MINUTE})
    slow = replace(deciding(Rent(A, 8, None)), slow_leases={A.market: 72 * MINUTE})
    now = replace(situation(), usd_left=1.0)
    assert (rents(usual.decide(now)), rents(slow.decide(now))) == (
        [Rent(A, 8, None)],
        [Rent(A, 4, None)],
    )
