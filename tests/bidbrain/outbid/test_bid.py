"""The best bid is what a play of lives finds cheapest; and a machine is held, raised or let go for
what that costs.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor

import numpy as np
import pytest

from bidbrain.billing import End, Life, PerSecond
from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.survival import Exposure
from bidbrain.outbid.bid import MARGINS, BidAdviser, BidStep, BidTerms, HeldBid, HostMarket
from bidbrain.outbid.odds import OutbidOdds
from bidbrain.outbid.record import HostRecord
from bidbrain.replay.run import bill_of_machine
from bidbrain.strategies.base import Offer, Rent
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR, usd

USD = NANOS_PER_DOLLAR
TERMS = BidTerms(
    loading_hours=0.1,
    startup_hours=0.05,
    checkpoint_every_hours=0.5,
    checkpoint_hours=0.02,
    disk_usd_per_hour=0.01,
    time_usd_per_hour=0.1,
)


def odds(
    *rates: tuple[float, float], displaced: float = 0.01, back_hours: float = 4.0
) -> OutbidOdds:
    """Odds in which a bid of a multiple of the usual one is outbid at a rate; between these, as in
    the table.
    """
    levels = np.linspace(-20, 20, 41) / 10
    table = np.interp(
        levels, np.log([multiple for multiple, _ in rates]), [rate for _, rate in rates]
    )
    return OutbidOdds(
        table, np.full(41, 10.0), Exposure(10 * displaced, 10), {}, Exposure(1, back_hours), 100.0
    )


def market(*bids: float, on_demand: float = 1.0) -> HostRecord:
    return HostRecord.of(
        [(0, host, round(bid * USD), round(on_demand * USD)) for host, bid in enumerate(bids)]
    )


def played_usd(
    terms: BidTerms, price: float, rate: float, hours: float, rng: np.random.Generator
) -> float:
    """The cost of an hour of work, from lives that are drawn one by one until some hours are
    done."""
    done = usd = 0.0
    cycle = terms.checkpoint_every_hours + terms.checkpoint_hours
    while done < hours:
        life = float(rng.exponential(1 / rate))
        done += floor(life / cycle) * terms.checkpoint_every_hours
        usd += terms.restart_usd(price) + life * (price + terms.waiting_usd)
    return usd / done


@pytest.mark.parametrize("rate", [0.05, 0.3, 1.0])
def test_the_cost_of_work_is_that_of_lives_played_one_by_one(rate: float) -> None:
    played = played_usd(TERMS, 0.3, rate, 40_000, np.random.default_rng(1))
    assert TERMS.usd_per_work(0.3, rate) == pytest.approx(played, rel=0.02)


@pytest.mark.parametrize("pays_bid", [True, False])
@pytest.mark.parametrize("steep", [0.2, 0.5, 2.0])
def test_the_best_bid_is_what_a_play_of_every_bid_finds(steep: float, *, pays_bid: bool) -> None:
    """Over a long job, the bid that is advised costs no more than the cheapest one by brute force,
    to its error.
    """
    terms, known = replace(TERMS, pays_bid=pays_bid), odds((1.0, steep), (3.0, 0.01))
    best = BidAdviser(known, terms, market(0.2, on_demand=0.9)).best(10_000)
    assert best is not None
    assert best.bid.bid is not None
    played = {}
    for bid in np.linspace(0.2, 0.6, 21).tolist():
        rate = float(known.outbid_per_hour(np.log([bid / 0.2]))[0]) + 0.01
        played[bid] = played_usd(
            terms, bid if pays_bid else 0.2, rate, 20_000, np.random.default_rng(2)
        )
    chosen = TERMS.usd_per_work(best.bid.price_usd, best.bid.losses_per_hour)
    assert chosen <= 1.02 * min(played.values())
    assert pays_bid or best.bid.bid > 0.5 * USD


def test_a_bid_that_is_always_outbid_loses_to_on_demand() -> None:
    best = BidAdviser(odds((1.0, 30.0), (2.0, 30.0)), TERMS, market(0.4, 0.5)).best(10)
    assert best is not None
    assert best.bid.bid is None
    assert best.usd == pytest.approx(TERMS.restart_usd(1.0) + 10 * 1.11 / (0.5 / 0.52))


def test_a_bid_that_is_soon_outbid_is_raised_but_not_above_the_price_on_demand() -> None:
    held = HeldBid(0, round(0.3 * USD), USD, runs=True)
    step = BidAdviser(odds((1.0, 2.0), (2.0, 0.0)), TERMS, market(0.3)).advice(held, 10)
    assert step.step is BidStep.RAISE
    assert step.bid.bid is not None
    assert step.bid.bid <= USD


def test_a_machine_that_runs_well_is_held_and_one_that_costs_too_much_is_let_go() -> None:
    calm = odds((1.0, 0.02), (2.0, 0.01))
    held = HeldBid(0, round(0.303 * USD), USD, runs=True)
    near = BidAdviser(calm, TERMS, market(0.304, 0.30, 0.30)).advice(held, 5)
    assert near.step is BidStep.HOLD
    cheap = BidAdviser(calm, TERMS, market(0.304, 0.15, 0.15)).advice(held, 5)
    assert cheap.step is BidStep.LEAVE
    assert cheap.bid.host in (1, 2)
    # Half a minute before the end of the work, no move pays.
    assert (
        BidAdviser(calm, TERMS, market(0.304, 0.15, 0.15)).advice(held, 0.01).step is BidStep.HOLD
    )


def test_a_paused_machine_is_raised_for_little_and_let_go_for_much() -> None:
    calm, listed = odds((1.0, 0.1), (2.0, 0.05)), (0.3, 0.3, 0.3)
    held = HeldBid(0, round(0.3 * USD), USD, runs=False, least_bid=round(0.301 * USD))
    assert BidAdviser(calm, TERMS, market(0.301, *listed)).advice(held, 5).step is BidStep.RAISE
    dear = replace(held, least_bid=round(0.8 * USD))
    assert BidAdviser(calm, TERMS, market(0.8, *listed)).advice(dear, 5).step is BidStep.LEAVE
    gone = replace(held, least_bid=None)
    assert BidAdviser(calm, TERMS, market(*listed)).advice(gone, 5).step is BidStep.LEAVE


def test_a_paused_machine_is_waited_for_where_the_rest_costs_more_than_the_wait() -> None:
    soon, held = (
        odds((1.0, 0.1), (2.0, 0.05), back_hours=0.05),
        HeldBid(0, round(0.3 * USD), USD, runs=False),
    )
    step = BidAdviser(soon, TERMS, market(0.9, 0.6)).advice(
        replace(held, least_bid=round(0.9 * USD)), 5
    )
    assert step.step is BidStep.HOLD
    late = odds((1.0, 0.1), (2.0, 0.05), back_hours=40)
    assert BidAdviser(late, TERMS, market(0.9, 0.6)).advice(held, 5).step is BidStep.LEAVE


def test_a_bargain_is_worth_a_bid_that_keeps_it() -> None:
    """The same host is bid for higher while others usually cost more, because what follows a loss
    is dearer.
    """
    known = odds((0.3, 0.5), (1.0, 0.05), (3.0, 0.02))
    dear = [
        (-step * HOUR, host, round(0.6 * USD), USD) for step in range(1, 12) for host in range(5)
    ]
    now = [
        (0, 0, round(0.2 * USD), USD),
        *((0, host, round(0.6 * USD), USD) for host in range(1, 5)),
    ]
    usual = [
        (at, host, round(0.2 * USD) if host == 0 else bid, price) for at, host, bid, price in dear
    ]
    keeps = BidAdviser(known, TERMS, HostRecord.of(dear + now)).best(5)
    often = BidAdviser(known, TERMS, HostRecord.of(usual + now)).best(5)
    assert keeps is not None
    assert often is not None
    assert keeps.bid.host == often.bid.host == 0
    assert (keeps.bid.bid or 0) > (often.bid.bid or 0)


ON_DEMAND = NANOS_PER_DOLLAR
HOST_TERMS = BidTerms(0.1, 0.1, 0.5, 0.02, 0.01, 0.1)


def fought_over(hours: int = 96) -> HostMarket:
    """Ten hosts: the cheap ones raise their price every other hour, the others never do."""
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
        return HOST_TERMS.usd_per_work(
            0.15 * (1 + margin), rate(market.hazard(round(price * (1 + margin))))
        )

    chosen = market.margin(price, ON_DEMAND, HOST_TERMS)
    assert chosen > 0
    assert usd_per_work(chosen) == pytest.approx(min(map(usd_per_work, MARGINS)))


def test_no_margin_leads_above_the_price_on_demand() -> None:
    assert fought_over().margin(round(0.9 * ON_DEMAND), ON_DEMAND, HOST_TERMS) <= 0.1


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
