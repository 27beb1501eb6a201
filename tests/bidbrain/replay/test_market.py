from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from bidbrain.errors import BidBrainError
from bidbrain.replay.market import MarketReplay, Tape, UnknownMarketInReplay
from pricing_data.units import SECOND
from tests.pricing_data.histories import START, market, series

shapes = st.dictionaries(st.integers(0, 80), st.integers(1, 8), min_size=1, max_size=40)


@given(shapes, st.integers(-5, 90), st.integers(0, 9))
def test_the_next_moment_above_a_bid_equals_a_linear_scan(
    shape: dict[int, int], after: int, bid: int
) -> None:
    steps = sorted(shape.items())
    expected = next(
        (START + at * SECOND for at, price in steps if at > after and price > bid), None
    )
    assert Tape(series(*steps)).first_above(bid, START + after * SECOND) == expected


@given(shapes, st.floats(0, 1))
def test_the_price_is_that_of_the_series(shape: dict[int, int], share: float) -> None:
    known = series(*sorted(shape.items()))
    time = known.first + int(share * (known.last - known.first))
    assert Tape(known).price(time) == known.price_at(time)


def test_a_market_without_a_replay_is_named() -> None:
    replay = MarketReplay([series((0, 5), (10, 6))])
    assert replay.price(market(), START) == 5
    assert replay.evicted_at(market(), 5, START) == START + 10 * SECOND
    assert replay.evicted_at(market(), 6, START) is None
    with pytest.raises(
        BidBrainError, match="is replayed from 2026-01-01T00:00:00Z to 2026-01-01T00:00:10Z, not at"
    ):
        replay.price(market(), START + 11 * SECOND)
    with pytest.raises(UnknownMarketInReplay, match=r"b\.large is not replayed"):
        replay.price(market("b.large"), START)
