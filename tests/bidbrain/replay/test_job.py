from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from bidbrain.billing import End
from bidbrain.replay.job import run_job
from bidbrain.replay.market import MarketReplay, Warnings
from bidbrain.replay.run import ReplayedJob, Run
from bidbrain.strategies.base import (
    AGILE,
    Decision,
    Offer,
    Overheads,
    Recovery,
    Rent,
    Return,
    Situation,
    Strategy,
)
from bidbrain.strategies.proteus import JobCosts, Odds, Proteus
from bidbrain.strategies.standard import Standard, TierMl, mttf_by_tenth
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, SECOND
from tests.bidbrain.lab.backtest.worlds import BASELINE, job, offer, restless

OVERHEADS = Overheads(startup=300 * SECOND, eviction=60 * SECOND, resize=30 * SECOND)


@dataclass
class Whims:
    """Rents, returns now or later, and wakes at random whole seconds, as no sensible strategy
    would.
    """

    seed: int
    name: str = "whims"
    asked: list[Situation] = field(default_factory=list)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    def decide(self, situation: Situation) -> Decision:
        self.asked.append(situation)
        chance = self._chance
        actions: list[Rent | Return] = []
        for holding in situation.holdings:
            if holding.leaves_at is None and chance.random() < 0.3:
                later = situation.now + chance.randrange(1, 1500) * SECOND
                actions.append(Return(holding.allocation, chance.choice([None, later])))
        if chance.random() < 0.7:
            chosen = chance.choice(situation.offers)
            bid = situation.price(chosen) + chance.randrange(1, 300)
            actions.append(Rent(chosen, chance.randrange(1, 4), chance.choice([bid, None])))
        return Decision(tuple(actions), situation.now + chance.randrange(60, 2000) * SECOND)


def work_second_by_second(run: Run, overheads: Overheads, speed: float, until: int) -> float:
    """Work in nu x microseconds, from the tenures alone. Only the end of the job falls within a
    second.
    """
    stops = sorted(
        [(one.end, overheads.eviction) for one in run.tenures if one.ended is End.EVICTED]
        + [(one.end, overheads.resize) for one in run.tenures if one.ended is End.LEFT]
        + [
            (one.ready, overheads.resize)
            for one in run.tenures
            if one.end > one.ready and any(o.ready < one.ready < o.end for o in run.tenures)
        ]
    )
    done, second = 0.0, run.job.start
    while second < until:
        length = min(SECOND, until - second)
        if not any(at <= second < at + span for at, span in stops):
            working = [one for one in run.tenures if one.ready <= second < one.end]
            done += sum(one.rent.machines * one.rent.offer.nu for one in working) * speed * length
        second += SECOND
    return done


@pytest.mark.parametrize("seed", range(12))
def test_work_equals_a_second_by_second_sum_and_evictions_come_from_the_market(seed: int) -> None:
    histories = [restless(seed, 60), restless(seed + 100, 60, "b.large")]
    offers = (offer(histories[0]), offer(histories[1], 6.0))
    run = run_job(
        job(offers), Whims(seed), MarketReplay(histories), OVERHEADS, Recovery(speed=0.83)
    )
    until = run.job.limit if run.end is None else run.end
    done = work_second_by_second(run, OVERHEADS, 0.83, until)
    if run.end is None:
        assert done < run.job.work
    else:
        assert done == pytest.approx(run.job.work, rel=1e-9)
    for tenure in run.tenures:
        assert tenure.ready == tenure.start + OVERHEADS.startup
        above = (
            [] if tenure.rent.bid is None else evictions_of(histories, tenure.rent, tenure.start)
        )
        first = above[0] if above else None
        if tenure.ended is End.EVICTED:
            assert tenure.end == first
        else:
            assert first is None or tenure.end <= first


def evictions_of(histories: list[PriceSeries], rent: Rent, start: int) -> list[int]:
    """Every later event strictly above the bid, by a linear scan."""
    series = next(one for one in histories if one.market == rent.offer.market)
    events = zip(series.times.tolist(), series.prices.tolist(), strict=True)
    assert rent.bid is not None
    return [time for time, price in events if time > start and price > rent.bid]


def changed_after(series: PriceSeries, moment: int, seed: int) -> PriceSeries:
    """The same history up to a moment, with different prices after it."""
    prices = series.prices.copy()
    later = series.times > moment
    prices[later] = np.random.default_rng(seed).integers(100, 1600, int(later.sum()))
    return PriceSeries(series.market, series.times.copy(), prices)


def strategies(histories: list[PriceSeries], work: ReplayedJob) -> list[Strategy]:
    learned = [series.window(series.first, series.first + 30 * HOUR) for series in histories]
    odds = {series.market: Odds.of(series) for series in learned}
    mttf = {series.market: mttf_by_tenth(series, 1000) for series in learned}
    return [
        Standard(),
        TierMl(mttf),
        Proteus(work.offers, odds, JobCosts(1 / 60, 1 / 120, 1 / 12, 0.1)),
        Whims(5),
    ]


@pytest.mark.parametrize("seed", range(4))
def test_decisions_do_not_depend_on_later_prices(seed: int) -> None:
    histories = [restless(seed, 60), restless(seed + 100, 60, "b.large")]
    work = job((offer(histories[0]), offer(histories[1], 6.0)))
    moment = work.start + HOUR + 7 * MINUTE
    other = [changed_after(series, moment, seed) for series in histories]
    for one, again in zip(strategies(histories, work), strategies(histories, work), strict=True):
        first = run_job(work, one, MarketReplay(histories), OVERHEADS)
        second = run_job(work, again, MarketReplay(other), OVERHEADS)
        assert until(first, moment) == until(second, moment), one.name


def until(run: Run, moment: int) -> list[tuple[object, ...]]:
    """What had happened by a moment."""
    seen = [
        (one.rent, one.start, one.end if one.end <= moment else None)
        for one in run.tenures
        if one.start <= moment
    ]
    return sorted(seen, key=str)


def test_an_eviction_loses_the_work_since_the_last_checkpoint() -> None:
    known = restless(1, 60)
    recovery = Recovery(1.0, lambda _: 10 * MINUTE)
    rent = Rent(offer(known), 1, 500)
    ready = known.first
    assert recovery.lost_time(rent, ready, ready + 25 * MINUTE) == 5 * MINUTE
    assert recovery.lost_time(rent, ready, ready - MINUTE) == 0
    assert AGILE.lost_time(rent, ready, ready + 25 * MINUTE) == 0


@dataclass(frozen=True)
class Script:
    """Rents what is written for a moment, and what an eviction took at once again."""

    orders: dict[int, Rent]
    again: Rent | None = None
    name: str = "script"

    def decide(self, situation: Situation) -> Decision:
        due = [rent for at, rent in self.orders.items() if at == situation.now]
        if (
            self.again is not None
            and situation.record.taken
            and situation.record.taken[-1] == situation.now
        ):
            due.append(self.again)
        later = [at for at in self.orders if at > situation.now]
        return Decision(tuple(due), min(later, default=None))


def gang(work_hours: float, *, nodes: int = 4) -> ReplayedJob:
    """A job of as many hours of four machines, each with a nu of 1."""
    own = Offer(Market("local", "sim", "sim-a", "a.large"), 1.0, 1000)
    return ReplayedJob(
        0, 4 * work_hours * HOUR, 100 * HOUR, (own,), Rent(own, 4, None), 4.0, nodes=nodes
    )


def steady(of: ReplayedJob, spikes: tuple[int, ...] = ()) -> PriceSeries:
    """A price of 100, and of 500 for a minute after each of some moments."""
    times = [0, *(at + span for at in spikes for span in (0, MINUTE)), 200 * HOUR]
    prices = [100, *((500, 100) * len(spikes)), 100]
    return PriceSeries(
        of.offers[0].market, np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64)
    )


def test_a_gang_works_only_while_all_of_its_nodes_run() -> None:
    """Three nodes, and the fourth an hour later: work begins when it has started up."""
    whole, loose = gang(2.0), gang(2.0, nodes=0)
    orders = {0: Rent(whole.offers[0], 3, None), HOUR: Rent(whole.offers[0], 1, None)}
    market = MarketReplay([steady(whole)])
    run = run_job(whole, Script(orders), market, OVERHEADS)
    assert run.end == HOUR + OVERHEADS.startup + 2 * HOUR
    # Elastic machines work from the start, and only pause when the fourth joins.
    elastic = run_job(loose, Script(orders), market, OVERHEADS)
    assert elastic.end is not None
    assert elastic.end < run.end - HOUR / 2


def test_an_eviction_of_one_node_undoes_the_work_of_the_whole_gang_since_its_checkpoint() -> None:
    """One node of four is taken after 55 minutes of work, 25 minutes after the last checkpoint; a
    new one starts up.
    """
    job_, spike = gang(2.0), HOUR
    offer_ = job_.offers[0]
    orders = {0: Rent(offer_, 3, None), 1: Rent(offer_, 1, 200)}
    recovery = Recovery(1.0, lambda _: 30 * MINUTE)
    market = MarketReplay([steady(job_, (spike,))])
    run = run_job(job_, Script(orders, Rent(offer_, 1, None)), market, OVERHEADS, recovery)
    assert run.evictions == 1
    begun = OVERHEADS.startup + 1
    undone = (spike - begun) % (30 * MINUTE)
    assert run.end == begun + 2 * HOUR + undone + OVERHEADS.startup


def test_a_gang_that_may_shrink_works_with_three_of_four_nodes_until_the_fourth_is_replaced() -> (
    None
):
    job_, spike = replace(gang(2.0, nodes=3), most_nodes=4), HOUR
    offer_ = job_.offers[0]
    orders = {0: Rent(offer_, 3, None), 1: Rent(offer_, 1, 200)}
    recovery = Recovery(1.0, lambda _: 30 * MINUTE)
    market = MarketReplay([steady(job_, (spike,))])
    run = run_job(job_, Script(orders, Rent(offer_, 1, None)), market, OVERHEADS, recovery)
    assert run.evictions == 1
    begun = OVERHEADS.startup + 1
    before = 4 * (spike - begun - OVERHEADS.resize - (spike - begun) % (30 * MINUTE))
    on_three = 3 * (OVERHEADS.startup - OVERHEADS.eviction)
    left = (job_.work - before - on_three) / 4
    assert run.end == pytest.approx(spike + OVERHEADS.startup + OVERHEADS.resize + left, abs=SECOND)


def test_a_gang_resumes_once_a_checkpoint_was_written() -> None:
    job_ = gang(2.0)
    asked: list[Situation] = []

    @dataclass(frozen=True)
    class Watching:
        name: str = "watching"

        def decide(self, situation: Situation) -> Decision:
            asked.append(situation)
            rents = () if situation.holdings else (Rent(job_.offers[0], 4, 200),)
            return Decision(rents, situation.now + 10 * MINUTE)

    market = MarketReplay([steady(job_)])
    run_job(job_, Watching(), market, OVERHEADS, Recovery(1.0, lambda _: 30 * MINUTE))
    resumes = {one.now // MINUTE: one.record.resumes for one in asked}
    assert [resumes[at] for at in (0, 10, 30, 40, 70)] == [True, False, False, True, True]
    asked.clear()
    run_job(
        job_, Watching(), market, OVERHEADS, Recovery(1.0, lambda _: float("inf"), resumes=False)
    )
    assert [one.record.resumes for one in asked][:3] == [True, False, False]


def test_fewer_machines_are_worth_more_each_where_work_scales_badly() -> None:
    """Two of four machines do 2^0.8 / 4^0.8 of the work of four."""
    worse = replace(gang(2.0, nodes=0), scaling=-0.2)
    market = MarketReplay([steady(worse)])
    run = run_job(worse, Script({0: Rent(worse.offers[0], 2, None)}), market, OVERHEADS)
    assert run.end is not None
    assert run.end - OVERHEADS.startup == pytest.approx(2 * HOUR * 2**0.8, rel=1e-6)


def test_a_job_that_rents_nothing_is_not_finished() -> None:
    @dataclass(frozen=True)
    class Idle:
        name: str = "idle"

        def decide(self, _: Situation) -> Decision:
            return Decision()

    known = restless(1, 60)
    run = run_job(job((offer(known),)), Idle(), MarketReplay([known]), OVERHEADS)
    assert (run.end, run.tenures, run.evictions) == (None, (), 0)


def test_on_demand_machines_are_never_evicted() -> None:
    known = restless(1, 60)

    @dataclass(frozen=True)
    class Baseline:
        name: str = "baseline"

        def decide(self, situation: Situation) -> Decision:
            return Decision() if situation.holdings else Decision((BASELINE,))

    run = run_job(job((offer(known),)), Baseline(), MarketReplay([known]), OVERHEADS)
    assert run.end == run.job.start + OVERHEADS.startup + 3 * HOUR
    assert [tenure.ended for tenure in run.tenures] == [End.HANDED_ON]


@dataclass(frozen=True)
class Keeps:
    """Rents four machines of the first market that is offered, above its price, whenever it has
    none.
    """

    name: str = "keeps"

    def decide(self, situation: Situation) -> Decision:
        if situation.holdings or not situation.offers:
            return Decision((), None)
        chosen = situation.offers[0]
        return Decision((Rent(chosen, 4, situation.price(chosen) + 100),), None)


@pytest.mark.parametrize(("warned", "lost"), [(1.0, 5 * MINUTE), (0.0, 0)])
def test_warned_machines_do_no_work_and_their_market_offers_none_until_they_are_gone(
    warned: float, lost: int
) -> None:
    work = replace(gang(2.0), warnings=Warnings(5 * MINUTE, 1 - warned))
    run = run_job(work, Keeps(), MarketReplay([steady(work, (HOUR,))]), Overheads(0, 0, 0))
    assert run.end == 2 * HOUR + lost
    ends = [(one.start, one.end, one.ended) for one in run.tenures]
    assert ends == [(0, HOUR, End.EVICTED), (HOUR, run.end, End.HANDED_ON)]


def test_warned_machines_are_billed_to_the_end_of_a_job_that_ends_before() -> None:
    """The other market goes on at the warning, and the job ends before the eviction."""
    work = replace(gang(1.0), warnings=Warnings(10 * MINUTE, 0.0))
    other = replace(work.offers[0], market=replace(work.offers[0].market, zone="sim-b"))
    work = replace(work, offers=(*work.offers, other))
    calm = replace(steady(work), market=other.market)
    run = run_job(
        work, Keeps(), MarketReplay([steady(work, (65 * MINUTE,)), calm]), Overheads(0, 0, 0)
    )
    assert run.end == HOUR
    assert sorted((one.start, one.end, one.ended) for one in run.tenures) == [
        (0, HOUR, End.HANDED_ON),
        (55 * MINUTE, HOUR, End.HANDED_ON),
    ]


def test_all_warned_machines_of_a_market_count_as_leaving() -> None:
    """Quotas count them until they are gone: two orders of one and three machines are warned."""
    work, seen = (
        replace(gang(2.0), warnings=Warnings(5 * MINUTE, 0.0)),
        dict[int, dict[tuple[Market, bool], int]](),
    )
    rents = {0: Rent(work.offers[0], 1, 200), MINUTE: Rent(work.offers[0], 3, 200)}

    @dataclass(frozen=True)
    class Watches(Script):
        def decide(self, situation: Situation) -> Decision:
            seen[situation.now] = dict(situation.leaving)
            return super().decide(situation)

    run_job(work, Watches(rents), MarketReplay([steady(work, (HOUR,))]), Overheads(0, 0, 0))
    assert seen[HOUR - 5 * MINUTE] == {(work.offers[0].market, True): 4}
    assert seen[HOUR] == {}
