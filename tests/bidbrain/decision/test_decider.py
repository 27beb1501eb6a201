"""Whatever a strategy wants, a decider keeps to the job's limits and budget."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

import numpy as np
from hypothesis import given, strategies as st

from bidbrain.decision.limits import CommonQuota, MachineLimits
from bidbrain.decision.roaming import Roaming
from bidbrain.strategies.base import LOOK_AGAIN, Decision, Offer, Rent, Return, SavedState
from bidbrain.strategies.spells import Known
from pricing_data.market import Market
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


wanted_rents = st.lists(
    st.builds(
        Rent,
        st.sampled_from([A, B, C]),
        st.integers(1, 20),
        st.sampled_from([None, 3 * CENT, 50 * CENT]),
    ),
    max_size=4,
)


holdings = st.lists(st.tuples(st.sampled_from([A, B, C]), st.integers(1, 3)), max_size=3)


@given(
    wanted_rents,
    holdings,
    st.integers(1, 6),
    st.integers(0, 12),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 12)),
    st.dictionaries(st.sampled_from([A.market, C.market]), st.integers(0, 12)),
    st.one_of(st.none(), st.integers(0, 24)),
    st.one_of(st.just(inf), st.floats(0, 3)),
    st.booleans(),
    st.sampled_from(["per-second", "hourly-refund"]),
)
def test_limits_and_budget_hold_whatever_is_wanted(
    wanted: list[Rent],
    already: list[tuple[Offer, int]],
    least: int,
    more: int,
    by_type: dict[str, int],
    on_demand: dict[Market, int],
    shared: int | None,
    usd_left: float,
    together: bool,
    billing: str,
) -> None:
    quotas = () if shared is None else (CommonQuota(shared, SHARED),)
    limits = MachineLimits(least, least + more, by_type, together, on_demand, quotas)
    made = deciding(*wanted, limits=limits, billing=billing)
    now = [held(i, of, machines) for i, (of, machines) in enumerate(already)]
    bought = rents(made.decide(replace(situation(*now), usd_left=usd_left)))
    kept, spot = Counter({"a": 0, "b": 0}), Counter({"a": 0, "b": 0})
    for rent in [*bought, *(one.rent for one in now)]:
        kept[rent.offer.market.instance_type] += rent.machines
        spot[rent.offer.market.instance_type] += rent.machines if rent.bid is not None else 0
    committed = sum(rent.machines * made.committed_usd(rent) for rent in bought)
    assert committed <= usd_left + 1e-9
    assert all(rent.machines > 0 for rent in bought)
    assert all(
        on_demand.get(one.offer.market, inf) >= one.machines for one in bought if one.bid is None
    )
    if shared is not None:
        assert (
            sum(SHARED.get(one.offer.market, 0) * one.machines for one in bought if one.bid is None)
            <= shared
        )
    types = {rent.offer.market.instance_type for rent in bought if rent.bid is not None}
    if bought:
        assert least <= sum(kept.values()) <= least + more
        assert all(spot[name] <= by_type.get(name, inf) for name in types)
        # A gang that has lost machines is completed, unasked, by more of the same.
        asked_for = [*wanted, *(one.rent for one in now if together)]
        # A budget that does not cover what is wanted buys something cheaper.
        as_asked = {(rent.offer, rent.bid) for rent in bought} <= {
            (rent.offer, rent.bid) for rent in asked_for
        }
        assert as_asked or (usd_left < inf and all(rent.bid is not None for rent in bought))
        if together:
            assert len(bought) == 1


def test_what_is_within_the_limits_is_done_as_wanted() -> None:
    decision = deciding(Rent(A, 3, CENT), Return(1)).decide(situation(held(1, B, 8)))
    assert decision == Decision((Rent(A, 3, CENT), Return(1)), NOW + HOUR, "as told")


def test_what_is_returned_now_makes_room_and_what_leaves_later_does_not() -> None:
    now = deciding(Return(1), Rent(A, 8, CENT)).decide(situation(held(1, B, 8)))
    assert rents(now) == [Rent(A, 8, CENT)]
    later = deciding(Return(1, NOW + HOUR), Rent(A, 8, CENT)).decide(situation(held(1, B, 8)))
    assert rents(later) == []


def test_machines_that_leave_count_against_a_quota_until_they_are_gone() -> None:
    """A takes 1 of the quota of 8, and B 2: replacements take what is left, or wait."""
    limits = MachineLimits(1, 8, {}, spot=(CommonQuota(8, {A.market: 1, B.market: 2}),))
    made, wants = (
        deciding(Rent(A, 8, CENT), limits=limits),
        deciding(Return(1), Rent(A, 8, CENT), limits=limits),
    )
    warned = replace(situation(), leaving={(B.market, True): 3})
    assert rents(made.decide(situation())) == [Rent(A, 8, CENT)]
    part = made.decide(warned)
    assert (rents(part), part.wake_at) == ([Rent(A, 2, CENT)], NOW + LOOK_AGAIN)
    assert part.reason.endswith("its quota is in use by 3 machines on the way out")
    others = made.decide(
        replace(warned, leaving={(B.market, True): 3, (C.market, True): 5, (A.market, False): 2})
    )
    assert others.reason.endswith("its quota is in use by 3 machines on the way out")
    assert rents(made.decide(replace(situation(), leaving={(B.market, False): 3}))) == [
        Rent(A, 8, CENT)
    ]
    # Machines that are returned now exist for a moment more.
    exchange = wants.decide(situation(held(1, B, 4)))
    assert (exchange.actions, exchange.wake_at) == ((Return(1),), NOW + LOOK_AGAIN)
    assert rents(wants.decide(situation(held(1, C, 4)))) == [Rent(A, 8, CENT)]


def test_a_move_waits_for_room_in_a_quota_and_keeps_what_it_would_replace() -> None:
    limits = MachineLimits(
        4, 4, {}, together=True, spot=(CommonQuota(4, {A.market: 1, B.market: 1}),)
    )
    moves = deciding(Return(1, NOW + HOUR, replaced=True), Rent(A, 4, CENT), limits=limits)
    assert moves.decide(situation(held(1, B, 4))).actions == ()


def test_fewer_machines_than_the_job_takes_are_not_bought_and_more_are_where_a_strategy_wants_few() -> (
    None
):
    short = deciding(Rent(A, 8, CENT), limits=MachineLimits(4, 8, {"a": 3})).decide(situation())
    assert (short.actions, short.wake_at) == ((), NOW + LOOK_AGAIN)
    assert "allow 3 machines, and the job needs at least 4" in short.reason
    assert rents(
        deciding(Rent(A, 1, CENT), limits=MachineLimits(4, 8, {})).decide(situation())
    ) == [Rent(A, 4, CENT)]


def test_a_budget_buys_what_it_can_pay_to_the_end_of_a_lease_at_the_bid() -> None:
    """16 minutes at 30 cents are 8 cents; a begun hour, where hours are paid in full, 30."""
    wanted = Rent(A, 8, 30 * CENT)
    assert rents(deciding(wanted).decide(replace(situation(), usd_left=0.33))) == [
        replace(wanted, machines=4)
    ]
    assert rents(
        deciding(wanted, billing="hourly-refund").decide(replace(situation(), usd_left=0.33))
    ) == [replace(wanted, machines=1)]
    assert rents(deciding(Rent(A, 8, None)).decide(replace(situation(), usd_left=0.33))) == [
        Rent(A, 6, None)
    ]


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
