"""The frontier: who is beaten, and a bound at equal run time that nothing undercuts."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from bidbrain.lab.backtest.bound import UnitPrices, cheapest_work
from bidbrain.lab.backtest.frontier import FrontierPoint, judge
from bidbrain.lab.backtest.results import ConfidenceInterval
from bidbrain.replay.market import Capacity, MarketReplay
from bidbrain.strategies.base import Offer
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR
from tests.bidbrain.lab.backtest.worlds import BASELINE, ON_DEMAND, offer, restless
from tests.pricing_data.histories import START


def point(scheme: str, cost: float, time: float, unfinished: int = 0) -> FrontierPoint:
    return FrontierPoint(
        scheme, 2.0, 10, unfinished, ConfidenceInterval(cost, nan, nan), cost, time, 10.0
    )


def test_a_strategy_is_beaten_by_one_that_is_clearly_cheaper_and_as_fast() -> None:
    mine = point("mine", 30.0, 0.8)
    assert judge(mine, [mine, point("slower", 20.0, 0.81), point("hardly", 29.9, 0.7)]) is None
    assert judge(mine, [point("cheaper", 29.8, 0.8), point("cheapest", 25.0, 0.8005)]) == "cheapest"
    assert judge(mine, [point("unfinished", 20.0, 0.5, unfinished=1)]) is None
    assert judge(mine, [replace(point("longer", 20.0, 0.5), hours=20.0)]) is None


def flat(name: str, price: int) -> PriceSeries:
    market = Market("aws", "us-east-1", "us-east-1a", name)
    times = np.array([START, START + 100 * HOUR], dtype=np.int64)
    return PriceSeries(market, times, np.array([price, price], dtype=np.int64))


@pytest.mark.parametrize(
    ("depth", "work", "cost"),
    # 4 nu a machine at 100 and at 200: 25 and 50 per unit of work; on demand, 125.
    [
        (None, 40.0, 40 * 25),
        (1, 40.0, 40 * 25),
        (1, 80.0, 40 * 25 + 40 * 50),
        (1, 100.0, 40 * 25 + 40 * 50 + 20 * 125),
    ],
)
def test_finite_pools_are_filled_from_the_cheapest(
    depth: int | None, work: float, cost: float
) -> None:
    """Ten hours with room for 40 nu: one machine of a market does 40 units of work."""
    cheap, dear = flat("a.large", 100), flat("b.large", 200)
    offers = (Offer(cheap.market, 4.0, ON_DEMAND), Offer(dear.market, 4.0, ON_DEMAND))
    prices = UnitPrices.of(
        [cheap, dear], offers, BASELINE.offer, MarketReplay([cheap, dear]), depth
    )
    lengths, unit, nu = prices.within(START, START + 10 * HOUR)
    assert cheapest_work(lengths / HOUR, unit, nu, work, 40.0) == pytest.approx(cost)


def test_a_market_without_machines_does_no_work() -> None:
    series = restless(3, 48)
    closed = Capacity(np.array([START], dtype=np.int64), np.array([0], dtype=np.int64))
    market = MarketReplay([series], {series.market: closed})
    prices = UnitPrices.of([series], (offer(series),), BASELINE.offer, market, 5)
    _, unit, _ = prices.within(START + HOUR, START + 20 * HOUR)
    assert unit[:, 0] == pytest.approx(ON_DEMAND / BASELINE.offer.nu)
    assert np.all(unit[:, 1] == inf)


def test_a_replay_has_no_more_machines_than_its_depth() -> None:
    series = restless(3, 48)
    market = MarketReplay([series])
    assert market.at_most(3).capacity(series.market, START + HOUR) == 3
    limited = MarketReplay(
        [series],
        {series.market: Capacity(np.array([0], dtype=np.int64), np.array([2], dtype=np.int64))},
    )
    assert limited.at_most(3).capacity(series.market, START + HOUR) == 2
    assert limited.at_most(1).capacity(series.market, START + HOUR) == 1
    assert market.at_most(3).price(series.market, START + HOUR) == market.price(
        series.market, START + HOUR
    )
