"""What a job costs that bids against rivals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bidbrain.lab.bids.backtest import BidBrain, Margin, Plan, View, bidding_of, play
from bidbrain.lab.bids.market import GeneratedMarket
from bidbrain.outbid.bid import HeldBid
from bidbrain.outbid.record import HostRecord
from pricing_data.units import HOUR
from tests.bidbrain.lab.bids.test_market import BUSY, EMPTY, TERMS, USD


def test_a_job_without_rivals_costs_its_bid_for_its_hours() -> None:
    outcome = play(EMPTY, 1, 5.0, TERMS, Margin(0.0))
    hours = 5 + 9 * TERMS.checkpoint_hours + TERMS.startup_hours
    assert outcome.hours == pytest.approx(hours + TERMS.loading_hours)
    least = min(host.floor for host in GeneratedMarket(EMPTY, 1, 10).hosts) / USD
    assert outcome.paid == pytest.approx(hours * least + outcome.hours * TERMS.disk_usd_per_hour)
    assert play(EMPTY, 1, 5.0, TERMS, BidBrain(TERMS)).paid == pytest.approx(outcome.paid)


def test_what_is_not_saved_is_lost_with_the_machine() -> None:
    """In a market full of rivals a job takes longer the rarer its checkpoints are."""
    busy = replace(BUSY, minimum=1.0)
    often, rare = (
        play(busy, 2, 6.0, replace(TERMS, checkpoint_every_hours=every), Margin(0.0))
        for every in (0.25, 2.0)
    )
    assert often.outbid > 3
    assert often.finished
    assert rare.hours > 1.5 * often.hours


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
