from __future__ import annotations

from math import exp

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.eviction.estimate import NO_HAZARD, Estimate, PriceOutlook, closest, together
from bidbrain.eviction.hazard import Hazard, RateEvidence
from bidbrain.eviction.survival import Exposure
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE
from tests.bidbrain.eviction.worlds import START, flat, moody


def rated(rate: float, evictions: float = 1e9) -> Hazard:
    return Hazard((RateEvidence("test", Exposure(evictions, evictions / rate)),))


def priced(probability: float, low: float, high: float, median: float | None = 1800.0) -> Estimate:
    return Estimate(probability, lambda: (low, high), median, 100.0, "price")


def moody_markets(days: int = 12) -> list[PriceSeries]:
    rng = np.random.default_rng(4)
    return [moody(rng, f"t{i}.large", days) for i in range(8)]


def outlook_of(markets: list[PriceSeries], at: int) -> PriceOutlook:
    return PriceOutlook([series.market for series in markets], markets.__getitem__, at)


def outlook(
    markets: list[PriceSeries], at: int, distance: int = 10_000, asked: int = 0
) -> Estimate:
    series = markets[asked]
    return outlook_of(markets, at).of(series.window(series.first, at), distance)


def test_survival_is_the_product_of_both() -> None:
    """A crossing probability of 0.2 and a certain rate of 0.1 per hour: 1 - 0.8 exp(-0.1)."""
    both = together(priced(0.2, 0.2, 0.2), rated(0.1), HOUR)
    assert both.probability == pytest.approx(1 - 0.8 * exp(-0.1), rel=1e-6)
    assert both.low == pytest.approx(both.probability, abs=1e-4)
    assert both.high == pytest.approx(both.probability, abs=1e-4)
    assert both.basis.startswith("price; capacity evictions: 0.1 per hour, from test")


def test_the_product_is_what_a_simulation_finds() -> None:
    """Crossings uniform within the hour with probability 0.3, capacity evictions at 0.5 per hour:
    share and median time."""
    rng = np.random.default_rng(30)
    crossing = np.where(rng.random(400_000) < 0.3, rng.uniform(0, 1, 400_000), 9.0)
    first = np.minimum(crossing, rng.exponential(2.0, 400_000))
    both = together(priced(0.3, 0.3, 0.3), rated(0.5), HOUR)
    assert both.probability == pytest.approx(float(np.mean(first <= 1)), abs=0.005)
    assert both.median_seconds_to_eviction == pytest.approx(
        3600 * float(np.median(first[first <= 1])), abs=30
    )


def test_without_a_crossing_the_hazard_carries_the_estimate() -> None:
    hazard_only = together(priced(0.0, 0.0, 0.0, None), rated(0.05, evictions=8), HOUR)
    shape, hours = 8, 160.0
    assert hazard_only.probability == pytest.approx(1 - (1 + 1 / hours) ** -shape)
    assert hazard_only.low < hazard_only.probability < hazard_only.high
    assert hazard_only.median_seconds_to_eviction == pytest.approx(1800, rel=0.03)
    assert hazard_only.observations == 100


def test_without_a_hazard_it_says_so() -> None:
    price = priced(0.2, 0.1, 0.3)
    alone = together(price, None, HOUR)
    assert (alone.probability, alone.low, alone.high) == (0.2, 0.1, 0.3)
    assert alone.basis == f"price; {NO_HAZARD}"


shares = st.floats(0, 1).map(lambda share: round(share, 6))


@given(
    st.tuples(shares, shares, shares).map(sorted),
    st.floats(1e-6, 5),
    st.floats(0.5, 1e6),
    st.floats(0, 3600),
)
def test_the_combination_is_never_safer_than_either_part(
    ends: list[float], rate: float, evictions: float, median: float
) -> None:
    price, hazard = priced(ends[1], ends[0], ends[2], median), rated(rate, evictions)
    both = together(price, hazard, HOUR)
    assert price.probability - 1e-12 <= both.probability <= 1
    assert both.probability >= 1 - exp(-hazard.cumulative(0, 1)[0]) - 1e-12
    assert 0 <= both.low <= both.probability + 1e-12
    assert both.probability <= both.high + 1e-12 <= 1 + 1e-11
    assert both.median_seconds_to_eviction is None or 0 <= both.median_seconds_to_eviction <= 3600


def test_the_present_moves_the_estimate() -> None:
    """The same market in a volatile and in a calm moment."""
    markets = moody_markets()
    series = markets[0]
    recent = [int(t) for t in np.arange(START + 8 * DAY, series.last - HOUR, HOUR)]
    spikes = [
        int(np.count_nonzero(series.window(t - 3 * HOUR, t).prices > 1_040_000)) for t in recent
    ]
    restless = next(
        t for t, n in zip(recent, spikes, strict=True) if n >= 5 and series.price_at(t) < 1_040_000
    )
    calm = next(t for t, n in zip(recent, spikes, strict=True) if n == 0)
    high, low = (outlook(markets, t) for t in (restless, calm))
    assert high.probability > 0.5
    assert low.probability < 0.15
    assert low.high < high.low
    assert "given the present, fitted to 8 markets" in high.basis


def test_the_future_of_any_market_changes_nothing() -> None:
    markets, at = moody_markets(), START + 9 * DAY
    known = [series.window(START, at) for series in markets]
    assert outlook(markets, at) == outlook(known, at)


def test_crossings_seen_nowhere_have_probability_zero_and_an_upper_bound() -> None:
    estimate = outlook([flat(f"t{i}.large", 10) for i in range(3)], START + 9 * DAY, 1_000_000)
    assert (estimate.probability, estimate.low, estimate.median_seconds_to_eviction) == (
        0.0,
        0.0,
        None,
    )
    assert 0 < estimate.high < 0.03
    assert estimate.observations == pytest.approx(9 * 24 - 1)
    assert (
        "in this history and, lately, in 2 other markets the price never rose above this bid"
        in estimate.basis
    )


def test_all_bids_and_markets_of_one_place_share_a_model() -> None:
    markets, at = moody_markets(), START + 9 * DAY
    asked = outlook_of(markets, at)
    for series in markets[:3]:
        for distance in (0, 10_000, 10_400, 40_000):
            asked.of(series.window(START, at), distance)
    assert len(asked.models) == 1


def drawn_prices(seed: int) -> list[PriceSeries]:
    """Markets whose prices rise by all kinds of amounts, some of them hardly ever."""
    rng = np.random.default_rng(seed)
    ticks = 8 * DAY // (10 * MINUTE)
    times = START + np.arange(ticks, dtype=np.int64) * 10 * MINUTE
    histories = []
    for number in range(2):
        rises = rng.pareto(rng.uniform(0.5, 2.0), ticks) * (
            rng.random(ticks) < rng.uniform(0.02, 0.5)
        )
        prices = 1_000_000 + (20_000 * np.minimum(rises, 100)).astype(np.int64)
        market = Market("aws", "us-east-1", "us-east-1a", f"t{number}.large")
        histories.append(PriceSeries(market, times, prices))
    return histories


@settings(max_examples=8)
@given(
    st.integers(0, 10**6),
    st.integers(5 * 24, 7 * 24),
    st.lists(st.integers(0, 3_000_000), min_size=2, max_size=12),
)
def test_odds_never_rise_with_the_bid(seed: int, hours: int, drawn: list[int]) -> None:
    markets, at = drawn_prices(seed), START + hours * HOUR
    asked = outlook_of(markets, at)
    near = np.geomspace(1, 3_000_000, 20).round().astype(int).tolist()
    for series in markets:
        history = series.window(START, at)
        odds = [asked.of(history, distance).probability for distance in sorted([*drawn, *near])]
        assert odds == sorted(odds, reverse=True)


def test_a_history_that_is_too_short_has_its_own_share() -> None:
    """A market whose price was seen once, an hour ago: its caller knows how far back it may be
    extended.
    """
    at = START + 9 * DAY
    market = Market("aws", "us-east-1", "us-east-1a", "new.large")
    once = PriceSeries(market, np.array([at - HOUR // 2]), np.array([1_000_000]))
    extended = PriceSeries(market, np.array([at - 4 * HOUR, at]), np.array([1_000_000, 1_000_000]))
    estimate = outlook_of([*moody_markets(), once], at).of(extended, 10_000)
    assert (estimate.probability, estimate.observations) == (0.0, 3.0)
    assert "too short to compare it with others" in estimate.basis


def test_a_market_that_was_never_watched_for_a_window_has_the_share_that_its_caller_assumes() -> (
    None
):
    """Its price was seen once a week; in between it is only taken to have been the same."""
    at, first = START + 9 * DAY, moody_markets()[0]
    times = START + 7 * DAY * np.arange(3, dtype=np.int64)
    seldom = PriceSeries(first.market, times, np.full(3, 1_000_000), watched=())
    assumed = PriceSeries(first.market, np.array([START, at]), np.array([1_000_000, 1_000_000]))
    estimate = outlook_of([seldom, *moody_markets()[1:]], at).of(assumed, 10_000)
    assert estimate.probability == 0.0
    assert "too short to compare it with others" in estimate.basis


def test_the_closest_markets_are_of_the_same_type_then_of_the_same_region() -> None:
    names = [
        (region, name) for region in ("us-east-1", "us-west-2") for name in ("a.large", "b.large")
    ]
    places = [
        Market("aws", region, f"{region}{zone}", name)
        for region, name in names
        for zone in "abcdefghijklmnopqrst"
    ]
    others = [Market("gcp", "us-east1", "us-east1-b", "a.large")]
    found = closest(places[0], [*places, *others])
    assert places[0] in found
    assert len(found) == 61
    assert {(each.region, each.instance_type) for each in found[:40]} == {
        ("us-east-1", "a.large"),
        ("us-east-1", "b.large"),
    }
    assert sum(each.instance_type == "a.large" for each in found) == 40


@pytest.mark.slow
def test_the_interval_covers_the_truth_of_a_generated_market() -> None:
    """In a generated market with known truth: 0.79 of bids are crossed in a volatile hour, 0.05 in
    a calm one.
    """
    markets, rng = moody_markets(14), np.random.default_rng(5)
    truth = {True: spiking(rng, restless=True), False: spiking(rng, restless=False)}
    held, widths = [], []
    for i, at in enumerate(rng.integers(START + 9 * DAY, START + 13 * DAY, 48).tolist()):
        series = markets[i % 8]
        last_hour = series.window(at - HOUR, at).prices
        if series.price_at(at) > 1_040_000:
            continue
        estimate = outlook(markets, at, asked=i % 8)
        held.append(
            estimate.low <= truth[bool(np.mean(last_hour != 1_000_000) > 0.5)] <= estimate.high
        )
        widths.append(estimate.high - estimate.low)
    assert np.mean(held) > 0.85
    assert np.mean(widths) < 0.25


def spiking(rng: np.random.Generator, *, restless: bool) -> float:
    """The probability of a spike within an hour, from a given regime on, by the rules of
    `worlds.moody`.
    """
    mood, spiked = np.full(100_000, restless), np.zeros(100_000, dtype=bool)
    for _ in range(6):
        mood ^= rng.random(mood.size) < 1 / 70
        spiked |= mood & (rng.random(mood.size) < 0.25)
    return float(spiked.mean())
