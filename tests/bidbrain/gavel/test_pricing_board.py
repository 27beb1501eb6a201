"""The board against a sum second by second, and the common span of markets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.errors import TooLittleHistory
from bidbrain.gavel.pricing.board import board_of, left_out
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, SECOND
from tests.bidbrain.gavel.markets import BEGIN, histories, machine


def series(name: str, hours: list[float], usd: list[float]) -> PriceSeries:
    times = [BEGIN + round(hour * HOUR) for hour in hours]
    prices = [round(price * 1e9) for price in usd]
    return PriceSeries(Market.parse(name), np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


@given(st.integers(0, 2**32), st.integers(0, 399), st.integers(0, 399))
def test_the_cost_equals_a_sum_over_seconds(seed: int, one: int, other: int) -> None:
    found = histories(np.random.default_rng(seed), 400)
    board = board_of(found, machine)
    start, stop = sorted((one, other))
    for i, offer in enumerate(board.offers):
        history = next(history for history in found if history.market == offer.market)
        seconds = sum(history.price_at(BEGIN + second * SECOND) for second in range(start, stop))
        expected = seconds / 3600 / 1e9 / offer.accelerators
        paid = board.paid(np.array([i]), np.array([start / 3600]), np.array([stop / 3600]))
        assert paid[0] == pytest.approx(expected, abs=1e-12)


def test_prices_are_per_accelerator_and_hold_until_the_next_change() -> None:
    board = board_of([series("aws/r/a/V100x4", [0, 2, 2.5, 5], [4, 8, 8, 99])], machine)
    assert board.span == 5
    # The change at the very end never holds, and a repeated price is no change.
    assert board.hours.tolist() == [0, 2]
    assert board.usd.tolist() == [[1, 2]]
    assert board.paid(np.array([0]), np.array([1.0]), np.array([5.0])).tolist() == [7]
    assert board.price(np.array([0, 0]), np.array([1.999, 2.0])).tolist() == [1, 2]


def test_a_market_that_ends_early_does_not_shorten_the_span_of_the_others() -> None:
    long = [series(f"aws/r/{zone}/V100x1", [0, 100], [1, 1]) for zone in "abc"]
    short = series("aws/r/d/V100x1", [0, 1], [1, 1])
    late = series("azure/s/-/K80x1", [40, 90], [1, 1])
    found = [*long, short, late]
    board = board_of(found, machine)
    assert (board.begin, board.end) == (BEGIN + 40 * HOUR, BEGIN + 90 * HOUR)
    assert left_out(found, board) == [short.market]


def test_every_cloud_is_on_the_board_or_there_is_none() -> None:
    apart = [series("aws/r/a/V100x1", [0, 10], [1, 1]), series("azure/s/-/K80x1", [11, 90], [1, 1])]
    with pytest.raises(TooLittleHistory, match=r"no time in common: aws 2020-.* azure 2020-"):
        board_of(apart, machine)
    with pytest.raises(TooLittleHistory, match="none is given"):
        board_of([], machine)


@given(st.integers(0, 2**32))
def test_the_common_span_is_the_one_of_most_market_hours(seed: int) -> None:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(5):
        first, last = sorted(rng.choice(np.arange(30), size=2, replace=False).tolist())
        cloud = "aws/r" if i % 2 else "azure/s"
        found.append(series(f"{cloud}/z{i}/V100x1", [first, last], [1, 1]))
    areas = {}
    for begin in range(30):
        for end in range(begin + 1, 30):
            held = [s for s in found if s.first <= BEGIN + begin * HOUR and s.last >= BEGIN + end * HOUR]
            if len({s.market.cloud for s in held}) == 2:
                areas[begin, end] = len(held) * (end - begin)
    if not areas:
        with pytest.raises(TooLittleHistory):
            board_of(found, machine)
        return
    board = board_of(found, machine)
    assert len(board.offers) * board.span == max(areas.values())
