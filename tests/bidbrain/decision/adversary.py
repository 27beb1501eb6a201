"""Jobs with a deadline in markets that turn against them: no decision may cost a deadline that
on-demand could meet.

`python -m tests.bidbrain.decision.adversary [JOBS]` plays half of the jobs on one machine, by the
rules of the deadline replay, and half on several machines and markets, in the replay of jobs. It
prints how many missed.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np

from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits, baseline_machines
from bidbrain.decision.roaming import Roaming
from bidbrain.eviction.hazard import Hazard, RateEvidence
from bidbrain.eviction.survival import Exposure
from bidbrain.lab.backtest.deadline import AvailabilityHistory, decided, lay_out
from bidbrain.replay.job import run_job
from bidbrain.replay.market import Capacity, MarketReplay
from bidbrain.replay.pace import PastJobs
from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import (
    LOOK_AGAIN,
    Checkpointing,
    Decision,
    Offer,
    Overheads,
    Recovery,
    Rent,
    Return,
    Situation,
    Strategy,
    StrategyInputs,
)
from bidbrain.strategies.deadline import DeadlineStrategy, DeadlineTerms, ImpossibleJob
from bidbrain.strategies.registry import set_up
from bidbrain.strategies.spells import Known
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE, SECOND
from tests.pricing_data.histories import START

JOBS = 15_000
PART = 500
"""After so many jobs a line is printed."""
SEED = 13
BEGIN = START + DAY
RULE = billing_rule("per-second")
NAMES = ("price-capacity", "standard+agileml", "tierml", "proteus", "fixed-bid:0.01", "restless")


@dataclass(frozen=True)
class Restless:
    """Rents and returns at random: nothing that a strategy does may cost the deadline."""

    seed: int
    name: str = "restless"

    def decide(self, situation: Situation) -> Decision:
        chance = np.random.default_rng([self.seed, situation.now % (1 << 32)])
        returns = [
            Return(
                one.allocation,
                None
                if chance.random() < 0.5
                else situation.now + int(chance.integers(1, 30)) * MINUTE,
            )
            for one in situation.holdings
            if chance.random() < 0.2
        ]
        rents = [
            Rent(offer, int(chance.integers(1, 9)), offer.on_demand)
            for offer in situation.offers
            if chance.random() < 0.4
        ]
        return Decision(
            (*returns, *rents), situation.now + int(chance.integers(1, 20)) * MINUTE, "restless"
        )


class Hostile(MarketReplay):
    """Evicts at moments that hurt: as soon as machines are ready, a start-up later, hours later. A
    `stingy` market also grants a part of an order, or nothing."""

    def __init__(
        self,
        seed: int,
        overheads: Overheads,
        histories: list[PriceSeries],
        capacities: dict[Market, Capacity],
        *,
        stingy: bool,
    ) -> None:
        super().__init__(histories, capacities)
        self._seed, self._overheads, self._stingy = seed, overheads, stingy

    def granted(self, market: Market, machines: int, held: int, now: int) -> int:
        room = super().granted(market, machines, held, now)
        chance = np.random.default_rng(
            [self._seed, crc32(str(market).encode()), now % (1 << 32), 1]
        )
        return int(chance.integers(0, room + 1)) if self._stingy and chance.random() < 0.7 else room

    def evicted_at(self, market: Market, bid: int, start: int) -> int | None:
        chance = np.random.default_rng([self._seed, crc32(str(market).encode()), start % (1 << 32)])
        startup = self._overheads.startup
        spans = (
            SECOND,
            max(startup - SECOND, SECOND),
            startup + SECOND,
            2 * startup + MINUTE,
            HOUR,
            6 * HOUR,
            4 * DAY,
        )
        dies = (
            start
            + spans[int(chance.integers(len(spans)))]
            + int(chance.integers(0, 2)) * int(chance.integers(1, HOUR))
        )
        crossed = super().evicted_at(market, bid, start)
        return dies if crossed is None else min(dies, crossed)


@dataclass(frozen=True)
class Case:
    """A job on several machines, its decider, and the market."""

    name: str
    job: ReplayedJob
    decider: Decider
    market: MarketReplay
    recovery: Recovery


def cases(count: int, seed: int = SEED) -> Iterator[Case]:
    """Jobs of up to a dozen machines in up to three markets."""
    for number in range(count):
        yield case_of(number, seed)


def case_of(number: int, seed: int = SEED) -> Case:
    chance = np.random.default_rng([seed, number])
    overheads = Overheads(*(int(chance.integers(0, most)) * MINUTE // 2 for most in (41, 11, 5)))
    offers = tuple(
        Offer(
            Market("aws", "us-east-1", f"us-east-1{zone}", "c4.large" if same else f"c4.{size}"),
            nu,
            1000 + 10 * int(nu),
        )
        for zone, size, nu, same in zip(
            "abc", ("large", "xlarge", "2xlarge"), (2.0, 2.0, 5.0), (True, True, False), strict=True
        )
    )[: int(chance.integers(1, 4))]
    most = int(chance.integers(1, 13))
    together = bool(chance.random() < 0.4)
    limits = MachineLimits(
        most if together else int(chance.integers(1, most + 1)), most, {}, together
    )
    if together and number % 2:
        limits = replace(limits, least=-(-most // 2))
    most_nu = most * min(offer.nu for offer in offers)
    cheapest = min(offers, key=lambda offer: offer.on_demand / offer.nu)
    baseline = Rent(cheapest, baseline_machines(most_nu, cheapest.nu, limits), None)
    if not together and chance.random() < 0.3:
        quota = {cheapest.market: int(chance.integers(limits.least, most + 1))}
        limits = replace(limits, on_demand=quota)
    fallback = limits.rentable(baseline)
    span = float(chance.choice([0.2, 1.0, 3.0, 8.0])) * HOUR
    work = span * fallback.machines * fallback.offer.nu
    slack = (
        float(chance.choice([0.0, 0.001, 0.02, 0.1, 0.25, 0.5, 1.0])) * span
        + int(chance.integers(0, 60)) * SECOND
    )
    deadline = BEGIN + overheads.startup + round(span + slack) + 1
    histories = [_prices(chance, offer) for offer in offers]
    capacities = (
        {offer.market: _capacity(chance, most) for offer in offers} if chance.random() < 0.5 else {}
    )
    market = Hostile(number, overheads, histories, capacities, stingy=number % 3 == 0)
    job = ReplayedJob(BEGIN, work, deadline + DAY, offers, baseline, most_nu, nodes=limits.nodes)
    job = replace(job, most_nodes=limits.most if together else 0)
    name = NAMES[number % len(NAMES)]
    made = _strategy(name, number, offers, baseline, overheads, histories)
    delay = overheads.startup + overheads.eviction
    worth = (
        DeadlineStrategy(DeadlineTerms(round(span), delay, 3.0)) if chance.random() < 0.8 else None
    )
    decider = Decider(
        offers,
        baseline,
        None,
        most_nu,
        limits,
        overheads,
        deadline,
        made,
        RULE,
        HOUR,
        worth=worth,
        look=LOOK_AGAIN,
    )
    recovery = _recovery(chance, together)
    if together and chance.random() < 0.5:
        per_gb = chance.random((len(offers), len(offers))) * (1 - np.eye(len(offers)))
        roaming = Roaming(offers, per_gb, Known.nothing([offer.market.zone for offer in offers]))
        decider, job, name = (
            replace(decider, roaming=roaming, worth=None),
            replace(job, saved_gb=3.0),
            "regions",
        )
    return Case(name, job, decider, market, recovery)


def _recovery(chance: np.random.Generator, together: bool) -> Recovery:
    """A gang writes checkpoints, or none; other jobs lose nothing."""
    if not together:
        return Recovery()
    kind = int(chance.integers(3))
    every = int(chance.integers(1, 30)) * MINUTE
    return (Recovery(), Recovery(interval=lambda _: every), Recovery(resumes=False))[kind]


def _strategy(
    name: str,
    seed: int,
    offers: tuple[Offer, ...],
    baseline: Rent,
    overheads: Overheads,
    histories: list[PriceSeries],
) -> Strategy:
    if name == "restless":
        return Restless(seed)
    past = {series.market: series.window(START, BEGIN) for series in histories}
    hazards = {
        offer.market: Hazard((RateEvidence("drawn", Exposure(2.0, 10.0)),)) for offer in offers
    }
    inputs = StrategyInputs(
        offers,
        past,
        hazards,
        baseline,
        None,
        RULE,
        overheads,
        Checkpointing(0.9, MINUTE),
        PastJobs((), 1.0).price_of_time,
    )
    return set_up(name, inputs).strategy


def _prices(chance: np.random.Generator, offer: Offer) -> PriceSeries:
    """Changes every few minutes to hours, sometimes above the on-demand price."""
    steps = np.cumsum(chance.integers(2, int(chance.choice([10, 60, 600])), 400)) * MINUTE
    times = np.concatenate(([0], steps[steps < 6 * DAY], [6 * DAY])) + START
    prices = chance.integers(100, 900, times.size)
    prices[chance.random(times.size) < 0.2] = offer.on_demand + 1
    return PriceSeries(offer.market, times.astype(np.int64), prices.astype(np.int64))


def _capacity(chance: np.random.Generator, most: int) -> Capacity:
    steps = np.cumsum(chance.integers(1, int(chance.choice([5, 30, 300])), 400)) * MINUTE + START
    return Capacity(steps.astype(np.int64), chance.integers(0, most + 2, steps.size))


def missed(case: Case) -> bool:
    """Whether the job was not done at its deadline, though on-demand machines alone would have been
    in time.
    """
    deadline = case.decider.deadline
    assert deadline is not None
    run = run_job(case.job, case.decider, case.market, case.decider.overheads, case.recovery)
    return run.end is None or run.end > deadline


def late_without_guard(case: Case) -> bool:
    """Whether the job misses if its strategy decides alone."""
    free = replace(case.decider, deadline=None)
    run = run_job(case.job, free, case.market, free.overheads, case.recovery)
    return run.end is None or run.end > (case.decider.deadline or 0)


def single_pool(jobs: int, seed: int = SEED) -> tuple[int, int]:
    """Jobs of one machine on drawn availability, and how many of them missed."""
    chance, played, late = np.random.default_rng(seed), 0, 0
    while played < jobs:
        tick = int(chance.choice([30, 200, 600, 1800])) * SECOND
        up = np.repeat(
            chance.random(400) < chance.random(),
            chance.integers(1, int(chance.choice([2, 6, 60])), 400),
        )
        history = AvailabilityHistory("drawn", tick, up)
        work = int(chance.integers(1, max(up.size // 3, 2))) * tick
        terms = DeadlineTerms(
            work,
            int(chance.integers(0, 40)) * MINUTE // 2,
            float(chance.choice([0.8, 1.5, 3.0, 8.0])),
        )
        try:
            laid = lay_out([history], terms, [float(chance.choice([1.0, 1.02, 1.1, 1.3, 2.0]))], 40)
        except ImpossibleJob:
            continue
        late += int(decided(laid).missed.sum())
        played += len(laid)
    return played, late


def main(words: list[str]) -> None:
    """Prints the misses of both halves."""
    jobs = int(words[0]) if words else JOBS
    played = late = 0
    for part in range(-(-jobs // 2 // PART)):
        more, missing = single_pool(min(PART, jobs // 2 - part * PART), SEED + part)
        played, late = played + more, late + missing
        print(f"one machine, one market: {played} jobs, {late} missed", flush=True)
    found = Counter[str]()
    for number, case in enumerate(cases(jobs - jobs // 2), 1):
        found[case.name] += 1
        found["missed"] += missed(case)
        found["unguarded"] += late_without_guard(case)
        if number % PART == 0:
            print(
                f"several machines and markets: {number} jobs, {found['missed']} missed", flush=True
            )
    late, unguarded = found.pop("missed", 0), found.pop("unguarded", 0)
    print(f"several machines and markets, {late} missed of {dict(found)}")
    print(f"the same, decided by the strategies alone: {unguarded} missed")


if __name__ == "__main__":
    main(sys.argv[1:])
