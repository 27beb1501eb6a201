"""Capacity and hazards against traces read tick by tick, and the evidence of the training span."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.errors import BidBrainError
from bidbrain.eviction.survival import AgeProfile
from bidbrain.lab.backtest.scenario import BadEvictions, ByAvailability, ByHazard, deal
from bidbrain.replay.market import Capacity, DrawnLives, MarketReplay, Mortality
from pricing_data.availability import AvailabilityTrace
from pricing_data.units import HOUR, SECOND, Span
from tests.pricing_data.histories import START, market, series

A, B = market("a.large"), market("b.large")
ROOM = {A: 8, B: 8}
GAP = 600


def trace(ups: list[int], gap: int = GAP) -> AvailabilityTrace:
    return AvailabilityTrace("drawn", gap, np.array(ups, dtype=np.int64))


def spans(train_hours: float, test_hours: float) -> tuple[Span, Span]:
    middle = START + int(train_hours * HOUR)
    return Span(START, middle), Span(middle, middle + int(test_hours * HOUR))


def replayed(regime: ByAvailability, known: tuple[Span, Span]) -> MarketReplay:
    return regime.replay([series((0, 5), (10_000_000, 5), of=A)], ROOM, *known)


levels = st.lists(st.integers(0, 4), min_size=2, max_size=40)


@given(levels, st.integers(-5, 45), st.integers(1, 5))
def test_the_first_shortage_equals_a_linear_scan(ups: list[int], after: int, held: int) -> None:
    capacity = Capacity(np.arange(len(ups)) * 10, np.array(ups))
    expected = next(
        (at * 10 for at, up in enumerate(ups) if at * 10 > after * 10 and up < held), None
    )
    assert capacity.first_below(held, after * 10) == expected
    assert capacity.at(after * 10) == ups[min(max(after, 0), len(ups) - 1)]


@given(st.lists(st.integers(0, 4), min_size=24, max_size=60), st.integers(0, 17))
def test_a_long_trace_is_replayed_from_the_start_of_training(ups: list[int], tick: int) -> None:
    known = spans(1, 3)
    market_then = replayed(ByAvailability({A: trace(ups)}), known)
    time = known[1].start + tick * GAP * SECOND + GAP * SECOND // 2
    share = ups[6 + tick] / max(*ups, 1)
    assert market_then.capacity(A, time) == int(ROOM[A] * share + 1e-9)


def test_a_short_trace_is_cut_in_proportion_and_each_part_repeated_in_its_own_span() -> None:
    known = spans(10, 5)
    regime = ByAvailability({A: trace([2, 2, 2, 2, 1, 0])})
    market_then = replayed(regime, known)
    there = [market_then.capacity(A, known[1].start + tick * GAP * SECOND) for tick in range(6)]
    assert there == [4, 0, 4, 0, 4, 0]
    # None of the four training ticks shows an eviction.
    hazard = regime.learned([A], *known)[A]
    assert hazard is not None
    assert hazard.observed.evictions == 0


def test_capacity_may_be_below_what_the_job_wants() -> None:
    market_then = replayed(ByAvailability({A: trace([1, 2] * 20)}, machines=3), spans(1, 4))
    assert {market_then.capacity(A, START + HOUR + tick * GAP * SECOND) for tick in range(6)} == {
        1,
        3,
    }


def test_capacity_is_unlimited_without_a_trace() -> None:
    market_then = replayed(ByAvailability({B: trace([0, 0] * 20)}), spans(1, 4))
    assert market_then.capacity(A, START) == float("inf")
    assert market_then.short_from(A, 1000, START) is None


def test_a_trace_of_one_tick_is_refused() -> None:
    with pytest.raises(BadEvictions, match="has one tick"):
        ByAvailability({A: trace([1])})


@given(
    st.lists(st.booleans(), min_size=60, max_size=60),
    st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_the_evidence_does_not_depend_on_the_test_span(
    past: list[bool], future: list[bool]
) -> None:
    known = spans(10, 8)
    one, other = (
        ByAvailability({A: trace([int(up) for up in past + later])}).learned([A, B], *known)
        for later in (future, future[::-1])
    )
    assert one == other


def test_the_evidence_is_the_life_of_machines_bought_at_any_tick() -> None:
    """Up for 50 minutes, down for 10, repeatedly: bought at any of five ticks, evicted after 5 to 1
    ticks.
    """
    known = spans(100, 10)
    windows = market("a.large", os="windows")
    learned = ByAvailability({A: trace([1, 1, 1, 1, 1, 0] * 120)}).learned([A, B, windows], *known)
    hazard = learned[A]
    assert hazard is not None
    assert hazard.observed.evictions == pytest.approx(100, abs=1)
    assert hazard.observed.hours / hazard.observed.evictions == pytest.approx(3 * GAP / 3600)
    assert hazard.rate[0] == pytest.approx(2.0, rel=0.02)
    # Observations in one market are weaker evidence for another of its family.
    assert learned[B] is not None
    assert learned[windows] is not None


def test_machines_evicted_together_count_once() -> None:
    known = spans(100, 10)
    one, sixteen = (
        ByAvailability({A: trace([n, n, n, 0] * 200)}).learned([A], *known)[A] for n in (1, 16)
    )
    assert one is not None
    assert sixteen is not None
    assert one.observed.evictions == pytest.approx(sixteen.observed.evictions)
    assert one.observed.hours == pytest.approx(sixteen.observed.hours)


@given(st.floats(0.01, 5), st.floats(0, 20))
def test_lives_are_drawn_by_the_cumulative_hazard(rate: float, cumulative: float) -> None:
    ages = AgeProfile((0.0, 1.0, 3.0), (2.0, 0.5, 1.5))
    age = Mortality(rate, ages).age_at(cumulative)
    assert rate * ages.mean_hours(0, age) == pytest.approx(cumulative, abs=1e-9)


def test_drawn_lives_last_as_long_as_the_hazard_says() -> None:
    lives = DrawnLives({A: Mortality(0.5)}, seed=1)
    starts = range(START, START + 4000 * SECOND, SECOND)
    hours = [(lives.evicted_at(A, start) - start) / HOUR for start in starts]  # type: ignore[operator]
    assert np.mean(hours) == pytest.approx(2.0, rel=0.06)
    assert np.mean(np.array(hours) > 2) == pytest.approx(np.exp(-1), abs=0.03)


def test_a_draw_depends_only_on_market_and_moment() -> None:
    lives, again = (DrawnLives({A: Mortality(0.5), B: Mortality(0.5)}, seed=1) for _ in range(2))
    assert lives.evicted_at(A, START) == again.evicted_at(A, START)
    assert lives.evicted_at(A, START) != lives.evicted_at(B, START)
    assert lives.evicted_at(A, START) != lives.evicted_at(A, START + SECOND)
    assert lives.evicted_at(A, START) != DrawnLives({A: Mortality(0.5)}, seed=2).evicted_at(
        A, START
    )
    assert DrawnLives({A: Mortality(0.0)}, seed=1).evicted_at(A, START) is None
    assert lives.evicted_at(market("c.large"), START) is None


def test_the_hazard_is_estimated_from_machines_running_throughout_training() -> None:
    rates = {A: Mortality(0.5), B: Mortality(0.02)}
    learned = ByHazard(rates, seed=1).learned(rates, *spans(8000, 10))
    hours = 0.0
    for where, mortality in rates.items():
        hazard = learned[where]
        assert hazard is not None
        assert hazard.rate[0] == pytest.approx(mortality.per_hour, rel=0.35)
        hours += hazard.observed.hours
    assert hours == pytest.approx(16_000)


def test_low_bids_are_still_evicted_by_price() -> None:
    known = series((0, 5), (100, 9), (10_000_000, 9), of=A)
    market_then = ByHazard({A: Mortality(0.001)}, seed=1).replay([known], ROOM, *spans(1, 4))
    assert market_then.evicted_at(A, 5, START) == START + 100 * SECOND
    assert market_then.evicted_at(A, 9, START) == DrawnLives({A: Mortality(0.001)}, 1).evicted_at(
        A, START
    )


@pytest.mark.parametrize("rate", [-1.0, float("inf"), float("nan")])
def test_an_invalid_hazard_is_refused(rate: float) -> None:
    with pytest.raises(BidBrainError, match="is negative or infinite"):
        Mortality(rate)


def test_an_invalid_capacity_is_refused() -> None:
    for times, machines in (([], []), ([2, 1], [1, 1]), ([1, 2], [1, -1])):
        with pytest.raises(BidBrainError, match="a capacity needs increasing times"):
            Capacity(np.array(times, dtype=np.int64), np.array(machines, dtype=np.int64))


def test_neighboring_markets_get_different_traces() -> None:
    dealt = deal([B, A, market("c.large")], [trace([1, 0]), trace([1, 1])])
    assert [dealt[one].up.tolist() for one in (A, B, market("c.large"))] == [[1, 0], [1, 1], [1, 0]]
