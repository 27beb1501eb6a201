"""A market of hosts: a higher bid is lost less often, displaced as often, and is as high as its
work is cheap.
"""

from __future__ import annotations

import numpy as np
import pytest

from bidbrain.billing import End, Life, PerSecond
from bidbrain.eviction.hazard import Hazard
from bidbrain.outbid.bid import MARGINS, BidTerms
from bidbrain.outbid.hosts import HostMarket
from bidbrain.outbid.record import HostRecord
from bidbrain.replay.run import bill_of_machine
from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, usd

ON_DEMAND = NANOS_PER_DOLLAR
TERMS = BidTerms(0.1, 0.1, 0.5, 0.02, 0.01, 0.1)


def fought_over(hours: int = 96) -> HostMarket:
    """Ten hosts, of which the cheap ones rise in every other hour, and the others never."""
    rows = []
    for hour in range(hours):
        for host in range(10):
            usd_asked = 0.1 + host / 50 + (0.2 if host < 5 and (hour + host) % 2 else 0)
            rows.append((hour * HOUR, host, round(usd_asked * ON_DEMAND), ON_DEMAND))
    return HostMarket.of(HostRecord.of(rows))


def rate(hazard: Hazard) -> float:
    return hazard.rate[0]


def test_a_higher_bid_is_lost_less_often_but_never_less_than_it_is_displaced() -> None:
    market = fought_over()
    rates = [rate(market.hazard(round(share * ON_DEMAND))) for share in (0.1, 0.2, 0.3, 0.5, 0.9)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 3 * rates[-1]
    assert rates[-1] > market.odds.displaced_per_hour(9) > 0
    assert "displaced" in market.hazard(ON_DEMAND // 5).basis


def test_the_margin_is_that_with_the_cheapest_work() -> None:
    market, price = fought_over(), round(0.15 * ON_DEMAND)

    def usd_per_work(margin: float) -> float:
        return TERMS.usd_per_work(
            0.15 * (1 + margin), rate(market.hazard(round(price * (1 + margin))))
        )

    chosen = market.margin(price, ON_DEMAND, TERMS)
    assert chosen > 0
    assert usd_per_work(chosen) == pytest.approx(min(map(usd_per_work, MARGINS)))


def test_no_margin_leads_above_the_price_on_demand() -> None:
    assert fought_over().margin(round(0.9 * ON_DEMAND), ON_DEMAND, TERMS) <= 0.1


def test_a_machine_costs_its_bid_where_bids_are_paid_and_the_price_elsewhere() -> None:
    life, bills = Life(0, HOUR, End.LEFT), {}
    for market in (
        Market("vast", "vast-us", "verified", "1xRTX_4090"),
        Market("aws", "us-east-1", "-", "p3.2xlarge"),
    ):
        history = PriceSeries(market, np.array([0, HOUR]), np.array([ON_DEMAND // 10] * 2))
        rent = Rent(Offer(market, 1.0, ON_DEMAND), 1, ON_DEMAND // 4)
        bill = bill_of_machine(rent, life, PerSecond("per-second"), {market: history})
        bills[market.cloud] = usd(bill.amount)
    assert bills == {"vast": pytest.approx(0.25), "aws": pytest.approx(0.1)}
