from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain import cost
from bidbrain.eviction.estimate import Estimate
from bidbrain.strategies.base import Holding, Offer, Rent, Return, Situation
from bidbrain.strategies.proteus import (
    HIGHEST_DELTA,
    LOWEST_DELTA,
    AllocationTerms,
    JobCosts,
    Odds,
    Proteus,
    _total,
    bid_deltas,
)
from pricing_data.market import NO_ZONE, Market
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, SECOND
from tests.bidbrain.lab.backtest.worlds import BASELINE, offer, restless
from tests.pricing_data.histories import START, market

PRICE = 20_000_000
OFFERS = (Offer(market("a.large"), 8.0, 10 * PRICE), Offer(market("b.large"), 36.0, 40 * PRICE))
# Nothing is evicted from b; from a often, except far above the price.
ODDS = {
    OFFERS[0].market: Odds((LOWEST_DELTA, 100 * LOWEST_DELTA), (0.5, 0.1), (0.5, 0.6)),
    OFFERS[1].market: Odds((LOWEST_DELTA,), (0.0,), (1.0,)),
}
APPLICATION = JobCosts(1 / 60, 1 / 120, 1 / 12, 0.6)
PROTEUS = Proteus(OFFERS, ODDS, APPLICATION)


def situation(
    *holdings: Holding, now: int = START, prices: tuple[int, int] = (PRICE, 4 * PRICE)
) -> Situation:
    by_market = dict(zip([one.market for one in OFFERS], prices, strict=True))
    return Situation(
        now, OFFERS, lambda one: by_market[one.market], holdings, BASELINE, 756.0, 1e12
    )


def test_the_odds_of_the_moment_decide_at_that_moment_only() -> None:
    """By history, b is never evicted; at the moment, only a bid far above the price of a is not."""
    asked = []

    def stated(offer: Offer, distance: int) -> Estimate:
        asked.append((offer, distance))
        beta = 0.0 if (offer, distance) == (OFFERS[0], PROTEUS.deltas[-2]) else 0.9
        return Estimate(beta, lambda: (beta, beta), 60.0, 1.0, "stated")

    proteus = replace(PROTEUS, now=START, stated=stated)
    then, later = (proteus.decide(situation(now=now)) for now in (START, START + HOUR))
    assert {(rent.offer, rent.bid) for rent in then.rents} == {
        (OFFERS[0], PRICE + PROTEUS.deltas[-2])
    }
    assert set(asked) == {(offer, delta) for offer in OFFERS for delta in PROTEUS.deltas}
    assert later.rents == PROTEUS.decide(situation(now=START + HOUR)).rents != then.rents


def held(number: int, chosen: Offer, machines: int, bid: int, start: int = START) -> Holding:
    return Holding(number, Rent(chosen, machines, bid), start, start + 300 * SECOND)


def test_machines_may_be_held_where_none_are_on_offer_at_the_moment() -> None:
    """The odds of a market that was left out were not known at the moment of a plan."""

    def stated(_: Offer, __: int) -> Estimate:
        return Estimate(0.5, lambda: (0.5, 0.5), 60.0, 1.0, "stated")

    alone = Proteus(OFFERS[:1], ODDS, APPLICATION)
    owned = held(0, OFFERS[1], 10, 5 * PRICE, START - HOUR + 60 * SECOND)
    now = replace(alone, now=START, stated=stated)
    decided = [each.decide(situation(owned)) for each in (now, alone)]
    given_back = [[each for each in one.actions if isinstance(each, Return)] for one in decided]
    assert given_back == [[], []]


betas, medians, left = st.floats(0.0, 0.95), st.floats(0.3, 1.0), st.floats(0.3, 1.0)


@given(
    st.lists(
        st.tuples(betas, medians, left, st.integers(1, 50), st.integers(10**6, 10**9)),
        min_size=1,
        max_size=6,
    )
)
def test_the_cost_per_work_is_that_of_the_equations(
    rows: list[tuple[float, float, float, int, int]],
) -> None:
    """The fast sums used in a decision equal `bidbrain.cost` term by term (Eq. 4.1-4.4)."""
    terms, allocations = [], []
    for number, (beta, median, hours, machines, price) in enumerate(rows):
        survival = (1 - beta) ** hours
        useful = hours * (survival + (1 - survival) * median)
        dollars = survival * machines * price / NANOS_PER_DOLLAR * hours
        terms.append(AllocationTerms(dollars, survival, useful * machines * 8.0, machines * 8.0))
        span = round(hours * HOUR)
        allocations.append(
            cost.FootprintAllocation(
                market(f"{number}.large"),
                machines,
                price,
                8.0,
                left=span,
                beta=1 - survival,
                eviction_after=median * span,
                planned=True,
            )
        )
    reliable = cost.FootprintAllocation(
        Market("aws", "us-east-1", NO_ZONE, "r"), 1, int(0.6 * NANOS_PER_DOLLAR), 0.0
    )
    stalls = cost.Application(1.0, sigma=HOUR // 120, lambda_=HOUR // 60)
    expected = cost.evaluate([*allocations, reliable], stalls)
    assert PROTEUS._cost_per_work(_total(terms), changes=True) == pytest.approx(
        expected.usd_per_work, rel=1e-6
    )


@given(
    st.floats(0.0, 900.0),
    st.lists(
        st.tuples(st.floats(0.01, 5.0), st.floats(0.0, 1.0), st.floats(0.0, 200.0)), max_size=4
    ),
    st.lists(st.integers(10**6, 10**9), min_size=len(OFFERS), max_size=len(OFFERS)),
)
def test_the_best_purchase_is_the_best_of_all_that_fit_counted_one_by_one(
    room: float, owned: list[tuple[float, float, float]], prices: list[int]
) -> None:
    """Among them are bids that are certain to be evicted, and offers that do not fit."""
    certain = (
        {market: Odds((3 * LOWEST_DELTA,), (1.0,), (0.0,)) for market in ODDS}
        if room < 100
        else ODDS
    )
    proteus = Proteus(OFFERS, certain, APPLICATION)
    total = _total([AllocationTerms(usd, survival, nu / 2, nu) for usd, survival, nu in owned])
    asked = np.array(prices, dtype=float)
    grid = proteus._candidates(*proteus._bids(situation(), asked), asked, room)
    found, at = proteus._best(total, grid)
    costs = {
        (row, column): proteus._cost_per_work(_total([total, grid.at(row, column)]), changes=True)
        for row in range(len(OFFERS))
        for column in range(len(proteus.deltas))
        if grid.machines[row] >= 1
    }
    assert found == pytest.approx(min(costs.values(), default=np.inf))
    assert at is None if found == np.inf else costs[at or (0, 0)] == pytest.approx(found)


def test_the_room_is_filled_in_requests_of_128_and_the_last_takes_the_rest() -> None:
    bought = [action for action in PROTEUS.decide(situation()).actions if isinstance(action, Rent)]
    sizes = [rent.machines * rent.offer.nu for rent in bought]
    assert sizes[0] in (128.0, 144.0)
    assert 756 - 8 < sum(sizes) <= 756
    assert all(rent.bid is not None and rent.bid > PRICE for rent in bought)


def test_only_bids_that_may_be_made_are_compared() -> None:
    """Close to the price, a is evicted in two minutes; far above it, never."""
    odds = {
        **ODDS,
        OFFERS[0].market: Odds((LOWEST_DELTA, HIGHEST_DELTA), (0.96, 0.0), (2 / 60, 1.0)),
    }
    proteus, asked = Proteus(OFFERS[:1], odds, APPLICATION), situation(prices=(PRICE, 4 * PRICE))
    free = [action for action in proteus.decide(asked).actions if isinstance(action, Rent)]
    assert {rent.bid for rent in free} == {PRICE + HIGHEST_DELTA}
    capped = replace(asked, highest_bid=lambda each: each.on_demand)
    assert proteus.decide(capped).actions == (), "an evicted hour is refunded, but does no work"
    enough = replace(asked, highest_bid=lambda _: PRICE + HIGHEST_DELTA)
    assert proteus.decide(enough).actions == tuple(free)


def test_nothing_is_bought_that_makes_work_more_expensive() -> None:
    owned = held(0, OFFERS[1], 10, 5 * PRICE)
    decision = PROTEUS.decide(
        situation(owned, prices=(50 * PRICE, 4 * PRICE), now=START + HOUR // 2)
    )
    assert {action.offer for action in decision.actions if isinstance(action, Rent)} <= {OFFERS[1]}
    dear = Proteus(OFFERS[:1], ODDS, APPLICATION)
    decision = dear.decide(situation(owned, prices=(50 * PRICE, 4 * PRICE), now=START + HOUR // 2))
    assert (decision.actions, decision.wake_at) == ((), START + HOUR // 2 + 120 * SECOND)


def test_renewal_before_the_paid_hour_ends_follows_cost_per_work() -> None:
    renewal = START + HOUR - 120 * SECOND
    cheap, dear = held(0, OFFERS[1], 21, 20 * PRICE), held(1, OFFERS[0], 16, 90 * PRICE)
    decision = PROTEUS.decide(situation(cheap, now=renewal))
    assert not [action for action in decision.actions if isinstance(action, Return)]
    decision = PROTEUS.decide(situation(cheap, dear, now=renewal, prices=(80 * PRICE, 4 * PRICE)))
    assert Return(1, START + HOUR) in decision.actions
    assert Return(0, START + HOUR) not in decision.actions


def test_on_demand_machines_are_renewed_at_their_own_price() -> None:
    """They stood in while no spot market was open; at the price of spot they would seem cheap, and
    would stay.
    """
    stand_in = Holding(0, Rent(OFFERS[0], 16, None), START, START)
    late = situation(stand_in, now=START + HOUR - 2 * SECOND)
    alone = Proteus(OFFERS[:1], ODDS, APPLICATION)
    assert Return(0, START + HOUR) in alone.decide(late).actions


def test_with_a_full_room_the_next_decision_is_before_the_next_hour_ends() -> None:
    full = held(0, OFFERS[1], 21, 20 * PRICE)
    assert (
        PROTEUS.decide(situation(full, now=START + 60 * SECOND)).wake_at
        == START + HOUR - 120 * SECOND
    )


def test_a_fixed_bid_never_bids_anything_else() -> None:
    strategy = Proteus(OFFERS, ODDS, APPLICATION, deltas=(LOWEST_DELTA,), name="fixed-bid:0.0001")
    bought = [action for action in strategy.decide(situation()).actions if isinstance(action, Rent)]
    assert bought
    assert {rent.bid for rent in bought} <= {PRICE + LOWEST_DELTA, 4 * PRICE + LOWEST_DELTA}
    assert strategy.name == "fixed-bid:0.0001"


def test_odds_are_the_crossings_of_the_history() -> None:
    known = restless(3, 100)
    odds = Odds.of(known)
    assert odds.at(-1) == (1.0, 0.0)
    assert odds.at(0)[0] >= odds.at(HIGHEST_DELTA)[0]
    assert list(odds.betas) == sorted(odds.betas, reverse=True)
    assert all(0 <= median <= 1 for median in odds.medians)
    assert offer(known).market in {known.market}


def test_bid_deltas_are_spread_between_the_papers_bounds() -> None:
    deltas = bid_deltas(10)
    assert (deltas[0], deltas[-1], len(deltas)) == (LOWEST_DELTA, HIGHEST_DELTA, 10)
    assert np.allclose(np.diff(np.log(deltas)), np.log(4000) / 9, rtol=1e-3)
