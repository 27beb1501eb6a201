"""Runs that must not cost more than they may: random prices, evictions, faults and strategies, and
runners that die.

python -m tests.spotctl.run.budgets 3000

A run is played in virtual time. Its runner is killed at random points, and may stay dead for a
while, so that its machines are left to their leases. What it costs is counted from the cloud's own
account, not from the log; and in every round what it would cost if no runner ever resumed, and each
machine cost its bid to the end of its lease. A user raises and lowers the budget at random points,
also between a decision of the runner and the row that it writes.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from bidbrain.billing import BillingRule, End, Life, billing_rule
from bidbrain.replay.market import Warnings
from bidbrain.strategies.base import Decision, Offer, Rent, Return, Situation, Strategy
from bidbrain.strategies.standard import AlwaysOnDemand, Standard
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE
from spotctl.clouds.errors import NoCapacity, Throttled
from spotctl.clouds.local.replayed import Replayed
from spotctl.clouds.provider import EndReason, Machine
from spotctl.home.errors import BadRequest
from spotctl.log.budget import Tariff, committed
from spotctl.log.outcomes import BUDGET, DONE, FAILED, NO_CAPACITY
from spotctl.log.state import RunState
from spotctl.run.start.budgets import change_budget
from spotctl.run.turn.ending import RunLimits
from spotctl.run.turn.reconcile import StrategyTerms
from tests.spotctl.clouds.fake import (
    Call,
    FakeProvider,
    Fault,
    LostAnswer,
    LostRequest,
    PartialGrant,
    Refusal,
)
from tests.spotctl.run.worlds import (
    LEASE_TIMES,
    START,
    Death,
    Killed,
    Life as RunnersLife,
    MemoryLog,
    Toil,
    World,
)

ON_DEMAND = 200_000_000
ROUND_SECONDS = 120
LASTS = 60 * DAY
MAX_ROUNDS = 10_000
MAX_SET = 8
"""How often a user sets the budget of a run, at most."""
ENDS = (DONE, BUDGET, NO_CAPACITY, FAILED)
"""Where most calls fail, agents may not be reached during a whole lease, four times in a row:
FAILED."""


class Idle(BaseException):
    """A strategy at random has wanted more than the account may have of each market, and wants
    nothing else.
    """


@dataclass(frozen=True)
class Played:
    """How a run ended, what it cost and what it might have cost (nano-dollar-seconds)."""

    outcome: str
    paid: int
    budget: int
    deaths: int
    evicted: int
    times_set: int


@dataclass
class Reckless:
    """A strategy that rents and returns at random, at any bid, without regard to the budget."""

    draw: random.Random
    name: str = "reckless"

    def decide(self, situation: Situation) -> Decision:
        draw, actions = self.draw, list[Rent | Return]()
        if situation.offers and draw.random() < 0.6:
            offer = draw.choice(situation.offers)
            price = situation.price(offer)
            bid = draw.choice(
                [None, offer.on_demand, price, max(1, round(price * draw.uniform(0.7, 3)))]
            )
            actions.append(Rent(offer, draw.randint(1, 8), bid))
        actions += [
            Return(holding.allocation, draw.choice([None, situation.now + draw.randrange(HOUR)]))
            for holding in situation.holdings
            if draw.random() < 0.1
        ]
        return Decision(tuple(actions), situation.now + draw.randrange(1, 20) * MINUTE, "why not")


@dataclass
class Account(World):
    """The cloud's account of a run, which looks at it in every round."""

    rule: BillingRule = field(default_factory=lambda: billing_rule("per-second"))
    prices: Mapping[Market, PriceSeries] = field(default_factory=dict)
    budget: int = 0
    times_set: int = 0

    @property
    def paid(self) -> int:
        """The bills of all machines, those that run as if they ended now."""
        return sum(self._bill(machine, self._end(machine)) for machine in self.cloud.everything)

    def pass_round(self) -> None:
        if self.rounds > MAX_ROUNDS:
            raise Idle
        assert self.paid + sum(map(self._later, self.running)) <= self.budget, (
            "more is committed than the budget"
        )
        super().pass_round()

    def _later(self, machine: Machine) -> int:
        """What one that runs can still cost: no price above its bid lets it live."""
        ceiling = machine.bid or ON_DEMAND
        until = max(self.cloud.lease_until(machine.id), self.cloud.now())
        return self._bill(machine, until, ceiling) - self._bill(machine, self.cloud.now(), ceiling)

    def _end(self, machine: Machine) -> int:
        return self.cloud.now() if machine.ended is None else machine.ended

    def _bill(self, machine: Machine, end: int, price: int | None = None) -> int:
        how = End.EVICTED if machine.end_reason is EndReason.EVICTED else End.LEFT
        paid = self.prices[machine.market] if price is None else price
        return self.rule.bill(
            Life(machine.started, end, how), ON_DEMAND if machine.bid is None else paid
        ).amount


@dataclass
class Spending(Death):
    """Also sets the budget, at random points of a runner."""

    run: RunnersLife = field(kw_only=True)
    account: Account = field(kw_only=True)
    draw: random.Random = field(kw_only=True)

    def point(self, where: str) -> None:
        if self.account.times_set < MAX_SET and self.draw.random() < 1 / 40:
            limit = round(self.account.budget * 10 ** self.draw.uniform(-0.3, 0.3))
            # The run is over, or more is committed.
            with suppress(BadRequest):
                change_budget(
                    self.run.opened(),
                    self.run.state,
                    lambda state: self._may_change(state, limit),
                    limit,
                )
                self.account.budget, self.account.times_set = limit, self.account.times_set + 1
        super().point(where)

    def _may_change(self, state: RunState, limit: int) -> int | None:
        now = self.run.cloud.now()
        lowers = limit < self.account.budget
        if lowers and committed(state, now, self.run.tariff, LEASE_TIMES.teardown) > limit:
            raise BadRequest("more is committed")
        if state.began is None or state.stopping is not None:
            raise BadRequest("nothing to set")
        return self.account.budget


def play(seed: int) -> Played:
    """One run, to its end."""
    draw = random.Random(seed)
    histories = [_history(zone, draw) for zone in "abc"[: draw.randint(1, 3)]]
    warnings = Warnings(draw.choice([0, 30, 120, 600]) * 10**6, draw.choice([0.0, 0.5]), seed)
    cloud = FakeProvider(
        Replayed.of(histories), START, warnings, most_machines=draw.choice([3, 12, 100])
    )
    rule = billing_rule(draw.choice(["per-second", "hourly-refund"]))
    known = {series.market: series for series in histories}
    rounds = draw.randrange(20, 1000)
    # From a tenth of what so much work costs on demand, which is not enough even on spot, to more
    # than enough.
    budget = round(10 ** draw.uniform(-1, 0.7) * rounds * ROUND_SECONDS * ON_DEMAND)
    world = Account(cloud, round_seconds=ROUND_SECONDS, rule=rule, prices=known, budget=budget)
    log = MemoryLog()
    run = RunnersLife(
        lambda: log,
        world,
        Toil(world, rounds),
        _strategy(draw),
        _terms(list(known), draw),
        RunLimits(budget, without_machines=HOUR),
        tariff=Tariff(lambda _: rule, lambda market, _: known[market]),
    )
    cloud.weather = _weather(draw)
    try:
        deaths = _live_and_die(run, world, draw)
    except Idle:
        assert world.paid <= world.budget
        return Played(Idle.__name__.lower(), world.paid, world.budget, 0, 0, world.times_set)
    assert not world.running, "machines are left"
    state = run.state()
    assert state.ended is not None
    assert state.ended.outcome in ENDS, state.ended.outcome
    assert state.ended.outcome != FAILED or "before their agents answered" in state.ended.message
    assert world.paid <= world.budget, f"paid {world.paid / world.budget:.4f} of the budget"
    assert state.limit(budget) == world.budget
    return Played(
        state.ended.outcome, world.paid, world.budget, deaths, state.evictions, world.times_set
    )


def _live_and_die(run: RunnersLife, account: Account, draw: random.Random) -> int:
    """Runners take over from each other until one lives to the run's end; returns how many did
    not."""
    deaths = 0
    for _ in range(draw.choice([0, 1, 1, 3, 8])):
        try:
            run.run(Spending(draw.randrange(300), run=run, account=account, draw=draw))
        except Killed:
            deaths += 1
            for _ in range(draw.choice([0, 1, 5, 30])):
                run.world.pass_round()
                if draw.random() < 0.05 and run.world.running:
                    run.cloud.evict(draw.choice(run.world.running).id)
    run.run(Spending(run=run, account=account, draw=draw))
    return deaths


def _history(zone: str, draw: random.Random) -> PriceSeries:
    """Calm at a share of the on-demand price, with moments above it."""
    rng = np.random.default_rng(draw.randrange(2**32))
    gaps = rng.exponential(draw.choice([10, 60, 300]) * MINUTE, 400).astype(np.int64) + 1
    times = START + np.concatenate([[0], np.cumsum(gaps)])
    times = np.append(times[times < START + LASTS], START + LASTS)
    prices = (
        ON_DEMAND
        * draw.uniform(0.1, 0.9)
        * np.exp(rng.normal(0, draw.choice([0.05, 0.3, 1.0]), len(times)))
    )
    return PriceSeries(
        Market("local", "sim-east", zone, "c4.xlarge"),
        times,
        np.maximum(prices.astype(np.int64), 1),
    )


def _strategy(draw: random.Random) -> Strategy:
    strategies: list[Strategy] = [Standard(), AlwaysOnDemand(), Reckless(draw), Reckless(draw)]
    return draw.choice(strategies)


def _terms(markets: list[Market], draw: random.Random) -> StrategyTerms:
    offers = tuple(Offer(market, draw.choice([2.0, 4.0, 8.0]), ON_DEMAND) for market in markets)
    reliable = Rent(draw.choice(offers), draw.randint(1, 2), None) if draw.random() < 0.5 else None
    return StrategyTerms(offers, Rent(offers[0], draw.randint(1, 6), None), 64.0, 100.0, reliable)


def _weather(draw: random.Random) -> Callable[[Call], Fault | None]:
    """Now and then a call fails, most of all those that are not answered though they came
    through."""
    share = draw.choice([0.0, 0.05, 0.3, 0.7])
    faults: tuple[Fault, ...] = (
        LostRequest(),
        LostAnswer(),
        LostAnswer(),
        Refusal(Throttled("slow down")),
    )

    def weather(call: Call) -> Fault | None:
        if draw.random() >= share:
            return None
        if call.name == "create" and draw.random() < 0.5:
            refusals: tuple[Fault, ...] = (PartialGrant(1), Refusal(NoCapacity("none left")))
            return draw.choice(refusals)
        return draw.choice(faults)

    return weather


def main() -> None:
    """Prints how many runs were played and how they ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=int, nargs="?", default=3000)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    given = parser.parse_args()
    played = []
    for seed in range(given.seed, given.seed + given.runs):
        try:
            played.append(play(seed))
        except Exception:
            sys.stderr.write(f"run with seed {seed}:\n")
            raise
    ends = Counter(one.outcome for one in played)
    stopped = [one.paid / one.budget for one in played if one.outcome == BUDGET]
    sys.stdout.write(
        f"{len(played)} runs ({', '.join(f'{count} {end}' for end, count in ends.most_common())}),"
        f" {sum(one.deaths for one in played)} runners killed, "
        f"{sum(one.evicted for one in played)} machines evicted,"
        f" {sum(one.times_set for one in played)} budgets set:"
        f" none overspent, none left; those that ended at their budget had spent "
        f"{np.median(stopped):.0%} of it (median), {max(stopped):.1%} at most\n"
    )


if __name__ == "__main__":
    main()
