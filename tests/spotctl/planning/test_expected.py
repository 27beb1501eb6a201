"""What a footprint is expected to cost, by hand and against the equations."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, strategies as st

from bidbrain.billing import billing_rule, billing_rules
from bidbrain.cost import Application
from bidbrain.eviction.estimate import Estimate
from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.survival import Exposure
from bidbrain.strategies.base import Offer, Rent
from pricing_data.units import HOUR, MINUTE
from spotctl.planning.cost import Conditions, beta_of, estimate, first_hour, later_hour
from spotctl.planning.facts import past_of
from spotctl.planning.values import Choice
from tests.spotctl.planning.worlds import CENT, NOW, flat, offer, snapshot, spiky

A, B = (Offer(offer("a.large", zone), 4.0, 20 * CENT) for zone in "ab")
FLAT, SPIKY = flat(A.market, 4 * CENT), spiky(B.market, 4 * CENT, 30 * CENT)
PAST = past_of([FLAT, SPIKY], lambda _: Hazard((), Exposure(0.0, 1e9)), NOW)


def chosen(rent: Rent, price: int, beta: float, after: float | None) -> Choice:
    return Choice(rent, price, Estimate(beta, beta, beta, after, 1.0, "told"))


def under(billing: str = "hourly-refund", reliable: Rent | None = None) -> Conditions:
    return Conditions(billing_rule(billing), Application(1.0, MINUTE // 2, MINUTE), 5 * MINUTE, reliable)


def test_beta_is_the_share_of_moments_before_a_spike_with_an_interval() -> None:
    """Every four hours half an hour of spike: who starts in the hour before one is evicted."""
    found = beta_of(PAST, Rent(B, 8, 5 * CENT), 4 * CENT)
    assert found.probability == pytest.approx(0.25, abs=0.01)
    assert found.low < found.probability < found.high
    assert found.median_seconds_to_eviction == pytest.approx(1800, rel=0.02)
    assert beta_of(PAST, Rent(B, 8, 30 * CENT), 4 * CENT).probability == pytest.approx(0.0, abs=1e-8)
    calm = beta_of(PAST, Rent(A, 8, 4 * CENT), 4 * CENT)
    assert calm.probability == pytest.approx(0.0, abs=1e-8)
    assert calm.probability < calm.high < 0.02
    assert beta_of(PAST, Rent(A, 8, None), 4 * CENT).high == 0.0


def test_beta_includes_the_hazard_in_addition_to_the_price() -> None:
    taken = past_of([SPIKY], lambda _: Hazard((), Exposure(1e6, 1e7)), NOW)
    both = beta_of(taken, Rent(B, 8, 5 * CENT), 4 * CENT)
    alone = beta_of(PAST, Rent(B, 8, 5 * CENT), 4 * CENT)
    assert 1 - both.probability == pytest.approx((1 - alone.probability) * 2.718281828**-0.1, rel=1e-3)


def test_the_first_hour_is_equations_4_1_to_4_4() -> None:
    beta, after = 0.25, 1800.0
    found = first_hour([chosen(Rent(B, 8, 5 * CENT), 4 * CENT, beta, after)], under(reliable=Rent(A, 1, None)))
    cost = (1 - beta) * 0.04 * 8 + 0.2
    useful = (0.75 + 0.25 * 0.5 - 5 / 60) - beta / 60 - 0.5 / 60
    assert found.cost_usd == pytest.approx(cost)
    assert found.work == pytest.approx(8 * 4 * useful)
    assert found.usd_per_work == pytest.approx(cost / (32 * useful))


def test_in_a_later_hour_what_was_taken_is_replaced_and_paid_for() -> None:
    """A job that is evicted after half an hour has it refunded; the machine in its place starts up, and is paid for the
    rest unless it is evicted too."""
    found = later_hour([chosen(Rent(B, 8, 5 * CENT), 4 * CENT, 0.25, 1800.0)], under())
    assert found.cost_usd == pytest.approx(8 * 0.04 * (0.75 + 0.25 * 0.5 * 0.75))
    assert found.work == pytest.approx(32 * (0.75 ** (5 / 60) - 0.25 / 60))


def test_a_whole_job_by_hand() -> None:
    """The first hour has 54.5 useful minutes, every other one 60."""
    part = chosen(Rent(A, 8, 20 * CENT), 4 * CENT, 0.0, None)
    found = estimate([part], under("per-second", Rent(B, 1, None)), 320.0)
    hours = 1 + (320 - 32 * 54.5 / 60) / 32
    assert found.hours == pytest.approx(hours)
    assert list(found.terms) == pytest.approx([8 * 0.04 * hours, 0.2 * hours])
    short = estimate([part], under("per-second"), 32 * 54.5 / 120)
    assert short.hours == pytest.approx(1 / 12 + 11 / 12 / 2)
    timed = estimate([part], under("per-second"), None, 2.0)
    assert timed.hours == pytest.approx(2 + 1 / 12)
    assert estimate([part], under("per-second"), 320.0, 2.0).hours == pytest.approx(2 + 1 / 12)


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 100), st.floats(0, 0.9), st.floats(1, 3600)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(list(billing_rules())),
    st.floats(0.1, 2000),
    st.booleans(),
)
def test_terms_add_up(parts: list[tuple[int, int, float, float]], billing: str, amount: float, helped: bool) -> None:
    made = [chosen(Rent(B, k, 30 * CENT), cents * CENT // 4, beta, after) for k, cents, beta, after in parts]
    found = estimate(made, under(billing, Rent(A, 2, None) if helped else None), amount)
    first, later = found.first.cost_usd, found.later.cost_usd
    assert sum(found.terms) == pytest.approx(found.usd)
    assert found.usd == pytest.approx(first * min(found.hours, 1) + later * max(found.hours - 1, 0))
    done = found.first.work if found.hours >= 1 else amount
    assert done + max(found.hours - 1, 0) * found.later.work >= amount * (1 - 1e-9)


@pytest.mark.parametrize(("rule", "beta"), list(product(billing_rules(), (0.0, 0.5, 1.0))))
def test_every_rule_has_an_answer_at_the_ends_of_beta(rule: str, beta: float) -> None:
    parts = [chosen(Rent(B, 8, 5 * CENT), 4 * CENT, beta, 1800.0)]
    for hour in (first_hour(parts, under(rule)), later_hour(parts, under(rule))):
        assert 0 <= hour.cost_usd <= 8 * 0.04 * (1 + 1e-9)


def test_the_market_history_ends_at_the_moment_and_is_long_enough() -> None:
    later = flat(A.market, 9 * CENT, since=NOW - HOUR, until=NOW + 30 * HOUR)
    history = snapshot(later).history(0)
    assert (history.last, history.last - history.first) == (NOW, 4 * HOUR)
    assert set(history.prices.tolist()) == {9 * CENT}
