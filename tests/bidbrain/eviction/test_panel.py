from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.eviction.conditional import FEATURES, CrossingPanel, PricePath
from bidbrain.eviction.crossing import BadBid, Bid, BidAbove, CrossingHistory, FixedBid
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, Span
from tests.bidbrain.eviction.worlds import START, moody
from tests.pricing_data.histories import market

minutes = st.dictionaries(st.integers(0, 600), st.integers(1, 6), min_size=3, max_size=40)
bids = st.one_of(st.integers(0, 4).map(BidAbove), st.integers(1, 6).map(FixedBid))


def in_minutes(shape: dict[int, int], name: str = "c4.xlarge") -> PriceSeries:
    times, prices = zip(*sorted(shape.items()), strict=True)
    moments = START + np.array(times, dtype=np.int64) * MINUTE
    return PriceSeries(market(name), moments, np.array(prices, dtype=np.int64))


def is_crossed(known: PriceSeries, bid: Bid, start: int, window: int) -> bool | None:
    """The definition, event by event; None where the start cannot hold the bid."""
    price = known.price_at(start)
    limit = price + bid.delta if isinstance(bid, BidAbove) else bid.price
    if price > limit:
        return None
    events = zip(known.times.tolist(), known.prices.tolist(), strict=True)
    return any(start < time <= start + window and price > limit for time, price in events)


@given(minutes, minutes, bids, st.integers(5, 90))
def test_starts_outcomes_and_shares_are_those_of_the_definition(
    one: dict[int, int], other: dict[int, int], bid: Bid, width: int
) -> None:
    histories, window = [in_minutes(one), in_minutes(other, "m4.large")], width * MINUTE
    if any(known.last - known.first <= window for known in histories):
        return
    panel = CrossingPanel([(known, bid) for known in histories], window)
    expected = {
        (code, start): outcome
        for code, known in enumerate(histories)
        for start in range(
            -(-known.first // panel.step) * panel.step, known.last - window + 1, panel.step
        )
        if (outcome := is_crossed(known, bid, start, window)) is not None
    }
    codes, times = panel.starts_between(START, START + DAY)
    found = dict(
        zip(
            zip(codes.tolist(), times.tolist(), strict=True),
            panel.crossed(codes, times).ravel().tolist(),
            strict=True,
        )
    )
    assert found == expected
    own, pooled = panel.shares(START + DAY)
    outcomes = [list(filter(lambda key: key[0] == code, expected)) for code in (0, 1)]
    if expected:
        assert pooled == pytest.approx(np.mean(list(expected.values())))
    for share, keys in zip(own[:, 0], outcomes, strict=True):
        assert share == pytest.approx(np.mean([expected[key] for key in keys]) if keys else pooled)


@pytest.mark.parametrize("seed", range(4))
def test_only_starts_whose_windows_were_observed_count(seed: int) -> None:
    """The starts, the shares and the outcomes are those of the definition, over whole windows."""
    rng = np.random.default_rng(seed)
    shape = {
        int(at): int(price)
        for at, price in zip(rng.integers(0, 600, 60), rng.integers(1, 5, 60), strict=True)
    }
    edges = (START + np.sort(rng.choice(np.arange(1, 600), 6, replace=False)) * MINUTE).tolist()
    spans = tuple(map(Span, edges[::2], edges[1::2]))
    known = in_minutes({0: 1, **shape, 600: 1})
    bid, window = BidAbove(0), 20 * MINUTE
    panel = CrossingPanel([(replace(known, watched=spans), bid)], window)
    every = CrossingPanel([(known, bid)], window)
    _, times = every.starts_between(START, START + DAY)
    whole = [
        any(span.start <= at and at + window < span.end for span in spans) for at in times.tolist()
    ]
    _, counted = panel.starts_between(START, START + DAY)
    assert counted.tolist() == times[whole].tolist()
    ((own,),), (pooled,) = panel.shares(START + DAY)
    outcomes = [bool(is_crossed(known, bid, at, window)) for at in counted.tolist()]
    assert own == pooled == pytest.approx(np.mean(outcomes) if outcomes else 0.0)


def test_means_before_a_start_are_over_observed_time() -> None:
    """Hand-solved: 2 for an hour, a hole of three hours, then 4 for an hour."""
    hours = (Span(START, START + HOUR), Span(START + 4 * HOUR, START + 6 * HOUR))
    known = replace(in_minutes({0: 2, 240: 4, 360: 4}), watched=hours)
    values = PricePath(known).features(np.array([START + 300 * MINUTE]), np.array([6]))[0]
    told = dict(zip(FEATURES, values, strict=True))
    assert told["price over mean of 24 h"] == pytest.approx(np.log(4) - (np.log(2) + np.log(4)) / 2)
    assert told["moves in 6 h"] == pytest.approx(np.log1p(1 / 2))


def test_shares_over_starts_approach_the_exact_share() -> None:
    known = moody(np.random.default_rng(1), "c4.xlarge", 20)
    panel = CrossingPanel([(known, BidAbove(10_000))], HOUR)
    exact = CrossingHistory(known, HOUR).at_delta(10_000).share
    assert panel.shares(known.last)[0][0, 0] == pytest.approx(exact, abs=0.01)


@given(minutes, st.integers(1, 500), st.lists(st.integers(1, 6), min_size=1, max_size=5), bids)
def test_features_of_a_start_do_not_depend_on_later_prices(
    shape: dict[int, int], minute: int, later: list[int], bid: Bid
) -> None:
    """Two futures, one past: the features and past shares of a start are equal to the last
    digit."""
    now, past = START + minute * MINUTE, {at: price for at, price in shape.items() if at <= minute}
    if min(shape) >= minute:
        return
    futures = (
        {**past, 700: 1},
        {**past, **{minute + 3 * i + 1: price for i, price in enumerate(later)}, 700: 6},
    )
    code, at = np.array([0]), np.array([now])
    rows = [
        CrossingPanel(
            [(in_minutes(future), bid), (in_minutes({0: 2, 700: 2}, "m4.large"), bid)], 20 * MINUTE
        )
        for future in futures
    ]
    first, second = (panel.rows(code, at).data for panel in rows)
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, second)


def test_features_describe_the_present() -> None:
    """Hand-solved: 2 for an hour, a rise to 4 for a quarter of an hour, then 3 for five minutes."""
    known = in_minutes({0: 2, 60: 4, 75: 3, 200: 3})
    values = PricePath(known).features(np.array([START + 80 * MINUTE]), np.array([6]))[0]
    told = dict(zip(FEATURES, values, strict=True))
    assert told["rise needed"] == pytest.approx(np.log(6 / 3 - 1))
    assert told["limit over high of 1 h"] == pytest.approx(np.log(6 / 4))
    assert told["price over low of 24 h"] == pytest.approx(np.log(3 / 2))
    assert told["place in range of 7 d"] == pytest.approx(0.5)
    assert told["moves in 1 h"] == pytest.approx(np.log(3))
    assert told["time since last move"] == pytest.approx(np.log1p(5))
    assert told["direction of last move"] == -1
    mean = (60 * np.log(2) + 15 * np.log(4) + 5 * np.log(3)) / 80
    assert told["price over mean of 24 h"] == pytest.approx(np.log(3) - mean)


def test_an_invalid_bid_is_refused() -> None:
    with pytest.raises(BadBid, match="negative"):
        BidAbove(-1)
    with pytest.raises(BadBid, match="not above 0"):
        FixedBid(0)
