"""A strategy that follows the best mixture, replayed: what it holds, pays and finishes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

import numpy as np
import pytest

from bidbrain.billing import billing_rule
from bidbrain.decision.limits import CommonQuota
from bidbrain.decision.mixture_solver import Schedule
from bidbrain.decision.mixture_strategy import Aim, Mixed, Mixing
from bidbrain.replay.job import run_job
from bidbrain.replay.market import MarketReplay
from bidbrain.replay.run import ReplayedBudget, ReplayedJob, Run
from bidbrain.strategies.base import Decision, Holding, Offer, Overheads, Rent, Return, Situation
from bidbrain.strategies.standard import Standard
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR
from tests.pricing_data.histories import START

CENT = NANOS_PER_DOLLAR // 100
OVERHEADS = Overheads(startup=2 * MINUTE, eviction=MINUTE, resize=MINUTE // 2)
SLOW, FAST = (
    Offer(Market("aws", "us-east-1", "us-east-1a", name), nu, 90 * CENT * round(nu / 48))
    for name, nu in (("p2.xlarge", 48.0), ("p3.2xlarge", 100.0))
)
WORK = 2000.0


def series(offer: Offer, *prices: tuple[float, int]) -> PriceSeries:
    """Prices in cents from an hour on; the last one lasts for two days."""
    times = [START + round(hour * HOUR) for hour, _ in prices] + [START + 48 * HOUR]
    cents = [price for _, price in prices] + [prices[-1][1]]
    return PriceSeries(
        offer.market, np.array(times, dtype=np.int64), np.array(cents, dtype=np.int64) * CENT
    )


@dataclass(frozen=True)
class InTime:
    """A strategy that is told the deadline, as a decider does."""

    mixed: Mixed
    deadline: int | None
    name: str = "in time"

    def decide(self, situation: Situation) -> Decision:
        return self.mixed.decide(replace(situation, deadline=self.deadline))

    def schedule(self, situation: Situation) -> tuple[list[str], Schedule | None]:
        return self.mixed.schedule(replace(situation, deadline=self.deadline))


def mixed(
    aim: Aim, deadline_hours: float = inf, quotas: tuple[CommonQuota[str], ...] = ()
) -> InTime:
    deadline = None if deadline_hours == inf else START + round(deadline_hours * HOUR)
    return InTime(Mixed(Standard(), Mixing(aim, 1, 8, {}, {}, OVERHEADS, quotas=quotas)), deadline)


def replayed(strategy: InTime, *histories: PriceSeries, work: float = WORK) -> Run:
    job = ReplayedJob(
        START, work * HOUR, START + 40 * HOUR, (SLOW, FAST), Rent(SLOW, 8, None), 800.0
    )
    return run_job(job, strategy, MarketReplay(histories), OVERHEADS)


def hours(run: Run) -> float:
    assert run.end is not None
    return (run.end - START) / HOUR


def paid(run: Run, prices: Mapping[Market, int]) -> float:
    """Dollars at flat prices by the second."""
    rule = billing_rule("per-second")
    return sum(
        rule.bill(one.life, prices[one.rent.offer.market]).amount
        * one.rent.machines
        / 3600
        / NANOS_PER_DOLLAR
        for one in run.tenures
    )


def machines(run: Run) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in run.tenures:
        name = one.rent.offer.market.instance_type
        counts[name] = max(counts.get(name, 0), one.rent.machines)
    return counts


FLAT = (series(SLOW, (0, 27)), series(FAST, (0, 92)))
FLAT_PRICES = {SLOW.market: 27 * CENT, FAST.market: 92 * CENT}


def test_a_deadline_that_the_cheap_kind_misses_is_kept_with_few_fast_machines() -> None:
    run = replayed(mixed(Aim.LEAST_COST, deadline_hours=5.0), *FLAT)
    assert 4.5 < hours(run) <= 5.0
    assert set(machines(run)) == {"p2.xlarge", "p3.2xlarge"}
    only_fast = replayed(mixed(Aim.HIGHEST_RATE), *FLAT)
    assert paid(run, FLAT_PRICES) < 0.75 * paid(only_fast, FLAT_PRICES)


def test_without_a_deadline_the_cheap_kind_does_it_all() -> None:
    run = replayed(mixed(Aim.LEAST_COST), *FLAT)
    assert machines(run) == {"p2.xlarge": 8}


def test_fast_machines_follow_when_evictions_cost_the_slack() -> None:
    """The price of the slow kind is above its bid for forty minutes: what is left needs more fast
    machines.
    """
    quiet = replayed(mixed(Aim.LEAST_COST, deadline_hours=5.6), *FLAT)
    assert machines(quiet) == {"p2.xlarge": 8}
    evicted = replayed(
        mixed(Aim.LEAST_COST, deadline_hours=5.6),
        series(SLOW, (0, 27), (1, 500), (1 + 2 / 3, 27)),
        FLAT[1],
    )
    assert hours(evicted) <= 5.6
    assert "p3.2xlarge" in machines(evicted)


def test_a_price_that_rises_moves_the_job_to_the_other_kind() -> None:
    """At 60 cents an hour the slow kind costs more per unit of work than the fast one."""
    run = replayed(mixed(Aim.LEAST_COST), series(SLOW, (0, 27), (1, 60)), FLAT[1])
    assert machines(run) == {"p2.xlarge": 8, "p3.2xlarge": 8}
    assert max(one.end for one in run.tenures if one.rent.offer is SLOW) < START + 1.2 * HOUR


def test_a_price_that_rises_a_little_moves_nothing() -> None:
    """The saving of 2% for the rest of the work is less than what starting eight machines costs."""
    run = replayed(mixed(Aim.LEAST_COST), series(SLOW, (0, 27), (4.9, 45)), series(FAST, (0, 92)))
    assert machines(run) == {"p2.xlarge": 8}


def test_types_share_a_quota() -> None:
    quota = CommonQuota(32.0, {"p2.xlarge": 4.0, "p3.2xlarge": 8.0})
    run = replayed(mixed(Aim.HIGHEST_RATE, quotas=(quota,)), *FLAT)
    most = max(
        sum(
            one.rent.machines * quota.uses[one.rent.offer.market.instance_type]
            for one in run.tenures
            if one.start <= at < one.end
        )
        for at in {one.start for one in run.tenures}
    )
    assert most <= 32.0


def test_a_budget_buys_speed_but_no_more_than_it_pays_for() -> None:
    strategy = mixed(Aim.SHORTEST_TIME)
    situation = Situation(
        START,
        (SLOW, FAST),
        lambda one: FLAT_PRICES[one.market],
        (),
        Rent(SLOW, 8, None),
        800.0,
        WORK * HOUR,
        15.0,
    )
    types, schedule = strategy.schedule(situation)
    assert types == ["p2.xlarge", "p3.2xlarge"]
    assert schedule is not None
    assert schedule.usd <= 15.0
    assert schedule.hours < WORK / (8 * 48)


@pytest.mark.parametrize("dollars", [12.5, 14.0, 16.0])
def test_a_run_within_a_budget_takes_as_long_as_its_schedule(dollars: float) -> None:
    """What is kept back for leases pays for the work of the machines that hold them, and is not
    missing from it.
    """
    strategy, baseline = mixed(Aim.SHORTEST_TIME), Rent(SLOW, 8, None)
    histories = {one.market: one for one in FLAT}
    spending = ReplayedBudget(dollars, billing_rule("per-second"), histories, 16 * MINUTE)
    job = ReplayedJob(
        START, WORK * HOUR, START + 40 * HOUR, (SLOW, FAST), baseline, 800.0, budget=spending
    )
    begin = Situation(
        START,
        job.offers,
        lambda one: FLAT_PRICES[one.market],
        (),
        baseline,
        job.most_nu,
        job.work,
        dollars,
    )
    _, schedule = strategy.schedule(begin)
    assert schedule is not None
    run = run_job(job, strategy, MarketReplay(FLAT), OVERHEADS)
    assert hours(run) == pytest.approx(schedule.hours, rel=0.05)
    assert 0.9 * dollars < paid(run, FLAT_PRICES) <= dollars


def test_machines_that_only_the_first_phase_needs_are_rented_by_themselves() -> None:
    """They are returned as a whole when the second phase begins; the others stay."""
    strategy = mixed(Aim.LEAST_COST, deadline_hours=5.0)
    prices = FLAT_PRICES

    def decided(now: int, work: float, *holdings: Holding) -> tuple[Rent | Return, ...]:
        known = Situation(
            now,
            (SLOW, FAST),
            lambda one: prices[one.market],
            holdings,
            Rent(SLOW, 8, None),
            800.0,
            work * HOUR,
        )
        return strategy.decide(known).actions

    first = decided(START, WORK)
    assert [(one.offer, one.machines) for one in first if isinstance(one, Rent)] == [
        (SLOW, 7),
        (SLOW, 1),
    ]
    held = [Holding(i, one, START, START) for i, one in enumerate(first) if isinstance(one, Rent)]
    then = decided(START + 2 * HOUR, WORK - 2 * 8 * 48 + 60, *held)
    assert Return(1, START + 2 * HOUR) in then
    assert {one.offer for one in then if isinstance(one, Rent)} == {FAST}


@pytest.mark.parametrize("aim", list(Aim))
def test_without_an_open_market_nothing_is_wanted(aim: Aim) -> None:
    known = Situation(START, (), lambda _: 0, (), Rent(SLOW, 8, None), 800.0, WORK * HOUR)
    assert mixed(aim, deadline_hours=9.0).decide(known).actions == ()
