"""Limits, quotas and budgets hold whatever is wanted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf

from hypothesis import given, strategies as st

from bidbrain.decision.limits import CommonQuota, MachineLimits
from bidbrain.strategies.base import LOOK_AGAIN, Offer, Rent, Return
from pricing_data.market import Market
from pricing_data.units import HOUR
from tests.bidbrain.decision.deciders import A, B, C, deciding, held, rents, situation
from tests.bidbrain.decision.test_decider import SHARED
from tests.spotctl.planning.worlds import CENT, NOW

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
