"""A seeded sample of what `make forecast` checks: forecasts on the shipped market, against what
then happened.
"""

from __future__ import annotations

import numpy as np
import pytest

from bench.forecast import CheckedForecast, apart, check_forecasts, score
from bench.forecast_worlds import World, job, shipped
from bidbrain.eviction.hazard import Evidence
from bidbrain.eviction.survival import Exposure
from bidbrain.forecast.values import Forecast, Spread
from bidbrain.forecast.windows import Played
from bidbrain.replay.market import Mortality
from pricing_data.catalog import Catalog, InstanceType, OnDemandPrice
from pricing_data.market import Market
from pricing_data.store.table import PriceTable
from pricing_data.units import DAY, HOUR, parse_time


@pytest.mark.slow
def test_most_outcomes_lie_in_the_stated_interval() -> None:
    found = check_forecasts(shipped("proteus"), hours=4.0, count=24)
    paid = np.array([one.outcome.usd for one in found])
    spreads = [one.forecast.usd for one in found]
    assert len(found) == 24
    assert 0.65 <= score(found, spreads, paid).covered <= 0.95
    # Half of the runs end shortly before the end of a paid hour, and half shortly after it.
    assert float(np.sum(paid)) == pytest.approx(sum(one.median for one in spreads), rel=0.15)
    assert np.std(paid) > 0.05 * np.mean(paid), (
        "the outcomes differ, so that an interval says something"
    )


def test_runs_that_overlap_are_not_counted_as_apart() -> None:
    one = Spread.of(np.ones(1), np.ones(1))
    forecast = Forecast(one, one, one, (), 0.0, "")
    # From hour 0, 1, 3 and 5, for two hours; and one that lasts longer than all of these.
    runs = [CheckedForecast(at * HOUR, forecast, Played(at * HOUR, (), hours, True)) for at, hours in
            ((0, 2.0), (1, 2.0), (3, 2.0), (5, 2.0), (0, 9.0))]  # fmt: skip
    assert apart(runs) == 3


def test_evictions_of_earlier_runs_are_known_to_later_forecasts() -> None:
    """One eviction in 20 hours was recorded; in truth a machine goes every half hour."""
    market, begin = Market("aws", "us-west-2", "us-west-2a", "p3.2xlarge"), parse_time("2023-01-01")
    table = PriceTable(
        (market,), np.array([0, 2]), np.array([begin, begin + 20 * DAY]), np.array([10**9, 10**9])
    )
    catalog = Catalog(
        (InstanceType("aws", "p3.2xlarge", 8, 61.0, "V100", 1),),
        (OnDemandPrice("aws", "us-west-2", "p3.2xlarge", "linux", begin, 3 * 10**9, "a list"),),
    )
    world = World(
        "deadly", table, catalog, job("aws", ("p3.2xlarge",)), begin + 2 * DAY, begin + 20 * DAY,
        {market: Mortality(2.0)}, (Evidence(market, Exposure(1.0, 20.0)),),
    )  # fmt: skip
    first, *_, last = check_forecasts(world, 2.0, 4)
    assert "spot comes and goes as observed in 1 market" in first.forecast.basis
    assert last.forecast.hours.likely[1] > first.forecast.hours.likely[1]
