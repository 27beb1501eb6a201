"""The generated market: who bids most runs, renters on demand take a host from any bid, and seconds
cost their rate.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bidbrain.lab.bids.backtest import WAYS, BidBrain, BidJob, Margin, Plan, View, bidding_of, play
from bidbrain.lab.bids.market import STEP, Assumptions, GeneratedMarket, MarketHost
from bidbrain.lab.bids.results import BidPortion, play_portion, summarize
from bidbrain.outbid.bid import BidTerms, HeldBid
from bidbrain.outbid.record import HostRecord
from pricing_data.units import HOUR, NANOS_PER_DOLLAR

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


def test_a_job_without_rivals_costs_its_bid_for_its_hours() -> None:
    job = BidJob(5.0, TERMS)
    outcome = play(EMPTY, 1, job, Margin(0.0))
    hours = 5 + 9 * TERMS.checkpoint_hours + TERMS.startup_hours
    assert outcome.hours == pytest.approx(hours + TERMS.loading_hours)
    least = min(host.floor for host in GeneratedMarket(EMPTY, 1, 10).hosts) / USD
    assert outcome.paid == pytest.approx(hours * least + outcome.hours * TERMS.disk_usd_per_hour)
    assert play(EMPTY, 1, job, BidBrain(TERMS)).paid == pytest.approx(outcome.paid)


def test_what_is_not_saved_is_lost_with_the_machine() -> None:
    """In a market full of rivals a job takes longer the rarer its checkpoints are."""
    busy = replace(BUSY, minimum=1.0)
    often, rare = (
        play(busy, 2, BidJob(6.0, replace(TERMS, checkpoint_every_hours=every)), Margin(0.0))
        for every in (0.25, 2.0)
    )
    assert often.outbid > 3
    assert often.finished
    assert rare.hours > 1.5 * often.hours


@pytest.mark.parametrize(
    "assumed", [BUSY, Assumptions(on_demand=0.2, hosts=3), Assumptions(rivals=0.2, swing=1.0)]
)
def test_every_way_ends_in_every_market_and_none_beats_the_lowest_floor(
    assumed: Assumptions,
) -> None:
    job = BidJob(4.0, TERMS)
    played, tried = play_portion(BidPortion("one", assumed, 7, job, WAYS))
    assert not tried
    floor = min(host.floor for host in GeneratedMarket(assumed, 7, 1).hosts) / USD
    assert len({(each.way, each.costs) for each in played}) == 2 * len(WAYS)
    for each in played:
        assert each.outcome.finished
        assert each.usd > 4 * floor
        assert each.outcome.cleared <= each.outcome.paid + 1e-9


def test_the_summary_pairs_the_jobs_of_a_seed() -> None:
    job = BidJob(4.0, TERMS)
    played = [
        each
        for seed in range(2)
        for each in play_portion(BidPortion("calm", Assumptions(), seed, job, ()))[0]
    ]
    summaries = {(each.way, each.costs): each for each in summarize(played)}
    own, dear = summaries["bidbrain", "its bid"], summaries["on-demand", "its bid"]
    assert (own.saved, own.saved_low, own.saved_high) == (0, 0, 0)
    assert dear.cost_pct == dear.with_time_pct == 100
    assert dear.saved > 0


def test_markets_are_summed_up_together_and_jobs_are_paired_in_each() -> None:
    job, markets = BidJob(4.0, TERMS), {"calm": Assumptions(), "busy": BUSY}
    portions = [
        BidPortion(name, assumed, seed, job, ())
        for name, assumed in markets.items()
        for seed in range(2)
    ]
    summaries = list(summarize([each for portion in portions for each in play_portion(portion)[0]]))
    assert [each.market for each in summaries] == ["calm"] * 4 + ["busy"] * 4 + ["all"] * 4
    one, other, both = summaries[::4]
    assert (one.way, both.jobs) == ("on-demand", 4)
    assert both.outbid == one.outbid == other.outbid == 0
    assert both.saved_low < both.saved < both.saved_high


def view(others: float, *, runs: bool) -> View:
    """A machine at $0.40 on a host that asks for $0.50 in every other hour, next to two hosts that
    never rise.
    """
    asked = [
        (hour, host, usd)
        for hour in range(24)
        for host, usd in enumerate((0.4 + 0.1 * (hour % 2), others, others))
    ]
    record = HostRecord.of(
        [(hour * HOUR, host, round(usd * USD), USD) for hour, host, usd in asked]
    )
    return View(
        record, [], 10.0, HeldBid(0, 4 * USD // 10, USD, runs, None if runs else 5 * USD // 10)
    )


def test_a_machine_keeps_its_bid_until_it_is_paused_unless_a_step_is_allowed() -> None:
    kept, cheap, dear = Plan(0, 4 * USD // 10), Plan(1, 2 * USD // 10), Plan(1, 6 * USD // 10)
    for name, amid_cheap, amid_dear, paused in (
        ("bidbrain", kept, kept, dear),
        ("bidbrain, raise", kept, Plan(0, 52 * USD // 100), dear),
        ("bidbrain, let go", cheap, kept, dear),
        ("bidbrain, raise, let go", cheap, Plan(0, 52 * USD // 100), dear),
        ("bidbrain, wait", kept, kept, kept),
    ):
        way = bidding_of(name, TERMS)
        assert way.plan(view(0.2, runs=True)) == amid_cheap
        assert way.plan(view(0.6, runs=True)) == amid_dear
        assert way.plan(view(0.6, runs=False)) == paused
