"""The median of many spans equals that of the points in them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from bidbrain.errors import TooLittleHistory
from bidbrain.eviction.crossing import CrossingHistory, median_of_spans
from pricing_data.fetched_rows import PriceBatch
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.sources.files import read
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR, SECOND, parse_usd
from tests.pricing_data.histories import series

shapes = st.dictionaries(st.integers(0, 60), st.integers(1, 6), min_size=2, max_size=25)
windows = st.integers(1, 30)


def seconds_to_eviction(known: PriceSeries, start: float, bid: int, window: int) -> float | None:
    """The definition: the first later event strictly above the bid, if it is within the window."""
    for time, price in zip(known.times.tolist(), known.prices.tolist(), strict=True):
        if time > start and price > bid:
            return time - start if time - start <= window else None
    return None


def brute_force(
    known: PriceSeries, window: int, delta: int | None, bid: int | None
) -> tuple[float, list[float]]:
    """Shares over whole seconds: events are on whole seconds, so every start within one has the
    outcome of its middle."""
    evicted, held = [], 0
    for second in range(known.first, known.last - window, SECOND):
        start = second + SECOND / 2
        price = known.price_at(second)
        limit = price + delta if delta is not None else bid
        assert limit is not None
        if price > limit:
            continue
        held += 1
        # A window of whole seconds from the middle of one reaches the same events as from its
        # start.
        time = seconds_to_eviction(known, start, limit, window)
        if time is not None:
            evicted.append(time)
    return (len(evicted) / held if held else -1.0), evicted


@given(shapes, windows, st.integers(0, 5))
def test_beta_at_a_delta_equals_the_definition(
    shape: dict[int, int], seconds: int, delta: int
) -> None:
    known, window = series(*sorted(shape.items())), seconds * SECOND
    if known.last - known.first <= window:
        with pytest.raises(TooLittleHistory, match="import a longer history"):
            CrossingHistory(known, window)
        return
    history = CrossingHistory(known, window)
    share, times = brute_force(known, window, delta, None)
    found = history.at_delta(delta)
    assert history.at_deltas(np.array([6, delta, 0, delta]))[1] == found
    assert found.share == pytest.approx(share, abs=1e-9)
    assert history.betas(np.array([delta]))[0] == pytest.approx(share, abs=1e-9)
    check_median(found.median_time, times)
    assert found.starts == known.last - window - known.first


@given(shapes, windows, st.integers(0, 6))
def test_beta_at_a_bid_counts_the_starts_that_could_hold_it(
    shape: dict[int, int], seconds: int, bid: int
) -> None:
    known, window = series(*sorted(shape.items())), seconds * SECOND
    if known.last - known.first <= window:
        return
    share, times = brute_force(known, window, None, bid)
    history = CrossingHistory(known, window)
    if share < 0:
        with pytest.raises(TooLittleHistory, match="never as low"):
            history.at_bid(bid)
        return
    assert history.at_bid(bid).share == pytest.approx(share, abs=1e-9)
    check_median(history.at_bid(bid).median_time, times)


def check_median(found: float | None, middles: list[float]) -> None:
    """Half of the evicted time is at or below the median; each second is spread evenly around its
    middle.
    """
    if found is None:
        assert middles == []
        return
    below = sum(min(max(found - (middle - SECOND / 2), 0), SECOND) for middle in middles)
    assert below == pytest.approx(len(middles) * SECOND / 2)


@given(shapes, windows)
def test_beta_is_a_share_and_falls_with_the_bid(shape: dict[int, int], seconds: int) -> None:
    known = series(*sorted(shape.items()))
    if known.last - known.first <= seconds * SECOND:
        return
    betas = CrossingHistory(known, seconds * SECOND).betas(np.arange(8))
    assert np.all((betas >= 0) & (betas <= 1))
    assert np.all(np.diff(betas) <= 0)
    assert betas[-1] == 0


@pytest.fixture(scope="module")
def spring_2016(request: pytest.FixtureRequest) -> dict[Market, PriceSeries]:
    folder = Path(request.config.rootpath).parent / "shared" / "data"
    path = folder / "prices" / "aws_us-east-1_2016-02-24_2016-04-05.csv.gz"
    if not path.exists():
        pytest.skip(f"no records of real markets in {folder}")
    table = PriceTable.of(PriceBatch.joined(portion.fetched.prices for portion in read(path)))
    return {one.market: one for one in table}


def test_the_published_figures_of_one_market(spring_2016: dict[Market, PriceSeries]) -> None:
    history = CrossingHistory(spring_2016[Market.parse("aws/us-east-1/us-east-1a/m3.large")], HOUR)
    shares = [history.at_delta(parse_usd(delta)).share for delta in ("0.0001", "0.009", "0.01")]
    assert shares[0] == pytest.approx(0.34, abs=0.005)
    assert shares[1] == pytest.approx(0.0005, abs=0.00005)
    assert shares[2] == 0


def test_ten_markets_of_2016_equal_a_walk_through_their_events(
    spring_2016: dict[Market, PriceSeries],
) -> None:
    """A second reference, for real histories: event by event, a linear scan for the first
    crossing."""
    for known in list(spring_2016.values())[::5][:10]:
        short = known.window(known.first, min(known.last, known.first + 300 * HOUR))
        times, prices = short.times.tolist(), short.prices.tolist()
        history = CrossingHistory(short, HOUR)
        for delta in (100_000, 10_000_000):
            evicted = 0
            for i in range(len(times) - 1):
                crossing = next(
                    (
                        t
                        for t, p in zip(times[i + 1 :], prices[i + 1 :], strict=True)
                        if p > prices[i] + delta
                    ),
                    None,
                )
                if crossing is not None:
                    begin, end = (
                        max(times[i], crossing - HOUR),
                        min(times[i + 1], short.last - HOUR),
                    )
                    evicted += max(0, end - begin)
            expected = evicted / (short.last - HOUR - short.first)
            assert history.at_delta(delta).share == pytest.approx(expected, abs=1e-9)


def test_only_a_price_strictly_above_the_bid_evicts() -> None:
    """0.1 + 0.2 is not 0.3 in floating point; integer prices compare exactly."""
    known = series((0, parse_usd("0.1")), (50, parse_usd("0.3")), (100, parse_usd("0.3")))
    history = CrossingHistory(known, 20 * SECOND)
    assert history.at_delta(parse_usd("0.2")).share == 0
    assert history.at_delta(parse_usd("0.2") - 1).share == pytest.approx(20 / 80)


@pytest.mark.parametrize("seed", range(20))
def test_the_median_divides_the_spans_into_halves(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, widest = int(rng.integers(1, 400)), int(rng.choice([1, 30, 5_000, 3_600_000_000]))
    low = rng.integers(0, 4 * widest, size)
    high = low + rng.integers(1, widest + 1, size)
    median = median_of_spans(low, high)
    below = np.clip(median - low, 0, high - low).sum()
    assert below == pytest.approx((high - low).sum() / 2, rel=1e-9)
    if median > low.min() + 1:  # the lowest such point: nothing is left out in a gap before it
        assert np.clip(median - 0.5 - low, 0, high - low).sum() < below
