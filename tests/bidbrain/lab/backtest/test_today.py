"""Limited capacity and hazards in the engine: grants, evictions and costs, without knowledge of the
future.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from bidbrain.billing import End, billing_rule, billing_rules
from bidbrain.lab.backtest.run import backtest, run_of, set_up_in
from bidbrain.lab.backtest.scenario import ByAvailability, ByHazard, EvictionModel, Scenario
from bidbrain.replay.job import run_job
from bidbrain.replay.market import Capacity, MarketReplay, Mortality
from bidbrain.replay.run import Run, Tenure
from bidbrain.strategies.base import Decision, Recovery, Rent, Situation
from pricing_data.availability import AvailabilityTrace
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR, MINUTE, SECOND
from tests.bidbrain.lab.backtest.test_run import HISTORIES, scenario
from tests.bidbrain.lab.backtest.worlds import job, offer, restless
from tests.bidbrain.replay.test_job import OVERHEADS, Whims, work_second_by_second

SCHEMES = [
    "standard+checkpoint",
    "standard+agileml",
    "tierml",
    "proteus",
    "fixed-bid:0.0000001",
    "price-capacity",
]
MARKETS = [one.market for one in HISTORIES]


def ups(seed: int, ticks: int = 3000, top: int = 4) -> Ints:
    """Capacity that changes about every hour and a half."""
    rng = np.random.default_rng(seed)
    spells = rng.integers(1, 18, ticks)
    return np.repeat(rng.choice([0, top, top, int(rng.integers(1, top))], ticks), spells)[
        :ticks
    ].astype(np.int64)


def by_availability(seed: int) -> ByAvailability:
    return ByAvailability(
        {one: AvailabilityTrace(f"t{i}", 300, ups(seed + i)) for i, one in enumerate(MARKETS)}
    )


def by_hazard(seed: int) -> ByHazard:
    return ByHazard({MARKETS[0]: Mortality(0.4), MARKETS[1]: Mortality(0.1)}, seed)


REGIMES: list[Callable[[int], EvictionModel]] = [by_availability, by_hazard]


# --- grants and evictions ---


class Scripted:
    """Rents the given purchases, one per decision."""

    name = "scripted"

    def __init__(self, *answers: Rent) -> None:
        self.answers = list(answers)
        self.asked: list[Situation] = []

    def decide(self, situation: Situation) -> Decision:
        self.asked.append(situation)
        return Decision((self.answers.pop(0),) if self.answers else (), situation.now + 10 * MINUTE)


def world(*capacity: tuple[int, int]) -> tuple[PriceSeries, MarketReplay]:
    """One market; capacities from the given minutes after the start of the job."""
    known = restless(1, 60)
    start = job((offer(known),)).start
    times, machines = zip(*capacity, strict=True)
    there = Capacity(start + np.array(times) * MINUTE, np.array(machines))
    return known, MarketReplay([known], {known.market: there})


def ends(run: Run) -> list[tuple[int, int, str]]:
    """Machines, minutes from the start of the job to their end, and how they ended."""
    found = [
        (one.rent.machines, (one.end - run.job.start) // MINUTE, one.ended.value)
        for one in run.tenures
    ]
    return sorted(found, key=lambda one: (one[1], one[0]))


def test_grants_are_limited_to_capacity_and_full_markets_are_not_offered() -> None:
    known, market = world((0, 3))
    script = Scripted(Rent(offer(known), 5, 10**6), Rent(offer(known), 2, 10**6))
    run = run_job(job((offer(known),)), script, market, OVERHEADS)
    assert [one.rent.machines for one in run.tenures] == [3]
    assert script.asked[0].offers == (offer(known),)
    assert all(one.offers == () for one in script.asked[1:])


def test_the_last_granted_machines_are_evicted_first() -> None:
    known, market = world((0, 9), (30, 4), (60, 9), (90, 0))
    script = Scripted(Rent(offer(known), 3, 10**6), Rent(offer(known), 2, 10**6))
    run = run_job(job((offer(known),)), script, market, OVERHEADS)
    assert ends(run)[:3] == [(1, 30, "evicted"), (1, 90, "evicted"), (3, 90, "evicted")]
    after = next(one for one in script.asked if one.now == run.job.start + 30 * MINUTE)
    assert [holding.rent.machines for holding in after.holdings] == [3, 1]


def test_on_demand_machines_do_not_count_towards_capacity_and_are_not_evicted() -> None:
    known, market = world((0, 2), (30, 0))
    script = Scripted(Rent(offer(known), 20, None), Rent(offer(known), 2, 10**6))
    run = run_job(job((offer(known),)), script, market, OVERHEADS)
    assert [(machines, ended) for machines, _, ended in ends(run)] == [
        (2, "evicted"),
        (20, "handed on"),
    ]


def test_successive_evictions_do_not_lose_the_same_work_twice() -> None:
    known, market = world((0, 4), (62, 3), (70, 2))
    offered, recovery = offer(known), Recovery(1.0, lambda _: 20 * MINUTE)
    script = Scripted(Rent(offered, 4, 10**6))
    work = replace(
        job((offered,)), work=4 * offered.nu * 10 * HOUR, limit=job((offered,)).start + 75 * MINUTE
    )
    plain, lossy = (
        run_job(work, Scripted(*script.answers), market, OVERHEADS, how)
        for how in (Recovery(), recovery)
    )
    assert plain.tenures == lossy.tenures
    # Ready at minute 5, so that the checkpoint before 62 is that of 45; at 70 the run is eight
    # minutes old again.
    done = {}
    for name, how in (("plain", Recovery()), ("lossy", recovery)):
        asked = Scripted(*script.answers)
        run_job(work, asked, market, OVERHEADS, how)
        done[name] = asked.asked[-1].work_left
    assert done["lossy"] - done["plain"] == (4 * 17 + 3 * 8) * offered.nu * MINUTE


@pytest.mark.parametrize("seed", range(8))
def test_work_equals_a_second_by_second_sum_with_limited_capacity(seed: int) -> None:
    histories = [restless(seed, 60), restless(seed + 100, 60, "b.large")]
    capacities = {
        one.market: Capacity(one.first + np.arange(700) * 300 * SECOND, ups(seed + i, 700))
        for i, one in enumerate(histories)
    }
    offers = (offer(histories[0]), offer(histories[1], 6.0))
    whims = Whims(seed)
    run = run_job(
        job(offers),
        Sober(whims),
        MarketReplay(histories, capacities),
        OVERHEADS,
        Recovery(speed=0.83),
    )
    done = work_second_by_second(
        run, OVERHEADS, 0.83, run.job.limit if run.end is None else run.end
    )
    assert run.end is None or done == pytest.approx(run.job.work, rel=1e-9)
    for one in histories:
        spot = [
            tenure
            for tenure in run.tenures
            if tenure.rent.bid is not None and tenure.rent.offer.market == one.market
        ]
        for moment in {at for tenure in spot for at in (tenure.start, tenure.end)}:
            held = sum(
                tenure.rent.machines for tenure in spot if tenure.start <= moment < tenure.end
            )
            assert held <= capacities[one.market].at(moment)


class Sober:
    """Like `Whims`, but rents nothing while nothing is offered."""

    name = "sober"

    def __init__(self, whims: Whims) -> None:
        self.whims = whims

    def decide(self, situation: Situation) -> Decision:
        return (
            self.whims.decide(situation)
            if situation.offers
            else Decision(wake_at=situation.now + 5 * MINUTE)
        )


# --- costs ---


def cost_second_by_second(tenure: Tenure, histories: dict[object, PriceSeries], rule: str) -> int:
    """Nano-dollar-seconds of one machine, from its life and the text of the rule."""
    lived = tenure.end - tenure.start
    begun = -(-lived // SECOND)
    evicted, handed_on = tenure.ended is End.EVICTED, tenure.ended is End.HANDED_ON
    second = np.arange(begun)
    if rule == "hourly-refund":
        hours = [range(first, min(first + 3600, begun)) for first in range(0, begun, 3600)]
        full = [len(hour) == 3600 and (hour[-1] + 1) * SECOND <= lived for hour in hours]
        paid = [
            3600 if whole else 0 if evicted else len(hour) if handed_on else 3600
            for whole, hour in zip(full, hours, strict=True)
        ]
        return sum(
            price_at(tenure, histories, hour[0]) * seconds
            for hour, seconds in zip(hours, paid, strict=True)
        )
    if evicted and lived < {"gcp": 60 * SECOND, "per-second-first-hour-free": HOUR}.get(rule, 0):
        return 0
    fixed_at = second // 3600 * 3600 if rule == "per-second-first-hour-free" else second
    prices = [price_at(tenure, histories, int(at)) for at in fixed_at]
    if handed_on:
        return sum(prices)
    if rule == "azure":
        return sum(prices[: lived // (60 * SECOND) * 60])
    return sum(prices) + (max(60 - begun, 0) * prices[-1] if prices else 0)


def price_at(tenure: Tenure, histories: dict[object, PriceSeries], second: int) -> int:
    rent = tenure.rent
    if rent.bid is None:
        return rent.offer.on_demand
    return histories[rent.offer.market].price_at(tenure.start + second * SECOND)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("rule", list(billing_rules()))
@pytest.mark.parametrize("regime", REGIMES)
def test_the_cost_is_the_sum_over_seconds(
    rule: str, regime: Callable[[int], EvictionModel]
) -> None:
    known = scenario(billing=billing_rule(rule), evictions=regime(3), starts=2, hours=(3.0,))
    histories: dict[object, PriceSeries] = {one.market: one for one in HISTORIES}
    for result in backtest(known, ["standard+agileml", "proteus", "price-capacity"]):
        run = run_of(known, result.scheme, result.zone, result.hours, result.start)
        owed = sum(
            cost_second_by_second(one, histories, rule) * one.rent.machines for one in run.tenures
        )
        assert known.reliable is not None
        owed += (
            -(-int(result.runtime_hours * HOUR + 0.5) // SECOND) * known.reliable.offer.on_demand
        )
        assert result.cost == pytest.approx(owed / 3600e9, rel=1e-9), result
        used = sum((one.end - one.start) * one.rent.machines for one in run.tenures) / HOUR
        assert result.on_demand_hours + result.spot_hours + result.free_hours == pytest.approx(used)


@pytest.mark.parametrize("regime", REGIMES)
def test_no_strategy_is_below_the_bound_with_refunds_added_back(
    regime: Callable[[int], EvictionModel],
) -> None:
    for rule in billing_rules():
        known = scenario(billing=billing_rule(rule), evictions=regime(5), starts=2)
        results = backtest(known, [*SCHEMES, "bound"])
        least = {(one.hours, one.start): one.cost for one in results if one.scheme == "bound"}
        for one in results:
            if one.end is not None and one.runtime_hours <= 2 * one.hours:
                assert one.cost + one.refunds >= least[one.hours, one.start] * (1 - 1e-9), one


# --- knowledge ---


def seen_by(run: Run, moment: int) -> dict[tuple[Rent, int], tuple[int, list[tuple[int, int]]]]:
    """What had been granted by a moment, and which of its machines had ended, when."""
    seen: dict[tuple[Rent, int], tuple[int, list[tuple[int, int]]]] = {}
    for one in run.tenures:
        if one.start <= moment:
            key = (replace(one.rent, machines=0), one.start)
            granted, gone = seen.get(key, (0, []))
            left = [(one.end, one.rent.machines)] if one.end <= moment else []
            seen[key] = granted + one.rent.machines, sorted(gone + left)
    return seen


def altered(known: Scenario, moment: int, seed: int) -> Scenario:
    """The same history up to a moment, with different prices and capacity after it."""
    histories = []
    for one in known.histories:
        prices = one.prices.copy()
        later = one.times > moment
        prices[later] = np.random.default_rng(seed).integers(100, 1600, int(later.sum()))
        histories.append(PriceSeries(one.market, one.times.copy(), prices))
    assert isinstance(known.evictions, ByAvailability)
    traces = {}
    for market, trace in known.evictions.traces.items():
        seen = (moment - known.train.start) // (trace.gap_seconds * SECOND) + 1
        other = np.concatenate((trace.up[:seen], ups(seed, len(trace))[seen:]))
        traces[market] = AvailabilityTrace(trace.name, trace.gap_seconds, other)
    return replace(known, histories=tuple(histories), evictions=ByAvailability(traces))


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("seed", range(3))
def test_decisions_do_not_depend_on_later_prices_or_capacity(name: str, seed: int) -> None:
    known = scenario(
        evictions=by_availability(seed), billing=billing_rule("per-second-first-hour-free")
    )
    zone = known.zones[0]
    first = next(iter(backtest(replace(known, starts=1, hours=(6.0,)), ["on-demand"])))
    moment = first.start + 2 * HOUR + 7 * MINUTE
    runs = []
    for world_ in (known, altered(known, moment, seed + 50)):
        replayed = partial(
            run_of, replace(world_, starts=1, hours=(6.0,)), name, zone, 6.0, first.start
        )
        runs.append(seen_by(replayed(), moment))
    assert runs[0] == runs[1]


def test_hazards_come_from_the_training_span_alone() -> None:
    known = scenario(evictions=by_availability(1))
    other = altered(known, known.test.start, 9)
    assert known.hazards(MARKETS) == other.hazards(MARKETS)
    assert set(scenario().hazards(MARKETS).values()) == {None}


def test_strategies_take_the_hazard_into_account() -> None:
    calm, wild = (
        scenario(
            evictions=ByHazard(dict.fromkeys(MARKETS, Mortality(rate)), 1), test=scenario().test
        )
        for rate in (0.0, 1.0)
    )
    zone, offered = calm.zones[0], offer(HISTORIES[0])
    for one in (calm, wild):
        assert set_up_in(one, "tierml", zone).strategy.name == "tierml"
    kept, often = (
        set_up_in(one, "standard+checkpoint", zone).recovery.interval for one in (calm, wild)
    )
    assert kept is not None
    assert often is not None
    assert kept(offered) > 2 * often(offered)


def test_the_bound_pays_on_demand_while_no_spot_capacity_exists() -> None:
    never = {
        one: AvailabilityTrace("never", 300, np.zeros(3000, dtype=np.int64)) for one in MARKETS
    }
    always = {
        one: AvailabilityTrace("always", 300, np.ones(3000, dtype=np.int64)) for one in MARKETS
    }
    costs = [
        [
            one.cost / one.on_demand_cost
            for one in backtest(scenario(evictions=regime, starts=4), ["bound"])
        ]
        for regime in (ByAvailability(never), ByAvailability(always), scenario().evictions)
    ]
    assert all(share == pytest.approx(1, abs=0.05) for share in costs[0])
    assert costs[1] == costs[2]
    assert max(costs[1]) < 0.5
