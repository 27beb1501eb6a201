from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.arrays import Floats
from bidbrain.billing import SampledSurvival, billing_rule, billing_rules, expected_seconds
from bidbrain.cost import (
    Application,
    FootprintAllocation,
    ImpossibleAllocation,
    chance_of_eviction,
    evaluate,
)
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND, parse_usd
from tests.pricing_data.histories import market

A, B, C = market("a.large"), market("b.large"), market("c.large")

betas = st.sampled_from((0.0, 1.0)) | st.floats(0, 1)
lefts = st.sampled_from((1, 10 * MINUTE, HOUR)) | st.integers(1, HOUR)


def saturating(size: Floats) -> Floats:
    return np.asarray(1 / (1 + np.asarray(size) / 500))


@st.composite
def allocations(draw: st.DrawFn) -> FootprintAllocation:
    return FootprintAllocation(
        market=draw(st.sampled_from((A, B, C))),
        machines=draw(st.integers(1, 200)),
        price=draw(st.integers(1, 10**10)),
        nu=draw(st.sampled_from((0.0, 4.0, 36.0))),
        left=draw(lefts),
        beta=draw(betas),
        eviction_after=draw(st.floats(0, 2 * HOUR)),
        paid_seconds=draw(st.none() | st.floats(0, 7200)),
        startup=draw(st.sampled_from((0, 5 * MINUTE))),
        planned=draw(st.booleans()),
    )


applications = st.builds(
    Application,
    phi=st.sampled_from((1.0, 0.8, saturating)),
    sigma=st.integers(0, 10 * MINUTE),
    lambda_=st.integers(0, 30 * MINUTE),
)


def test_a_footprint_solved_by_hand() -> None:
    """Three reliable machines, a half-used allocation, and a planned one that may be evicted after
    20 minutes.
    """
    reliable = FootprintAllocation(A, 3, parse_usd("0.2"), nu=0, left=30 * MINUTE)
    held = FootprintAllocation(
        B, 10, parse_usd("0.05"), nu=8, left=30 * MINUTE, beta=0.2, eviction_after=10 * MINUTE
    )
    planned = FootprintAllocation(
        C, 4, parse_usd("0.1"), 16, HOUR, beta=0.5, eviction_after=20 * MINUTE, planned=True
    )
    found = evaluate([reliable, held, planned], Application(0.9, 3 * MINUTE, 5 * MINUTE))

    assert found.eviction == pytest.approx(1 - 0.8 * 0.5)
    assert found.stall_hours == pytest.approx(0.6 * 5 / 60)
    assert found.resize_hours == pytest.approx(3 / 60)
    assert [share.cost_usd for share in found.shares] == pytest.approx([0.3, 0.8 * 0.25, 0.5 * 0.4])
    # omega 26 and 40 minutes, less 3 for the pause after an eviction and 3 for the change.
    assert [share.useful_hours * 60 for share in found.shares] == pytest.approx([24, 20, 34])
    assert [share.work for share in found.shares] == pytest.approx(
        [0, 0.9 * 80 * 20 / 60, 0.9 * 64 * 34 / 60]
    )
    assert found.usd_per_work == pytest.approx(0.7 / (24 + 32.64))


def test_sigma_counts_only_when_the_footprint_changes() -> None:
    held = FootprintAllocation(A, 1, 1000, nu=1)
    job = Application(sigma=6 * MINUTE)
    assert evaluate([held], job).shares[0].useful_hours == pytest.approx(1)
    assert evaluate([held, FootprintAllocation(B, 1, 1, 1, planned=True)], job).shares[
        0
    ].useful_hours == pytest.approx(0.9)


def test_a_stall_longer_than_what_is_left_undoes_no_work() -> None:
    ending = FootprintAllocation(A, 5, 1000, nu=4, left=MINUTE, beta=1.0, eviction_after=SECOND)
    assert evaluate([ending], Application(lambda_=2 * MINUTE)).work == 0


def test_machines_that_start_up_are_paid_and_do_no_work() -> None:
    new = FootprintAllocation(
        A, 2, parse_usd("0.5"), nu=4, beta=0.5, eviction_after=20 * MINUTE, startup=5 * MINUTE
    )
    assert new.cost_usd == pytest.approx(0.5)
    assert new.expected_hours * 60 == pytest.approx(35)
    assert FootprintAllocation(A, 2, 1, nu=4, left=MINUTE, startup=5 * MINUTE).expected_hours == 0


def test_phi_is_asked_at_the_size_of_the_whole_footprint() -> None:
    found = evaluate(
        [FootprintAllocation(A, 10, 1000, nu=20), FootprintAllocation(B, 75, 1000, nu=4)],
        Application(saturating),
    )
    assert found.phi == pytest.approx(0.5)
    assert found.work == pytest.approx(250)


def test_machines_that_only_cost_have_no_cost_per_work() -> None:
    assert evaluate([FootprintAllocation(A, 3, 1000, nu=0)], Application()).usd_per_work == math.inf
    assert evaluate([], Application()).usd_per_work == math.inf


def test_every_term_stands_in_the_explanation() -> None:
    held = FootprintAllocation(
        A, 10, parse_usd("0.05"), nu=8, left=30 * MINUTE, beta=0.2, eviction_after=10 * MINUTE
    )
    planned = FootprintAllocation(
        B, 4, parse_usd("0.1"), nu=16, beta=0.5, eviction_after=20 * MINUTE, planned=True
    )
    assert evaluate(
        [held, planned], Application(0.9, 3 * MINUTE, 5 * MINUTE)
    ).explain().splitlines() == [
        "$0.007062 per unit of work: $0.4 for an expected work of 56.64, at 90.0% scaling "
        "efficiency",
        "each machine loses 180.0 s to evictions (probability of at least one: 60.0%), 180.0 s to "
        "changes of the fleet",
        "aws/us-east-1/us-east-1a/a.large: 10 held at $0.05/h, 30.0 min left of the hour, 20.0% "
        "evicted: $0.2; runs 26.0 min, 20.0 useful, 8 per machine-hour: work 24",
        "aws/us-east-1/us-east-1a/b.large: 4 planned at $0.1/h, 60.0 min left of the hour, 50.0% "
        "evicted: $0.2; runs 40.0 min, 34.0 useful, 16 per machine-hour: work 32.64",
    ]


def test_allocations_of_one_market_fall_together() -> None:
    low = FootprintAllocation(A, 1, 1, 1, HOUR, 0.4, HOUR / 2)
    high = FootprintAllocation(A, 1, 1, 1, HOUR, 0.1, HOUR / 2)
    other = FootprintAllocation(B, 1, 1, 1, HOUR, 0.5, HOUR / 2)
    assert chance_of_eviction([low, high]) == pytest.approx(0.4)
    assert chance_of_eviction([low, high, other]) == pytest.approx(1 - 0.6 * 0.5)


def test_of_hours_that_end_apart_each_moment_counts_the_lowest_bid_still_running() -> None:
    """0.36 in 30 minutes at the low bid; 0.19 in an hour, so 0.1 in its second half, at the high
    one.
    """
    low = FootprintAllocation(A, 1, 1, 1, 30 * MINUTE, 0.36, MINUTE)
    high = FootprintAllocation(A, 1, 1, 1, HOUR, 0.19, MINUTE)
    assert chance_of_eviction([low, high]) == pytest.approx(1 - 0.64 * 0.9)


def test_together_equals_simulated_prices_that_cross_nested_bids() -> None:
    """Independent check by brute force: one price that jumps above each bid at memoryless
    moments."""
    rng = np.random.default_rng(1)
    hazards, hours = np.array([3.0, 1.0, 0.4]), np.array([0.2, 0.9, 0.5])
    # Beyond the lowest bid it jumps 3 times an hour; 1 of 3 goes beyond the second, 0.4 of 3 beyond
    # the third.
    runs, jumps = 200_000, 30
    times = np.cumsum(rng.exponential(1 / hazards[0], (runs, jumps)), axis=1)
    heights = rng.random((runs, jumps)) * hazards[0]
    fallen = [
        ((heights < hazard) & (times < left)).any(axis=1)
        for hazard, left in zip(hazards, hours, strict=True)
    ]
    footprint = [
        FootprintAllocation(A, 1, 1, 1, round(left * HOUR), float(-np.expm1(-hazard * left)), 0.0)
        for hazard, left in zip(hazards.tolist(), hours.tolist(), strict=True)
    ]
    simulated = float(np.any(fallen, axis=0).mean())
    assert chance_of_eviction(footprint) == pytest.approx(simulated, abs=0.005)


@given(st.lists(allocations(), max_size=6))
def test_falling_together_lies_between_the_likeliest_and_falling_apart(
    footprint: list[FootprintAllocation],
) -> None:
    together = chance_of_eviction(footprint)
    apart = 1 - math.prod(1 - allocation.beta for allocation in footprint)
    assert max((one.beta for one in footprint), default=0.0) <= together + 1e-9
    assert together <= apart + 1e-9
    if len({one.market for one in footprint}) == len(footprint):
        assert together == pytest.approx(apart, abs=1e-9)


@pytest.mark.parametrize("name", list(billing_rules()))
def test_cost_follows_the_rule_of_the_provider(name: str) -> None:
    """Half an hour of a first hour remains; survival falls linearly from 1 to 1/2 within it."""
    survival = SampledSurvival(np.array([0.0, 30 * MINUTE, HOUR]), np.array([1.0, 1.0, 0.5]))
    seconds = float(expected_seconds(billing_rule(name), 30 * MINUTE, 30 * MINUTE, survival))
    one = FootprintAllocation(
        A, 2, parse_usd("0.3"), 4, 30 * MINUTE, 0.5, 15 * MINUTE, paid_seconds=seconds
    )
    refunded = FootprintAllocation(A, 2, parse_usd("0.3"), 4, 30 * MINUTE, 0.5, 15 * MINUTE)
    factor = {
        "hourly-refund": 0.5,
        "per-second-first-hour-free": 0.5,
        "per-second": 0.75,
        "gcp": 0.75,
        "slurm": 0.75,
        "runpod": 0.75,
        "vast": 0.75,
    }
    assert one.cost_usd == pytest.approx(0.3 * factor.get(name, 0.75 - 0.5 / 60))
    assert refunded.cost_usd == pytest.approx(0.3 * 0.5)


@pytest.mark.parametrize(
    ("wrong", "story"),
    [
        ({"machines": 0}, "0 machines"),
        ({"price": -1}, "-1 nano-dollars"),
        ({"price": 0}, "at 0 nano-dollars, .*; only a reservation can cost nothing"),
        ({"price": -1, "market": replace(A, reservation="cr-0abc")}, "-1 nano-dollars"),
        ({"left": 0}, "0 microseconds left"),
        ({"nu": -1.0}, "nu -1"),
        ({"startup": -1}, "start-up -1"),
        ({"beta": 1.5}, "beta 1.5 is not a probability"),
        ({"beta": math.nan}, "beta nan is not a probability"),
        ({"beta": 0.1}, "needs a time to eviction"),
    ],
)
def test_impossible_allocations_are_refused(wrong: dict[str, object], story: str) -> None:
    with pytest.raises(ImpossibleAllocation, match=story):
        FootprintAllocation(**{"market": A, "machines": 1, "price": 1, "nu": 1.0, **wrong})  # type: ignore[arg-type]


def test_impossible_jobs_are_refused() -> None:
    with pytest.raises(ImpossibleAllocation, match="neither may be below 0"):
        Application(sigma=-1)
    for phi in (0.0, -0.5, math.nan, lambda size: size * 0):
        with pytest.raises(ImpossibleAllocation, match="must be above 0"):
            evaluate([FootprintAllocation(A, 1, 1, 1)], Application(phi=phi))


def test_markets_are_told_apart_by_more_than_their_type() -> None:
    zones = [
        FootprintAllocation(
            Market.parse(f"aws/us-east-1/us-east-1{z}/c4.xlarge"), 1, 1, 1, HOUR, 0.5, MINUTE
        )
        for z in "ab"
    ]
    assert chance_of_eviction(zones) == pytest.approx(0.75)
