from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bidbrain.errors import TooLittleHistory
from bidbrain.eviction.crossing import Bid, BidAbove, FixedBid
from bidbrain.lab.calibration import CalibrationPlan, Predicted, calibrate, score
from pricing_data.catalog import Catalog
from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.series import PriceSeries
from pricing_data.sources.files import read
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, parse_usd
from tests.bidbrain.eviction.worlds import START, flat, memoryless, moody

WEEK = CalibrationPlan(HOUR, 7 * DAY, 2 * DAY, 2 * DAY)


def moody_markets(days: int = 16) -> list[tuple[PriceSeries, Bid]]:
    rng = np.random.default_rng(4)
    return [(moody(rng, f"t{i}.large", days), BidAbove(10_000)) for i in range(6)]


def test_scores_are_mean_squared_differences() -> None:
    """Hand-solved, over two days."""
    starts = Predicted(
        times=np.array([0, 1, DAY, DAY + 1]),
        model=np.array([0.0, 0.5, 1.0, 0.5]),
        own=np.array([0.5, 0.5, 0.5, 0.5]),
        pooled=np.array([1.0, 1.0, 1.0, 1.0]),
        crossed=np.array([False, False, True, True]),
    )
    found = score(
        starts, {"present": 1, "own share": 0, "pooled share": 0}, 1, np.random.default_rng(0)
    )
    assert (found.brier, found.brier_own, found.brier_pooled) == (0.125, 0.25, 0.5)
    assert found.against_own.mean == pytest.approx(0.5)
    assert found.against_own.low == pytest.approx(0.5)
    assert found.against_pooled.mean == pytest.approx(0.75)
    assert [(one.low, one.starts, one.predicted, one.observed) for one in found.reliability] == [
        (0.0, 1, 0.0, 0.0),
        (0.5, 2, 0.5, 0.5),
        (0.9, 1, 1.0, 1.0),
    ]


def test_days_are_resampled_whole() -> None:
    """As much better on one day as worse on the other: the interval spans both, regardless of the
    number of starts.
    """
    times = np.repeat(np.array([0, DAY]), 500)
    own = np.full(1000, 0.5)
    model = np.repeat([0.0, 2**-0.5], 500)
    starts = Predicted(times, model, own, own, np.zeros(1000, dtype=bool))
    found = score(
        starts, {"present": 1, "own share": 0, "pooled share": 0}, 1, np.random.default_rng(0)
    )
    assert found.against_own.low == pytest.approx(-1)
    assert found.against_own.high == pytest.approx(1)
    assert not found.beats_both


def test_the_model_beats_both_shares_on_a_market_with_regimes() -> None:
    found = calibrate(moody_markets(), WEEK, np.random.default_rng(1))
    assert found.origins == 4
    assert found.beats_both
    assert found.methods["present"] == 4
    assert found.starts == pytest.approx(6 * 4 * 2 * 144, rel=0.01)
    for one in (band for band in found.reliability if band.starts > 200):
        assert one.observed == pytest.approx(one.predicted, abs=0.2)


def test_the_model_claims_no_skill_on_a_random_market() -> None:
    rng = np.random.default_rng(3)
    markets: list[tuple[PriceSeries, Bid]] = [
        (memoryless(rng, f"t{i}.large", 30), BidAbove(10_000)) for i in range(6)
    ]
    found = calibrate(markets, WEEK, np.random.default_rng(1))
    assert not found.beats_both
    assert found.brier < 1.02 * min(found.brier_own, found.brier_pooled)


def test_prices_after_the_last_horizon_change_nothing() -> None:
    markets = moody_markets(14)
    end = START + 11 * DAY + HOUR
    first = calibrate(
        [(one.window(START, end), bid) for one, bid in markets], WEEK, np.random.default_rng(1)
    )
    longer = calibrate(
        [(one.window(START, end + DAY), bid) for one, bid in markets],
        WEEK,
        np.random.default_rng(1),
    )
    assert first == longer


def test_without_crossings_the_skill_is_zero() -> None:
    found = calibrate([(flat("t.large", 12), BidAbove(0))], WEEK, np.random.default_rng(1))
    assert (found.brier, found.brier_own, found.against_own.mean, found.beats_both) == (
        0,
        0,
        0,
        False,
    )


def test_a_history_that_cannot_hold_the_plan_is_refused() -> None:
    with pytest.raises(
        TooLittleHistory, match="cannot hold 7 days of history and 2 days to predict"
    ):
        calibrate([(flat("t.large", 5), BidAbove(0))], WEEK, np.random.default_rng(1))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("delta", "floor"), [("0.001", 0.08), ("0.01", 0.05), ("", 0.03)])
def test_the_model_beats_both_shares_on_the_market_of_2016(
    shared_data: Path, delta: str, floor: float
) -> None:
    """Two weeks of history, the next two days; every third of the origins to save time."""
    prices = shared_data / "prices"
    table = PriceTable.of(
        PriceBatch.joined(
            part.fetched.prices
            for part in read(prices / "aws_us-east-1_2016-02-24_2016-04-05.csv.gz")
        )
    )
    lists = FetchedRows.joined(part.fetched for part in read(prices / "aws_on_demand_linux.csv.gz"))
    catalog = Catalog((), lists.on_demand)
    bid = BidAbove(parse_usd(delta)) if delta else None
    markets = [
        (one, bid or FixedBid(catalog.on_demand(one.market, one.first).price)) for one in table
    ]
    found = calibrate(
        markets, CalibrationPlan(HOUR, 14 * DAY, 2 * DAY, 6 * DAY), np.random.default_rng(0)
    )
    assert found.against_own.mean > floor
    assert found.against_pooled.mean > floor
    assert found.beats_both or not delta


def test_baselines_use_only_starts_before_the_origin() -> None:
    """A price that begins to spike when the horizon begins: both shares predicted 0, and were wrong
    each time.
    """
    days = WEEK.history // DAY
    calm, wild = flat("t.large", 12), memoryless(np.random.default_rng(2), "t.large", 12)
    later = wild.window(START + days * DAY, wild.last)
    times, prices = (
        [*a[: days * 24].tolist(), *b.tolist()]
        for a, b in ((calm.times, later.times), (calm.prices, later.prices))
    )
    series = PriceSeries(calm.market, np.array(times), np.array(prices))
    plan = CalibrationPlan(HOUR, 7 * DAY, 2 * DAY, 30 * DAY)
    found = calibrate([(series, BidAbove(0))], plan, np.random.default_rng(1))
    assert found.origins == 1
    assert found.crossed > 0.05
    assert found.brier_own == found.brier_pooled == pytest.approx(found.crossed)
