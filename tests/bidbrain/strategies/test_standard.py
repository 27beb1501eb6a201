"""`on-demand`, `standard` and `tierml` in situations solved by hand."""

from __future__ import annotations

from bidbrain.strategies.base import Holding, Offer, Rent, Return, Situation
from bidbrain.strategies.standard import (
    LONGEST,
    AlwaysOnDemand,
    Standard,
    TierMl,
    expected_time,
    mttf_by_tenth,
)
from pricing_data.units import HOUR, MINUTE
from tests.pricing_data.histories import START, market, series

A, B = Offer(market("a.large"), 4.0, 1000), Offer(market("b.large"), 8.0, 2000)
BASELINE = Rent(Offer(market("base"), 8.0, 1600), 10, None)
ALWAYS = (float(LONGEST),) * 10
SOON = (10.0 * HOUR,) * 10


def situation(prices: tuple[int, int], *holdings: Holding, now: int = START) -> Situation:
    known = {A.market: prices[0], B.market: prices[1]}
    return Situation(now, (A, B), lambda offer: known[offer.market], holdings, BASELINE, 756.0, 1e9)


def held(rent: Rent, start: int = START) -> Holding:
    return Holding(0, rent, start, start)


def test_on_demand_rents_once() -> None:
    assert AlwaysOnDemand().decide(situation((100, 100))).actions == (BASELINE,)
    assert AlwaysOnDemand().decide(situation((100, 100), held(BASELINE))).actions == ()


def test_standard_takes_the_cheapest_per_work_and_bids_on_demand() -> None:
    assert Standard().decide(situation((300, 500))).actions == (Rent(B, 10, 2000),)
    assert Standard().decide(situation((200, 500))).actions == (Rent(A, 20, 1000),)
    assert Standard().decide(situation((5, 5), held(Rent(B, 10, 2000)))).actions == ()


def test_standard_may_take_the_cheapest_machine() -> None:
    assert Standard(by_machine=True).decide(situation((300, 500))).actions == (Rent(A, 20, 1000),)
    assert Standard(by_machine=True).decide(situation((600, 500))).actions == (Rent(B, 10, 2000),)


def test_standard_ignores_offers_above_on_demand_and_then_rents_on_demand() -> None:
    assert Standard().decide(situation((1001, 500))).actions == (Rent(B, 10, 2000),)
    dear = Standard().decide(situation((1001, 1900)))
    assert (dear.actions, dear.wake_at) == ((BASELINE,), START + HOUR)
    again = Standard().decide(situation((1001, 1900), held(BASELINE), now=START + HOUR))
    assert (again.actions, again.wake_at) == ((), START + 2 * HOUR)
    back = Standard().decide(situation((200, 1900), held(BASELINE), now=START + HOUR))
    assert back.actions == (Return(0), Rent(A, 20, 1000))


def test_tierml_holds_the_longest_lasting_offer_and_breaks_ties_by_price() -> None:
    assert TierMl({A.market: SOON, B.market: ALWAYS}).decide(situation((100, 900))).actions == (
        Rent(B, 10, 2000),
    )
    assert TierMl({A.market: ALWAYS, B.market: ALWAYS}).decide(situation((100, 900))).actions == (
        Rent(A, 20, 1000),
    )


def test_tierml_switches_when_another_lasts_twice_as_long_and_keeps_the_paid_hour() -> None:
    strategy = TierMl({A.market: SOON, B.market: ALWAYS})
    decision = strategy.decide(
        situation((100, 900), held(Rent(A, 20, 1000)), now=START + 10 * MINUTE)
    )
    assert decision.actions == (Return(0, START + HOUR), Rent(B, 10, 2000))
    nearly = TierMl({A.market: (40.0 * HOUR,) * 10, B.market: ALWAYS})
    assert nearly.decide(situation((100, 900), held(Rent(A, 20, 1000)))).actions == ()


def test_tierml_rents_on_demand_while_every_price_is_too_high() -> None:
    strategy = TierMl({A.market: ALWAYS, B.market: ALWAYS})
    assert strategy.decide(situation((1001, 2001))).actions == (BASELINE,)
    assert strategy.decide(situation((999, 1999))).actions == (
        BASELINE,
    )  # more expensive per work than the baseline
    assert strategy.decide(situation((100, 2001), held(BASELINE), now=START + MINUTE)).actions == (
        Return(0, START + HOUR),
        Rent(A, 20, 1000),
    )


def test_mean_times_depend_on_the_current_price() -> None:
    day = 86_400
    calm = series((0, 50), (30 * day, 50))
    assert mttf_by_tenth(calm, 1000)[0] == LONGEST
    # At 950 for an hour before it crosses, every ten days: soon; at 50 it is days away.
    steps = [
        (k * 10 * day + at, price)
        for k in range(4)
        for at, price in ((0, 50), (9 * day, 950), (9 * day + 3600, 1500))
    ]
    mttf = mttf_by_tenth(series(*steps, (40 * day, 50)), 1000)
    assert expected_time(mttf, 950, 1000) < HOUR
    assert expected_time(mttf, 50, 1000) == LONGEST
    # Never seen: takes the value of the next higher tenth.
    assert expected_time(mttf, 500, 1000) == expected_time(mttf, 950, 1000)
    assert expected_time(mttf, 1001, 1000) == 0
