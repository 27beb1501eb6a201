"""What is left of a replayed budget: hours that no later bill changes are billed once, with the
same result.
"""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.billing import End, Life, billing_rule, billing_rules, usd
from bidbrain.replay.run import ReplayedBudget
from bidbrain.strategies.base import Holding, Offer, Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, MINUTE
from tests.pricing_data.histories import START

MARKET = Market("aws", "us-east-1", "us-east-1a", "a.large")
RENT = Rent(Offer(MARKET, 4.0, 10**9), 3, 8 * 10**8)
LEASE = 16 * MINUTE


@pytest.mark.parametrize("rule", list(billing_rules()))
def test_what_is_left_is_the_budget_without_the_whole_bill(rule: str) -> None:
    chance, billing = np.random.default_rng(1), billing_rule(rule)
    times = np.unique(
        np.append(chance.integers(START, START + 3 * DAY, 60), [START, START + 3 * DAY])
    )
    prices = PriceSeries(MARKET, times, chance.integers(1, 90, times.size) * 10**7)
    budget, start = ReplayedBudget(50.0, billing, {MARKET: prices}, LEASE), START + 17 * MINUTE

    def bill(until: int, price: PriceSeries | int) -> float:
        return 3 * usd(billing.bill(Life(start, until, End.LEFT), price).amount)

    for now in np.sort(chance.integers(start, start + 2 * DAY, 40)).tolist():
        left, reserved = budget.left(START, now, 1.0, [Holding(0, RENT, start, start)])
        assert reserved == pytest.approx(bill(now + LEASE, 8 * 10**8) - bill(now, 8 * 10**8))
        assert left == pytest.approx(49.0 - bill(now, prices) - reserved, rel=1e-12)
