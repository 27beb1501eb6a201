"""The strategies of the papers' markets that are no strategies of jobs."""

from __future__ import annotations

import pytest

from bidbrain.strategies.base import Decision, Holding, Offer, Rent, Return, Situation
from bidbrain.strategies.standard import Standard
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.lab.papers.market import _NearBids
from tests.pricing_data.histories import START, market

CENT = NANOS_PER_DOLLAR // 100
LARGE = Offer(market("a.2xlarge"), 8.0, 44 * CENT)
BASELINE = Rent(LARGE, 64, None)


@pytest.mark.parametrize(
    ("price", "bid"), [(23 * CENT, 30 * CENT), (30 * CENT, 30 * CENT), (1, 10 * CENT)]
)
def test_near_bids_are_the_price_rounded_up_to_the_next_dime(price: int, bid: int) -> None:
    situation = Situation(START, (LARGE,), lambda _: price, (), BASELINE, 512.0, 1e9)
    assert _NearBids(Standard()).decide(situation).actions == (Rent(LARGE, 64, bid),)


def test_near_bids_leave_returns_and_machines_on_demand_as_they_are() -> None:
    class Swap:
        name = "swap"

        def decide(self, situation: Situation) -> Decision:
            del situation
            return Decision((Return(0), BASELINE))

    held = Holding(0, Rent(LARGE, 1, CENT), START, START)
    situation = Situation(START, (LARGE,), lambda _: CENT, (held,), BASELINE, 512.0, 1e9)
    assert _NearBids(Swap()).decide(situation).actions == (Return(0), BASELINE)
