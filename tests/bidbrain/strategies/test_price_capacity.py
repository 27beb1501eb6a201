"""`price-capacity` against its formula written out, and against its purpose."""

from __future__ import annotations

from dataclasses import replace
from math import exp

import pytest
from hypothesis import given, strategies as st

from bidbrain.billing import billing_rule, billing_rules
from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.survival import AgeProfile, Exposure
from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation
from bidbrain.strategies.price_capacity import (
    LOOK_WHEN_FULL,
    LOOK_WITH_ROOM,
    PriceCapacity,
    Prospects,
)
from bidbrain.strategies.proteus import JobCosts
from bidbrain.strategies.registry import AmongOpen
from pricing_data.units import HOUR, MINUTE
from tests.pricing_data.histories import START, market

NU, ON_DEMAND = 4.0, 1000
OFFERS = tuple(Offer(market(f"{name}.large"), NU, ON_DEMAND) for name in "abcd")
A, B, C, D = OFFERS
BASELINE = Rent(Offer(market("base", "-"), 8.0, 2000), 4, None)
APPLICATION = JobCosts(
    eviction_hours=1 / 60, resize_hours=1 / 120, startup_hours=1 / 12, reliable_usd_per_hour=0.1
)
PER_SECOND, FIRST_FREE = billing_rule("per-second"), billing_rule("per-second-first-hour-free")


def hazard(rate: float) -> Hazard:
    """A hazard that is almost certain."""
    return Hazard((), Exposure(rate * 1e9, 1e9))


def strategy(
    rates: dict[Offer, float], billing: str = "per-second", **changes: float
) -> PriceCapacity:
    fresh, old = (
        {
            one.market: Prospects.of(hazard(rate), billing_rule(billing), age)
            for one, rate in rates.items()
        }
        for age in (0, 1)
    )
    made = PriceCapacity(tuple(rates), fresh, old, APPLICATION)
    return replace(made, **changes)  # type: ignore[arg-type]


def situation(prices: dict[Offer, int], *holdings: Holding, hours_left: float = 16.0) -> Situation:
    room = 48.0
    return Situation(
        START,
        tuple(prices),
        lambda one: prices[one],
        holdings,
        BASELINE,
        room,
        room * hours_left * HOUR,
    )


def held(offer: Offer, machines: int, age: int = 2 * HOUR, bid: int | None = ON_DEMAND) -> Holding:
    return Holding(machines, Rent(offer, machines, bid), START - age, START - age)


def bought(decision: Decision) -> dict[Offer, int]:
    return {one.offer: one.machines for one in decision.actions if isinstance(one, Rent)}


@given(
    st.floats(0.001, 2),
    st.sampled_from([0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 24.0]),
    st.integers(1, 999),
)
def test_the_price_of_work_is_the_formula_in_closed_form(
    rate: float, horizon: float, price: int
) -> None:
    """With a constant hazard r: E[hours alive] = (1 - exp(-r H)) / r, and under per-second billing
    they are billed.
    """
    chosen = strategy({A: rate})
    found = chosen.price_of_work(A, situation({A: price}, hours_left=horizon))
    alive = (1 - exp(-rate * horizon)) / rate
    useful = alive - 1 / 12 - (1 - exp(-rate * horizon)) / 60 * chosen.pools
    expected = price * (1 + chosen.time_value) * alive / (NU * useful)
    assert found == pytest.approx(expected, rel=0.025)


def test_a_possibly_free_first_hour_is_cheaper_and_only_new_machines_have_one() -> None:
    free, paid = (Prospects.of(hazard(0.7), rule) for rule in (FIRST_FREE, PER_SECOND))
    old = Prospects.of(hazard(0.7), FIRST_FREE, age=1)
    assert free.alive == paid.alive == pytest.approx(old.alive)
    assert all(
        less < more - 0.05 for less, more in zip(free.billed[2:], paid.billed[2:], strict=True)
    )
    assert old.billed == pytest.approx(old.alive, rel=0.01)


def test_a_machine_whose_free_hour_is_over_is_left_for_a_new_one_sooner() -> None:
    chosen = strategy({A: 0.7, B: 0.7}, "per-second-first-hour-free", pools=1, time_value=0.0)
    prices = {A: 201, B: 200}
    assert chosen.decide(situation(prices, held(A, 12, age=HOUR // 2))).actions == ()
    assert chosen.decide(situation(prices, held(A, 12, age=2 * HOUR))).actions == (
        Return(12),
        Rent(B, 12, ON_DEMAND),
    )


@pytest.mark.parametrize("rule", list(billing_rules()))
def test_expectations_are_plausible_under_every_billing_rule(rule: str) -> None:
    for known in (None, hazard(0.3), replace(hazard(5.0), ages=AgeProfile((0.0, 1.0), (3.0, 0.2)))):
        found = Prospects.of(known, billing_rule(rule))
        assert all(0 <= share <= 1 for share in found.taken)
        assert list(found.alive) == sorted(found.alive)
        # An hour may be billed whole although it is not used.
        assert all(
            0 <= billed <= hours + 1
            for billed, hours in zip(found.billed, found.alive, strict=True)
        )


def test_low_price_and_low_hazard_count_together() -> None:
    chosen = strategy({A: 0.01, B: 0.5}, pools=1)
    assert bought(chosen.decide(situation({A: 200, B: 200}))) == {A: 12}
    assert bought(chosen.decide(situation({A: 400, B: 200}))) == {B: 12}


def test_the_room_is_spread_over_pools_that_are_nearly_as_good() -> None:
    chosen = strategy(dict.fromkeys(OFFERS, 0.1), pools=3, margin=0.1)
    assert bought(chosen.decide(situation({A: 200, B: 205, C: 210, D: 215}))) == {A: 4, B: 4, C: 4}
    assert bought(chosen.decide(situation({A: 200, B: 205, C: 300, D: 300}))) == {A: 6, B: 6}
    # Held machines count towards a pool's share.
    now = situation({A: 200, B: 205, C: 300, D: 300}, held(A, 5, age=HOUR // 2))
    assert bought(chosen.decide(now)) == {A: 1, B: 6}


def test_pools_of_very_unequal_machines_do_not_share_the_room() -> None:
    """Shared by two types, a job of eight machines would have four of the small one, for a sixth of
    the work.
    """
    fast, slow, whole = (
        Offer(market(f"x.{size}"), nu, round(ON_DEMAND * nu / NU)) for size, nu in SIZES.items()
    )
    prices = {offer: offer.on_demand // 2 for offer in (fast, slow, whole)}
    rates = dict.fromkeys(prices, 0.1)
    assert bought(strategy(rates).decide(situation(prices))) == {fast: 3}
    assert bought(strategy({**rates, fast: 9.0}).decide(situation(prices))) == {slow: 24}


SIZES = {"a4xlarge": 16.0, "large": 2.0, "z12xlarge": 48.0}


def test_purchases_stay_within_the_room_and_the_next_look_is_soon_only_with_room_left() -> None:
    chosen = strategy({A: 0.1})
    full = chosen.decide(situation({A: 200}))
    assert (bought(full), full.wake_at) == ({A: 12}, START + LOOK_WHEN_FULL)
    kept = chosen.decide(situation({A: 200}, held(A, 12)))
    assert (kept.actions, kept.wake_at) == ((), START + LOOK_WHEN_FULL)
    # All pools but one are full already, so nothing can be bought for the remaining room.
    waiting = chosen.decide(situation({}, held(A, 6)))
    assert (waiting.actions, waiting.wake_at) == ((), START + LOOK_WITH_ROOM)


def test_an_allocation_is_returned_when_the_rest_of_the_job_is_cheaper_elsewhere() -> None:
    chosen = strategy({A: 0.05, B: 0.05}, pools=1)
    dear = {A: 260, B: 200}
    long = chosen.decide(situation(dear, held(A, 12), hours_left=16))
    assert long.actions == (Return(12), Rent(B, 12, ON_DEMAND))
    # In the last quarter of an hour a start-up of five minutes outweighs the gain.
    assert chosen.decide(situation(dear, held(A, 12), hours_left=0.25)).actions == ()


def test_the_baseline_is_rented_only_while_nothing_beats_on_demand() -> None:
    chosen = strategy({A: 0.05})
    for prices in ({}, {A: 999}, {A: 1001}):
        assert chosen.decide(situation(prices)).actions == (BASELINE,)
    on_demand = Holding(4, BASELINE, START - HOUR, START - HOUR)
    assert chosen.decide(situation({}, on_demand)).actions == ()
    assert chosen.decide(situation({A: 200}, on_demand)).actions == (
        Return(4),
        Rent(A, 12, ON_DEMAND),
    )


def test_the_reason_names_the_pools_and_their_price_of_work() -> None:
    reason = strategy({A: 0.05, B: 0.05}, margin=1.0).decide(situation({A: 200, B: 250})).reason
    assert "a.large at $" in reason
    assert "b.large at $" in reason
    assert reason.startswith("rent 6 x a.large, bid $")
    assert "no open pool beats" in strategy({A: 0.05}).decide(situation({})).reason


class Watched:
    """Names itself after the offers it was made for."""

    def __init__(self, offers: tuple[Offer, ...]) -> None:
        self.name = "+".join(one.market.instance_type[0] for one in offers)

    def decide(self, _: Situation) -> Decision:
        return Decision(wake_at=START + HOUR, reason=self.name)


def test_a_strategy_is_rebuilt_for_the_open_offers() -> None:
    chosen = AmongOpen(Watched, OFFERS, "watched")
    everything = chosen.decide(situation(dict.fromkeys(OFFERS, 1)))
    assert (everything.reason, everything.wake_at) == ("a+b+c+d", START + HOUR)
    some = chosen.decide(situation({A: 1, C: 1}))
    assert (some.reason, some.wake_at) == ("a+c", START + 2 * MINUTE)
