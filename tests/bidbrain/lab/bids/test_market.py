"""The generated market: who bids most runs, renters on demand take a host from any bid, and seconds
cost their rate.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bidbrain.lab.bids.market import STEP, Assumptions, GeneratedMarket, MarketHost
from bidbrain.outbid.bid import BidTerms
from pricing_data.units import NANOS_PER_DOLLAR

BUSY = Assumptions(rivals=0.25)
EMPTY = replace(BUSY, rivals=0.0, on_demand=0.0, hosts=2)
TERMS = BidTerms(0.1, 0.05, 0.5, 0.02, 0.01, 0.2)
USD = NANOS_PER_DOLLAR


def quiet() -> GeneratedMarket:
    """Two hosts without visitors, at $0.20 and $0.30 at least."""
    market = GeneratedMarket(EMPTY, 1, 100)
    market.hosts = [MarketHost(USD, 2 * USD // 10), MarketHost(USD, 3 * USD // 10)]
    return market


def test_who_bids_most_runs() -> None:
    market = quiet()
    own = market.rent(0, 2 * USD // 10, 0.0)
    market.hosts[0].bids.append((2 * USD // 10 + STEP, 3.0))
    assert market.least_bid(0) == 2 * USD // 10 + 2 * STEP
    market.change_bid(own, 2 * USD // 10 + STEP)
    assert [own.runs, market.rent(0, 2 * USD // 10 + 2 * STEP, 0.0).runs] == [False, True]


def test_a_paused_machine_runs_again_when_its_rival_leaves() -> None:
    """In some hour a rival takes the host from the minimum bid, and the machine is still there when
    that one leaves.
    """
    market = GeneratedMarket(replace(BUSY, hosts=1, on_demand=0.0), 1, 100)
    own = market.rent(0, market.hosts[0].floor, 0.0)
    states = []
    while market.advance(100) < 100:
        states.append(own.runs)
    assert states[:3] == [False, True, False]


def test_seconds_cost_the_bid_or_what_the_host_asks_without_it() -> None:
    market = quiet()
    own = market.rent(1, USD // 2, loading_hours=0.5)
    market.advance(2.5)
    assert own.paid == pytest.approx(2 * 0.5)
    assert own.cleared == pytest.approx(2 * 0.3)
    assert market.least_bid(1) == USD // 2 + STEP


def test_a_renter_on_demand_takes_a_host_from_any_bid() -> None:
    market = GeneratedMarket(replace(EMPTY, on_demand=1.0), 3, 200)
    own = market.rent(0, market.hosts[0].on_demand, 0.0)
    market.advance(200)
    assert not own.runs
    assert 0 not in market.listed().host


def test_the_same_seed_brings_the_same_rivals_to_every_way_of_bidding() -> None:
    one, other = (GeneratedMarket(BUSY, 5, 50) for _ in range(2))
    other.rent(0, other.hosts[0].on_demand, 0.0)
    assert one._arrivals == other._arrivals
