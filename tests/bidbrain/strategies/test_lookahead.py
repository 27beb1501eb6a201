"""`lookahead` against its formula computed one candidate at a time, and its invariants."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp, floor

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from bidbrain.billing import billing_rule
from bidbrain.eviction.hazard import Hazard
from bidbrain.eviction.survival import Exposure
from bidbrain.replay.job import run_job
from bidbrain.replay.market import MarketReplay
from bidbrain.strategies.base import (
    AGILE,
    Decision,
    Holding,
    Offer,
    Overheads,
    Rent,
    Return,
    Situation,
    Strategy,
)
from bidbrain.strategies.lookahead import (
    DISTANCES,
    FILLING_WORTH,
    SURVIVAL_CREDIT,
    Lookahead,
    NextHour,
    place_of,
)
from bidbrain.strategies.proteus import LOWEST_DELTA, RENEW_BEFORE, JobCosts
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, SECOND
from tests.bidbrain.lab.backtest.worlds import job, offer, restless
from tests.pricing_data.histories import START, market, series

PRICE = 20_000_000
BASELINE = Rent(Offer(market("base", "-"), 8.0, 40 * PRICE), 64, None)
OFFERS = (Offer(market("a.large"), 8.0, 10 * PRICE), Offer(market("b.large"), 40.0, 40 * PRICE))
APPLICATION = JobCosts(1 / 60, 1 / 120, 1 / 12, 0.6)
ROOM = 756.0


def hour(survival: float, mean_life: float = 0.4) -> NextHour:
    """The same at every distance up to the largest, where nothing is evicted."""
    far = np.append(np.zeros(DISTANCES.size - 1), 1.0)
    kept = np.maximum(np.full(DISTANCES.size, survival), far)
    alive = kept + (1 - kept) * mean_life
    return NextHour(kept, alive, np.maximum(alive - 1 / 12, 0), kept, kept)


def lookahead(*hours: NextHour, usd_per_hour: float = 5.0) -> Lookahead:
    known = {one.market: each for one, each in zip(OFFERS, hours, strict=True)}
    return Lookahead(OFFERS, known, APPLICATION, usd_per_hour)


def situation(
    *holdings: Holding,
    now: int = START,
    prices: tuple[int, int] = (PRICE, 5 * PRICE),
    room: float = ROOM,
) -> Situation:
    by_market = dict(zip([one.market for one in OFFERS], prices, strict=True))
    return Situation(now, OFFERS, lambda one: by_market[one.market], holdings, BASELINE, room, 1e13)


def held(number: int, chosen: Offer, machines: int, bid: int | None) -> Holding:
    return Holding(number, Rent(chosen, machines, bid), START, START + 300 * SECOND)


def rents(decision: Decision) -> list[Rent]:
    return [action for action in decision.actions if isinstance(action, Rent)]


shares = st.floats(0.01, 1.0)


@given(
    st.tuples(*[st.lists(shares, min_size=DISTANCES.size, max_size=DISTANCES.size)] * 6),
    st.tuples(st.integers(10**6, 10**9), st.integers(10**6, 10**9)),
    st.floats(0, 50),
)
@settings(max_examples=40)
def test_it_buys_the_candidate_with_the_lowest_price_of_work(
    rows: tuple[list[float], ...], prices: tuple[int, int], usd_per_hour: float
) -> None:
    def made(survival: list[float], alive: list[float], useful: list[float]) -> NextHour:
        kept = np.array(survival)
        return NextHour(kept, np.array(alive), np.array(useful), kept, kept)

    hours = made(*rows[:3]), made(*rows[3:])
    decision = lookahead(*hours, usd_per_hour=usd_per_hour).decide(situation(prices=prices))
    candidates: list[tuple[float, Rent]] = []
    for one, each, price in zip(OFFERS, hours, prices, strict=True):
        for i, distance in enumerate(DISTANCES.tolist()):
            count = floor(ROOM / one.nu)
            if each.useful[i] <= (1 - each.survival[i]) / 60 + 1 / 120:
                # Pauses take all of it.
                continue
            dollars = (
                count * price / NANOS_PER_DOLLAR * each.paid_new[i]
                + (0.6 + usd_per_hour) * each.alive[i]
            )
            work = count * one.nu * (each.useful[i] + SURVIVAL_CREDIT / 12 * each.survival[i])
            candidates.append((dollars / work, Rent(one, count, price + distance)))
    count = floor(ROOM / 8)
    dollars = count * BASELINE.offer.on_demand / NANOS_PER_DOLLAR + 0.6 + usd_per_hour
    candidates.append(
        (
            dollars / (count * 8 * (11 / 12 + SURVIVAL_CREDIT / 12)),
            Rent(BASELINE.offer, count, None),
        )
    )
    least = min(cost for cost, _ in candidates)
    main = rents(decision)[0]
    assert main in [rent for cost, rent in candidates if cost <= least * (1 + 1e-12)]
    assert f"(expected ${least:.3g} per unit of work)" in decision.reason


def test_the_room_is_one_allocation_and_the_next_decision_is_before_the_hour_ends() -> None:
    decision = lookahead(hour(0.9), hour(0.9)).decide(situation(prices=(PRICE, 6 * PRICE)))
    assert [(rent.offer, rent.machines) for rent in rents(decision)] == [(OFFERS[0], 94)]
    assert decision.wake_at == START + HOUR - RENEW_BEFORE


def test_a_higher_price_of_time_raises_the_bid() -> None:
    """At the lowest bids machines live for 0.4 hours on average, and are paid for a tenth of the
    time.
    """
    bids = [
        rents(
            lookahead(hour(0.1), hour(0.1), usd_per_hour=usd).decide(
                situation(prices=(PRICE, 6 * PRICE))
            )
        )[0].bid
        for usd in (0, 50)
    ]
    assert bids == [PRICE, PRICE + DISTANCES[-1]]


def test_only_bids_that_may_be_made_are_compared() -> None:
    """At the highest price of time the furthest bid is best; the highest that may be made has the
    step below it.
    """
    strategy = lookahead(hour(0.1), hour(0.1), usd_per_hour=50)
    asked = situation(prices=(PRICE, 6 * PRICE))
    assert rents(strategy.decide(asked))[0].bid == PRICE + DISTANCES[-1]
    (bought, *_) = rents(strategy.decide(replace(asked, highest_bid=lambda each: each.on_demand)))
    assert bought.bid in {
        PRICE,
        *(PRICE + DISTANCES[DISTANCES < 9 * PRICE]).tolist(),
        OFFERS[0].on_demand,
    }
    # A market whose bids are all evicted at once is refunded, and does no work.
    never = NextHour(*(np.zeros(DISTANCES.size) for _ in range(5)))
    (other, *_) = rents(lookahead(never, hour(1.0)).decide(asked))
    assert other.offer == OFFERS[1]


def test_remaining_room_is_filled_unless_an_eviction_would_pause_too_much() -> None:
    """18 machines of 40 leave 36; 4 machines of 8 fit. They do 32 x 11/12 units for 4 x $0.02; each
    unit is worth FILLING_WORTH of the main allocation's price of work, less the pause of 720 for a
    minute if they are evicted."""
    cheap = (PRICE, 4 * PRICE)
    main, beside = rents(lookahead(hour(1.0), hour(1.0)).decide(situation(prices=cheap)))
    assert ((main.offer, main.machines), (beside.offer, beside.machines)) == (
        (OFFERS[1], 18),
        (OFFERS[0], 4),
    )
    worth = FILLING_WORTH * (18 * 4 * 0.02 + 5.6) / (720 * (11 / 12 + SURVIVAL_CREDIT / 12))
    dear = int(worth * 32 * (11 / 12) / 4 * NANOS_PER_DOLLAR)
    bought = [
        len(rents(lookahead(hour(1.0), hour(1.0)).decide(situation(prices=(price, 4 * PRICE)))))
        for price in (dear - 1000, dear + 1000)
    ]
    assert bought == [2, 1]
    never = replace(
        hour(0.5, 0.4), useful=np.full(DISTANCES.size, 0.3), survival=np.full(DISTANCES.size, 0.1)
    )
    assert len(rents(lookahead(never, hour(1.0)).decide(situation(prices=cheap)))) == 1


def test_an_allocation_is_renewed_while_nothing_else_is_cheaper_start_up_included() -> None:
    due = START + HOUR - RENEW_BEFORE
    own = held(0, OFFERS[1], 18, 50 * PRICE)
    strategy = lookahead(hour(1.0), hour(1.0), usd_per_hour=0)
    # Renewed: (72 price + 0.6) / (720 (1 + 1/6)); bought: (94 price' + 0.6) / (752 (11/12 + 1/6)).
    as_good = ((18 * 4 * 0.02 + 0.6) * 752 * 13 / (720 * 14) - 0.6) / 94
    for price, actions in ((as_good * 1.001, ()), (as_good * 0.999, (Return(0, START + HOUR),))):
        prices = (int(price * NANOS_PER_DOLLAR), 4 * PRICE)
        decision = strategy.decide(situation(own, now=due, prices=prices))
        assert decision.actions == actions
    assert strategy.decide(situation(own, now=due - MINUTE, prices=(1, 4 * PRICE))).actions == ()


def test_a_smaller_allocation_is_renewed_while_its_work_is_worth_the_price() -> None:
    due = START + HOUR - RENEW_BEFORE
    main, beside = held(0, OFFERS[1], 18, 500 * PRICE), held(1, OFFERS[0], 4, 500 * PRICE)
    strategy = lookahead(hour(1.0), hour(1.0))
    assert (
        strategy.decide(situation(main, beside, now=due, prices=(PRICE, 4 * PRICE))).actions == ()
    )
    decision = strategy.decide(situation(main, beside, now=due, prices=(20 * PRICE, 4 * PRICE)))
    assert decision.actions == (Return(1, START + HOUR),)


def test_the_pause_after_an_eviction_reduces_an_allocations_worth() -> None:
    """Alive for 0.46 hours, paid in a tenth: 32 x 0.46 units, less 752 x (0.9 / 60 - 1 / 120), for
    a tenth of 4 prices. A unit is worth 0.7 of what the main allocation's best replacement
    costs."""
    due = START + HOUR - RENEW_BEFORE
    strategy = lookahead(hour(0.1), hour(1.0))
    worth = FILLING_WORTH * (18 * 4 * 0.02 + 5.6) / (720 * (11 / 12 + SURVIVAL_CREDIT / 12))
    as_good = worth * (32 * 0.46 - 752 * (0.9 / 60 - 1 / 120)) / 0.4
    for share, actions in ((0.99, ()), (1.01, (Return(1, START + HOUR),))):
        price = int(share * as_good * NANOS_PER_DOLLAR)
        holdings = held(0, OFFERS[1], 18, 500 * PRICE), held(1, OFFERS[0], 4, price)
        assert (
            strategy.decide(situation(*holdings, now=due, prices=(price, 4 * PRICE))).actions
            == actions
        )


def test_the_baseline_is_rented_when_spot_is_expensive_or_closed() -> None:
    strategy = lookahead(hour(1.0), hour(1.0))
    on_demand = Rent(BASELINE.offer, 94, None)
    assert rents(strategy.decide(situation(prices=(400 * PRICE, 2000 * PRICE)))) == [on_demand]
    closed = Lookahead((), {}, APPLICATION, 5.0)
    assert rents(closed.decide(replace(situation(), offers=()))) == [on_demand]
    due = START + HOUR - RENEW_BEFORE
    given_up = strategy.decide(situation(held(0, BASELINE.offer, 94, None), now=due)).actions
    assert given_up == (Return(0, START + HOUR),)


def test_a_room_too_small_for_any_machine_stays_empty() -> None:
    decision = lookahead(hour(1.0), hour(1.0)).decide(situation(room=4.0))
    assert (decision.actions, decision.wake_at) == ((), START + 2 * MINUTE)


@dataclass
class Recorded:
    """Records a strategy's decisions and their times."""

    strategy: Strategy
    name: str = "recorded"
    decisions: list[tuple[int, Decision]] = field(default_factory=list)

    def decide(self, situation: Situation) -> Decision:
        decision = self.strategy.decide(situation)
        self.decisions.append((situation.now, decision))
        return decision


def made_for(histories: tuple[PriceSeries, ...], usd_per_hour: float) -> Lookahead:
    offers = tuple(offer(series, nu) for series, nu in zip(histories, (4.0, 7.0), strict=True))
    hours = {
        series.market: NextHour.of(
            series.window(START, START + 30 * HOUR), billing_rule("hourly-refund"), 1 / 12, None
        )
        for series in histories
    }
    return Lookahead(offers, hours, JobCosts(1 / 60, 1 / 120, 1 / 12, 1e-7), usd_per_hour)


@pytest.mark.parametrize("seed", range(6))
def test_decisions_do_not_depend_on_the_future_and_stay_within_the_room(seed: int) -> None:
    histories = restless(seed, 60), restless(seed + 100, 60, "b.large")
    strategy = made_for(histories, 2e-6)
    work = job(strategy.offers, 4.0)
    split = work.start + 90 * MINUTE + seed * 7 * MINUTE
    other = tuple(
        PriceSeries(
            one.market, one.times, np.where(one.times > split, one.prices[::-1], one.prices)
        )
        for one in histories
    )
    known = []
    for world in (histories, other):
        recorded = Recorded(strategy)
        run = run_job(
            work,
            recorded,
            MarketReplay(world),
            Overheads(300 * SECOND, 60 * SECOND, 30 * SECOND),
            AGILE,
        )
        known.append([one for one in recorded.decisions if one[0] <= split])
        assert run.end is not None
        for moment in [tenure.start for tenure in run.tenures]:
            at_once = sum(
                one.rent.machines * one.rent.offer.nu
                for one in run.tenures
                if one.start <= moment < one.end
            )
            assert at_once <= work.most_nu
    assert known[0] == known[1]
    assert len(known[0]) >= 2


def test_a_higher_price_of_time_gives_shorter_jobs_with_fewer_evictions() -> None:
    histories = restless(5, 400), restless(6, 400, "b.large")
    overheads = Overheads(300 * SECOND, 60 * SECOND, 30 * SECOND)
    hours, evictions = [], []
    for usd_per_hour in (0.0, 1e-4):
        strategy = made_for(histories, usd_per_hour)
        starts = [START + (30 + 8 * i) * HOUR for i in range(30)]
        works = [job(strategy.offers, 4.0, at) for at in starts]
        runs = [
            run_job(work, strategy, MarketReplay(histories), overheads, AGILE) for work in works
        ]
        hours.append(sum((run.end or run.job.limit) - run.job.start for run in runs))
        evictions.append(sum(run.evictions for run in runs))
    assert hours[1] < hours[0]
    assert evictions[1] < evictions[0]


REFUND, PER_SECOND, FIRST_FREE = map(
    billing_rule, ("hourly-refund", "per-second", "per-second-first-hour-free")
)
STARTUP = 1 / 10
LOW, HIGH = 10**7, 2 * 10**7


def of(history: PriceSeries, hazard: Hazard | None = None, startup: float = STARTUP) -> NextHour:
    return NextHour.of(history, REFUND, startup, hazard)


def test_a_price_that_never_moves_keeps_every_machine() -> None:
    hour = of(series((0, LOW), (20 * 3600, LOW)))
    assert np.allclose(hour.survival, 1)
    assert np.allclose(hour.alive, 1)
    assert np.allclose(hour.useful, 1 - STARTUP)
    assert np.allclose(hour.paid_new, 1)


def test_a_price_that_rises_every_other_half_hour() -> None:
    """Half of the starts are low, and are evicted after at most half an hour, evenly spread: alive
    1/4 h on average, and useful (0.4 h)^2 / 2 / 0.5 h = 0.16 h. The others are high already and
    stay."""
    hour = of(series(*((i * 1800, HIGH if i % 2 else LOW) for i in range(2001))))
    close, far = 0, place_of(HIGH - LOW)
    assert hour.survival[close] == pytest.approx(0.5, abs=0.002)
    assert hour.alive[close] == pytest.approx(0.5 * 0.25 + 0.5, abs=0.002)
    assert hour.useful[close] == pytest.approx(0.5 * 0.16 + 0.5 * 0.9, abs=0.002)
    assert hour.paid_new[close] == pytest.approx(0.5, abs=0.002)
    assert hour.survival[far] < 1
    assert hour.survival[far + 1] == 1


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.floats(0, 0.5))
def test_expectations_are_those_of_starts_followed_one_by_one(seed: int, startup: float) -> None:
    rng = np.random.default_rng(seed)
    steps = np.cumsum(rng.integers(60, 1500, 60))
    prices = LOW + rng.choice([0, 300_000, 5_000_000], steps.size)
    history = series((0, LOW), *zip(steps.tolist(), prices.tolist(), strict=True))
    hour = of(history, startup=startup)
    for at in (0, place_of(1_000_000), place_of(6_000_000)):
        lives = np.array(followed(history, int(DISTANCES[at])))
        assert hour.survival[at] == pytest.approx((lives >= 1).mean(), abs=0.02)
        assert hour.alive[at] == pytest.approx(lives.mean(), abs=0.04)
        assert hour.useful[at] == pytest.approx(np.maximum(lives - startup, 0).mean(), abs=0.04)


def followed(history: PriceSeries, distance: int) -> list[float]:
    """Lifetime of each of many starts, in hours, at most one."""
    lives = []
    for start in np.linspace(history.first, history.last - HOUR, 1500).astype(np.int64):
        bid = int(history.prices[history.times <= start][-1]) + distance
        above = history.times[(history.times > start) & (history.prices > bid)]
        lives.append(min((int(above[0]) - int(start)) / HOUR, 1.0) if above.size else 1.0)
    return lives


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(30, 4000), st.integers(10**6, 10**9)), min_size=30, max_size=60)
)
def test_higher_bids_last_longer_and_start_up_is_not_useful(steps: list[tuple[int, int]]) -> None:
    times = np.cumsum([span for span, _ in steps]).tolist()
    known = list(zip(times, (price for _, price in steps), strict=True))
    hour = of(series((0, 10**8), *known, (times[-1] + 8000, 10**8)))
    for rising in (hour.survival, hour.alive, hour.useful):
        assert np.all(np.diff(rising) >= -1e-12)
    assert np.all(hour.survival <= hour.alive)
    assert np.all(hour.alive <= 1 + 1e-12)
    assert np.all(hour.useful <= hour.alive)
    assert np.all(hour.useful <= 1 - STARTUP + 1e-12)


def test_a_hazard_evicts_at_any_bid_and_the_billing_rule_sets_the_cost() -> None:
    still, rate = series((0, LOW), (20 * 3600, LOW)), 0.7
    known = Hazard((), Exposure(rate * 1e9, 1e9))
    alive = (1 - exp(-rate)) / rate
    hour = NextHour.of(still, FIRST_FREE, STARTUP, known)
    assert hour.survival[0] == pytest.approx(exp(-rate))
    assert hour.alive[0] == pytest.approx(alive, abs=1e-3)
    assert hour.useful[0] == pytest.approx((exp(-rate * STARTUP) - exp(-rate)) / rate, abs=1e-3)
    assert hour.paid_new[0] == pytest.approx(exp(-rate), abs=1e-3)
    assert hour.paid_old[0] == pytest.approx(alive, abs=2e-3)


def test_distances_are_found_from_below() -> None:
    assert place_of(-5) == place_of(0) == place_of(LOWEST_DELTA - 1) == 0
    assert place_of(LOWEST_DELTA) == 1
    assert place_of(10**12) == DISTANCES.size - 1
