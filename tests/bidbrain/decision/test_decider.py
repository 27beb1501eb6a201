"""Whatever a strategy wants, a decider keeps to the job's limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import CommonQuota, MachineLimits
from bidbrain.decision.roaming import Roaming
from bidbrain.strategies.base import (
    LOOK_AGAIN,
    Decision,
    Holding,
    Offer,
    Rent,
    Return,
    SavedState,
    Situation,
    SpotRecord,
)
from bidbrain.strategies.deadline import DeadlineStrategy
from bidbrain.strategies.deadline_job import DeadlineTerms
from bidbrain.strategies.deadline_spells import SpotSpell
from bidbrain.strategies.regions_knowledge import Known
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.planning.regimes import OVERHEADS
from tests.spotctl.planning.worlds import CENT, NOW, offer

A, B, C = (Offer(offer(name, zone), 4.0, 20 * CENT) for name, zone in (("a", "a"), ("a", "b"), ("b", "a")))
BASELINE = Rent(A, 8, None)
ROOM = MachineLimits(1, 8, {})
SHARED = {A.market: 2, B.market: 4}
"""What one machine of each takes of a quota that both count against."""


@dataclass
class Wants:
    """A strategy that wants what it is told to."""

    actions: tuple[Rent | Return, ...]
    name: str = "told"
    asked: list[Situation] = field(default_factory=list)

    def decide(self, situation: Situation) -> Decision:
        self.asked.append(situation)
        return Decision(self.actions, NOW + HOUR, "as told")


def deciding(
    *wanted: Rent | Return, limits: MachineLimits = ROOM, deadline: int | None = None, billing: str = "per-second"
) -> Decider:
    rule = billing_rule(billing)
    return Decider((A, B, C), BASELINE, None, 32.0, limits, OVERHEADS, deadline, Wants(wanted), rule)


def situation(*holdings: Holding, work: float = inf, offers: tuple[Offer, ...] = (A, B, C)) -> Situation:
    return Situation(NOW, offers, lambda _: CENT, holdings, BASELINE, 32.0, work)


def held(number: int, of: Offer, machines: int, bid: int | None = 5 * CENT) -> Holding:
    return Holding(number, Rent(of, machines, bid), NOW - HOUR, NOW - HOUR)


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
    assert [rent for rent in rents(decider.decide(replace(away, usd_left=11.0))) if rent.offer == far]


def rents(decision: Decision) -> list[Rent]:
    return [action for action in decision.actions if isinstance(action, Rent)]


wanted_rents = st.lists(
    st.builds(Rent, st.sampled_from([A, B, C]), st.integers(1, 20), st.sampled_from([None, 3 * CENT, 50 * CENT])),
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
    assert all(on_demand.get(one.offer.market, inf) >= one.machines for one in bought if one.bid is None)
    if shared is not None:
        assert sum(SHARED.get(one.offer.market, 0) * one.machines for one in bought if one.bid is None) <= shared
    types = {rent.offer.market.instance_type for rent in bought if rent.bid is not None}
    if bought:
        assert least <= sum(kept.values()) <= least + more
        assert all(spot[name] <= by_type.get(name, inf) for name in types)
        # A gang that has lost machines is completed, unasked, by more of the same.
        asked_for = [*wanted, *(one.rent for one in now if together)]
        # A budget that does not cover what is wanted buys something cheaper.
        as_asked = {(rent.offer, rent.bid) for rent in bought} <= {(rent.offer, rent.bid) for rent in asked_for}
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


def test_fewer_machines_than_the_job_takes_are_not_bought_and_more_are_where_a_strategy_wants_few() -> None:
    short = deciding(Rent(A, 8, CENT), limits=MachineLimits(4, 8, {"a": 3})).decide(situation())
    assert (short.actions, short.wake_at) == ((), NOW + LOOK_AGAIN)
    assert "allow 3 machines, and the job needs at least 4" in short.reason
    assert rents(deciding(Rent(A, 1, CENT), limits=MachineLimits(4, 8, {})).decide(situation())) == [Rent(A, 4, CENT)]


def test_a_gang_is_of_one_market() -> None:
    made = deciding(Rent(A, 2, CENT), Rent(B, 1, CENT), limits=MachineLimits(3, 3, {}, together=True))
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


def test_a_gang_that_may_shrink_is_bought_whole_and_waits_for_its_own_market_while_it_works() -> None:
    made = deciding(limits=MachineLimits(4, 8, {}, together=True))
    assert rents(replace(made, strategy=Wants((Rent(B, 4, CENT),))).decide(situation())) == [Rent(B, 8, CENT)]
    lost = held(1, B, 5, 3 * CENT)
    assert rents(made.decide(situation(lost))) == [Rent(B, 3, 3 * CENT)]
    goes_on = made.decide(situation(lost, offers=(A,)))
    assert goes_on.actions == ()
    assert goes_on.reason == "goes on with 5 of 8 nodes: their market has no others now"
    assert rents(made.decide(situation(held(1, B, 3, 3 * CENT), offers=(A,)))) == [Rent(A, 5, A.on_demand)]


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
    made = deciding(*(() if holds else (Rent(B, 8, CENT),)), limits=MachineLimits(least, 8, {}, together=True))
    decision = made.decide(replace(situation(*holdings), refused={(B.market, True): refused, (B.market, False): 7}))
    assert rents(decision) == [Rent(B, asked, CENT)]
    assert decision.reason.endswith(f"; asks for {asked}, since {refused} were refused") is fewer


def test_a_gang_that_lacks_nodes_close_to_its_deadline_moves_on_demand_as_a_whole() -> None:
    short = deciding(limits=MachineLimits(4, 8, {}, together=True), deadline=NOW + HOUR)
    decision = short.decide(situation(held(1, B, 5, 3 * CENT), work=0.95 * HOUR * BASELINE.machines * A.nu))
    assert decision.actions == (Return(1, NOW + OVERHEADS.startup, replaced=True), Rent(A, 8, None))


# Spot costs a twentieth of what on demand does, and of two hours nothing lasted.
FAILING = SpotRecord(taken=(NOW - HOUR, NOW - 30 * MINUTE, NOW - MINUTE), paid=HOUR, lasting=HOUR // 30)


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
def test_a_gang_takes_refuge_on_demand_where_spot_keeps_failing(record: SpotRecord, flees: bool) -> None:
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


def test_a_budget_buys_what_it_can_pay_to_the_end_of_a_lease_at_the_bid() -> None:
    """16 minutes at 30 cents are 8 cents; a begun hour, where hours are paid in full, 30."""
    wanted = Rent(A, 8, 30 * CENT)
    assert rents(deciding(wanted).decide(replace(situation(), usd_left=0.33))) == [replace(wanted, machines=4)]
    assert rents(deciding(wanted, billing="hourly-refund").decide(replace(situation(), usd_left=0.33))) == [
        replace(wanted, machines=1)
    ]
    assert rents(deciding(Rent(A, 8, None)).decide(replace(situation(), usd_left=0.33))) == [Rent(A, 6, None)]


def test_disks_and_addresses_are_part_of_what_a_lease_costs() -> None:
    wanted = Rent(A, 8, 30 * CENT)
    made = deciding(wanted)
    assert rents(made.decide(replace(situation(), usd_left=0.33))) == [replace(wanted, machines=4)]
    made = replace(made, held_price=lambda rent: 30 * CENT if rent.bid is not None else 0)
    assert rents(made.decide(replace(situation(), usd_left=0.33))) == [replace(wanted, machines=2)]


def test_a_budget_that_does_not_cover_what_is_wanted_tries_fewer_machines_other_markets_and_lower_bids() -> None:
    """16 minutes of three machines at 30 cents are 24 cents; bids near the price of 1 cent cost a twentieth of that."""
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


# What is left to do on demand takes an hour. Entering machines loses up to 5.5 minutes, an eviction of all up to 7, and
# the next decision is 2 minutes away.
WORK = 32.0 * HOUR
LAST = NOW + HOUR + 14 * MINUTE + 30 * SECOND


@pytest.mark.parametrize(("deadline", "pressed"), [(LAST - 1, True), (LAST, False), (NOW, True), (None, False)])
def test_on_demand_machines_take_over_close_to_the_deadline(deadline: int | None, pressed: bool) -> None:
    made = deciding(Rent(B, 8, CENT), deadline=deadline)
    expected = [Rent(A, 8, None)] if pressed else [Rent(B, 8, CENT)]
    assert rents(made.decide(situation(work=WORK))) == expected


def test_time_for_checkpoints_counts_against_the_deadline() -> None:
    """Six hours of work on all machines, and eight to the deadline: enough at full speed, too little at 0.75."""
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
    assert rents(made.decide(situation(held(1, B, 4), work=4 * B.nu * 4.0 * HOUR))) == [Rent(A, 4, None)]


def test_spot_machines_are_replaced_while_they_run_once_another_eviction_would_cost_the_deadline() -> None:
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
    assert decided.actions == (Return(2, NOW + 5 * MINUTE, replaced=True), replace(BASELINE, machines=4))
    # Replacing them now would itself cost the deadline.
    assert deciding(deadline=NOW + HOUR + MINUTE).decide(situation(held(1, B, 8), work=WORK)).actions == ()


def test_slower_spot_machines_make_room_for_the_deadline() -> None:
    slow = Offer(C.market, 2.0, 10 * CENT)
    made = deciding(deadline=NOW + 80 * MINUTE)
    kept = Holding(1, Rent(slow, 8, CENT), NOW - HOUR, NOW - HOUR)
    assert made.decide(situation(kept, work=WORK)).actions == ()
    assert replace(made, deadline=NOW + 73 * MINUTE).decide(situation(kept, work=WORK)).actions == (Return(1), BASELINE)


def test_a_job_with_slack_waits_for_spot_and_buys_on_demand_once_slack_is_worth_more() -> None:
    """Hours of slack: waiting costs nothing, until slack that could still bring spot is worth less than the price."""
    worth = DeadlineStrategy(DeadlineTerms(4 * HOUR, 6 * MINUTE, 20.0))
    made = replace(deciding(deadline=NOW + 6 * HOUR), worth=worth)
    down = replace(situation(work=4 * WORK, offers=()), spell=lambda: SpotSpell.begun(up=False))
    assert made.decide(down).actions == ()
    assert made.decide(down).reason == "waits for spot, with 2.00 h of slack"
    assert rents(replace(made, deadline=NOW + round(4.3 * HOUR)).decide(down)) == [BASELINE]


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
        limits, spot = MachineLimits(1, 8, {}, on_demand={A.market: 4}), [Rent(B, 8, CENT)] if now.offers else []
        return deciding(*spot, limits=limits, deadline=NOW + minutes * MINUTE).decide(now).actions

    begins, half = situation(work=WORK), replace(BASELINE, machines=4)
    assert wanted(4 * 60, begins) == (Rent(B, 8, CENT),)
    assert wanted(2 * 60 + 10, begins) == (half,)
    # On demand alone it would be late: spot does more, and gives way only where there is none.
    assert wanted(90, begins) == (Rent(B, 8, CENT),)
    assert wanted(90, replace(begins, offers=())) == (half,)
    assert wanted(90, situation(held(1, A, 4, None), work=WORK)) == (Return(1), Rent(B, 8, CENT))
    assert wanted(90, situation(held(1, A, 4, None), work=WORK, offers=())) == ()


def test_on_demand_machines_of_several_markets_keep_to_the_quota_that_they_share() -> None:
    made = deciding(Rent(B, 8, None), limits=replace(ROOM, shared=(CommonQuota(16, SHARED),)))
    assert rents(made.decide(situation())) == [Rent(B, 4, None)]
    assert rents(made.decide(situation(held(1, A, 2, None)))) == [Rent(B, 3, None)]
    assert rents(made.decide(situation(held(1, A, 8, None)))) == []
    assert rents(made.decide(situation(held(1, C, 2, None)))) == [Rent(B, 4, None)]


def test_a_gang_that_no_quota_holds_on_demand_waits_for_spot() -> None:
    limits = MachineLimits(8, 8, {}, together=True, on_demand={A.market: 7})
    for deadline in (None, NOW + HOUR):
        made = deciding(Rent(B, 8, CENT), limits=limits, deadline=deadline)
        assert rents(made.decide(situation(work=WORK))) == [Rent(B, 8, CENT)]
        assert rents(replace(made, strategy=Wants(())).decide(situation(work=WORK, offers=()))) == []


def test_a_gang_that_roams_turns_to_on_demand_machines_where_a_quota_holds_them() -> None:
    far = Offer(replace(A.market, region="far", zone="far-a"), 4.0, 40 * CENT)
    roaming = Roaming((A, far), np.zeros((2, 2)), Known.nothing(("near", "far")))
    limits = MachineLimits(8, 8, {}, together=True, on_demand={A.market: 7})
    made = replace(deciding(limits=limits, deadline=NOW + HOUR + MINUTE), offers=(A, far), roaming=roaming)
    assert rents(made.decide(situation(work=WORK, offers=(A, far)))) == [Rent(far, 8, None)]
    unlimited = replace(made, limits=replace(limits, on_demand={}))
    assert rents(unlimited.decide(situation(work=WORK, offers=(A, far)))) == [Rent(A, 8, None)]


def roaming_range(work: float, *holdings: Holding, **changes: Any) -> Decision:  # noqa: ANN401
    """What four to eight nodes do that may move, with much slack; the far market is much cheaper."""
    roaming = Roaming((A, FAR), np.zeros((2, 2)), Known.nothing(("near", "far")))
    made = deciding(limits=MachineLimits(4, 8, {}, together=True), deadline=NOW + 60 * HOUR)
    prices = {A: 10 * CENT, FAR: CENT}
    here = replace(situation(*holdings, work=work, offers=(A, FAR)), price=prices.__getitem__, **changes)
    return replace(made, offers=(A, FAR), roaming=roaming).decide(here)


FAR = Offer(replace(A.market, region="far", zone="far-a"), 4.0, 20 * CENT)
LONG = 32.0 * 20 * HOUR


def test_a_range_of_nodes_that_roams_starts_with_all_and_moves_to_a_cheaper_market_as_a_whole() -> None:
    assert rents(roaming_range(LONG)) == [Rent(FAR, 8, FAR.on_demand)]
    moved = roaming_range(LONG, held(1, A, 8), held(2, A, 2))
    assert rents(moved) == [Rent(FAR, 8, FAR.on_demand)]
    assert {one.allocation for one in moved.actions if isinstance(one, Return) and one.replaced} == {1, 2}
    # What an order brought too little of is returned, also in the market of those that run.
    assert Return(2) in roaming_range(LONG, held(1, FAR, 8, None), held(2, FAR, 2)).actions
    # Three are too few to work.
    alone = roaming_range(LONG, held(1, A, 3))
    assert set(alone.actions) == {Rent(FAR, 8, FAR.on_demand), Return(1)}


def test_a_range_of_nodes_that_roams_goes_on_with_some_and_asks_its_market_for_the_others() -> None:
    short = roaming_range(LONG, held(1, FAR, 5))
    assert short.actions == (Rent(FAR, 3, 5 * CENT),)
    assert short.reason == "5 of 8 nodes are running"
    closed = roaming_range(LONG, held(1, FAR, 5), offers=(A,))
    assert closed.actions == ()
    assert closed.reason == "goes on with 5 of 8 nodes: their market has no others now"
    # It works, and the other market has lately refused all of them: it is not left for fewer or as many.
    refusing = {(FAR.market, True): 8}
    assert rents(roaming_range(LONG, held(1, A, 5, 20 * CENT), refused=refusing)) == [Rent(A, 3, 20 * CENT)]
    assert rents(roaming_range(LONG, refused=refusing)) == [Rent(FAR, 6, FAR.on_demand)]


def test_without_an_open_market_machines_on_demand_are_rented_until_one_opens() -> None:
    assert rents(deciding().decide(situation(offers=()))) == [BASELINE]
    assert deciding().decide(situation(held(1, A, 8, None), offers=())).actions == ()


def test_spot_is_left_before_filling_what_is_missing_takes_the_time_for_it() -> None:
    """Machines are evicted one by one: each replacement stops the others, until the last eviction is too much."""
    holdings = held(0, A, 4), held(1, A, 3, None)
    leaving = OVERHEADS.startup / 2 + OVERHEADS.eviction + 2 * OVERHEADS.resize
    filling = OVERHEADS.startup / 8 + OVERHEADS.resize
    calm, close = (
        deciding(deadline=NOW + HOUR + round(leaving + part * filling)).decide(situation(*holdings, work=32.0 * HOUR))
        for part in (1.01, 0.99)
    )
    assert Rent(A, 5, None) not in calm.actions
    assert set(close.actions) >= {Rent(A, 5, None), Return(0)}


def test_a_gang_is_not_on_demand_on_slower_machines_which_its_deadline_does_not_allow() -> None:
    slow = Offer(replace(A.market, zone="z", instance_type="slow"), A.nu / 2, CENT)
    roaming = Roaming((A, slow), np.zeros((2, 2)), Known.nothing(("near", "near")))
    gang = deciding(limits=MachineLimits(8, 8, {}, together=True), deadline=NOW + 21 * HOUR)
    decider = replace(gang, offers=(A, slow), roaming=roaming)
    patient = decider.decide(situation(work=32.0 * 20 * HOUR, offers=()))
    assert [rent for rent in rents(patient) if rent.offer == slow] == []
    hurried = replace(decider, deadline=NOW + 20 * HOUR).decide(situation(work=32.0 * 20 * HOUR, offers=()))
    assert rents(hurried) == [BASELINE]


def test_spot_machines_that_were_to_leave_later_make_room_for_those_on_demand() -> None:
    later = replace(held(0, A, 7), leaves_at=NOW + HOUR // 2)
    leaving = OVERHEADS.startup + OVERHEADS.eviction + 2 * OVERHEADS.resize
    close = deciding(deadline=NOW + HOUR + leaving - SECOND).decide(situation(later, held(1, A, 1), work=32.0 * HOUR))
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
    assert rents(made.decide(replace(situation(work=32.0 * HOUR), refused=refused))) == [Rent(B, 8, CENT)]
    # What is held on demand stays, and the rest is asked for again.
    some = replace(situation(held(1, A, 4, None), work=32.0 * HOUR), refused=refused)
    assert made.decide(some).actions == (Rent(A, 4, None),)
    idle = replace(deciding(deadline=NOW + HOUR), strategy=Wants(()))
    assert rents(idle.decide(replace(situation(work=32.0 * HOUR), refused=refused))) == [BASELINE]
