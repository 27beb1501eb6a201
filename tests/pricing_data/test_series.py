from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from pricing_data.errors import OutsideHistory
from pricing_data.series import PriceSeries
from pricing_data.units import SECOND
from tests.pricing_data.histories import START, market, series

steps = st.dictionaries(st.integers(0, 50), st.integers(1, 9), min_size=2, max_size=20)


def by_seconds(known: PriceSeries) -> list[int]:
    """The price in each second of the span, found without any of the functions under test."""
    prices = dict(zip(known.times.tolist(), known.prices.tolist(), strict=True))
    now, each_second = 0, []
    for time in range(known.first, known.last, SECOND):
        now = prices.get(time, now)
        each_second.append(now)
    return each_second


@given(steps)
def test_mean_and_time_above_equal_a_count_of_seconds(shape: dict[int, int]) -> None:
    known = series(*sorted(shape.items()))
    prices = by_seconds(known)
    assert known.time_weighted_mean() == pytest.approx(np.mean(prices))
    assert [known.seconds_above(bid) for bid in range(10)] == [sum(p > bid for p in prices) for bid in range(10)]
    assert [known.price_at(known.first + i * SECOND) for i in range(len(prices))] == prices


@given(steps, st.data())
def test_a_window_is_the_same_function_on_a_shorter_span(shape: dict[int, int], data: st.DataObject) -> None:
    known = series(*sorted(shape.items()))
    start = data.draw(st.integers(known.first, known.last))
    end = data.draw(st.integers(start, known.last))
    part = known.window(start, end)
    assert (part.first, part.last) == (start, end)
    assert all(part.price_at(t) == known.price_at(t) for t in {start, (start + end) // 2, end, *part.times.tolist()})


def test_the_step_is_right_continuous() -> None:
    known = series((0, 5), (10, 7))
    assert known.price_at(START + 10 * SECOND) == 7
    assert known.price_at(START + 10 * SECOND - 1) == 5


@pytest.mark.parametrize("time", [START - 1, START + 10 * SECOND + 1])
def test_outside_its_span_a_price_is_an_error(time: int) -> None:
    known = series((0, 5), (10, 7))
    with pytest.raises(OutsideHistory, match="is known from 2026-01-01T00:00:00Z to 2026-01-01T00:00:10Z"):
        known.price_at(time)
    with pytest.raises(OutsideHistory):
        known.window(min(time, START), max(time, START))


def test_repeated_prices_are_observations_not_changes() -> None:
    assert series((0, 5), (10, 5), (20, 6), (30, 6)).changes == 1


def test_a_single_event_has_a_mean_and_no_duration() -> None:
    alone = series((0, 5))
    assert (alone.time_weighted_mean(), alone.seconds_above(1), alone.window(START, START)) == (5.0, 0.0, alone)


@pytest.mark.parametrize(("times", "prices"), [([], []), ([2, 1], [5, 5]), ([1, 1], [5, 6]), ([1], [0]), ([1, 2], [5])])
def test_an_invalid_step_function_is_rejected(times: list[int], prices: list[int]) -> None:
    with pytest.raises(ValueError, match=r"aws/us-east-1/us-east-1a/c4\.xlarge"):
        PriceSeries(market(), np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


def test_a_series_is_read_only() -> None:
    with pytest.raises(ValueError, match="read-only"):
        series((0, 5)).prices[0] = 1
