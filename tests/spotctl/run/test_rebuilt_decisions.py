"""What a run decided follows from what the provider knows: machines, evictions and prices, and the
work done.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bidbrain.billing import billing_rule
from bidbrain.decision.decider import Decider
from bidbrain.decision.limits import MachineLimits
from bidbrain.strategies.base import Decision, Holding, Offer, Overheads, Rent, Situation
from bidbrain.strategies.deadline import DeadlineStrategy, DeadlineTerms
from bidbrain.strategies.standard import Standard
from pricing_data.market import Market
from pricing_data.units import HOUR, MINUTE, SECOND
from spotctl.clouds.provider import EndReason, Machine
from spotctl.log import events as ev
from spotctl.log.folding import FIRST_BACK_OFF
from spotctl.run.turn.budget_check import described
from spotctl.run.turn.reconcile import Buy, StrategyTerms
from tests.spotctl.run.worlds import LEASE_TIMES, MARKETS, OFFERS, PRICES, START, Life, life

ROUNDS = 1000
BASELINE = Rent(OFFERS[0], 4, None)
WORK = 16.0 * 2 * HOUR


def decider(deadline: int) -> Decider:
    worth = DeadlineStrategy(DeadlineTerms(2 * HOUR, 3 * MINUTE, 3.0))
    overheads = Overheads(2 * MINUTE, MINUTE, MINUTE // 2)
    limits = MachineLimits(1, 4, {})
    rule = billing_rule("per-second")
    return Decider(
        OFFERS,
        BASELINE,
        None,
        16.0,
        limits,
        overheads,
        deadline,
        Standard(),
        rule,
        HOUR,
        worth=worth,
    )


def evicted_life(folder: Path, deadline: int) -> Life:
    """Both markets evict without warning: first one, then the other, then the first again."""
    taken = {21: (MARKETS[0], False), 61: (MARKETS[1], False), 103: (MARKETS[0], False)}
    one = life(folder, taken, rounds=ROUNDS)
    one.terms, one.strategy = StrategyTerms(OFFERS, BASELINE, 16.0, WORK), decider(deadline)
    return one


@pytest.mark.parametrize("minutes", [140, 170, 240])
def test_decisions_follow_from_the_providers_own_events(tmp_path: Path, minutes: int) -> None:
    deadline = START + minutes * MINUTE
    one = evicted_life(tmp_path, deadline)
    assert one.run().outcome == "done"
    logged = [(row.at, row.event) for row in one.rows() if isinstance(row.event, ev.Decided)]
    assert len(logged) >= 2
    for at, event in logged:
        found = decider(deadline).decide(rebuilt(one, at))
        assert (wants(found), found.reason) == (event.wants, event.reason)


def wants(decision: Decision) -> tuple[str, ...]:
    return tuple(described(Buy(action)) for action in decision.actions if isinstance(action, Rent))


def rebuilt(one: Life, now: int) -> Situation:
    """The situation at a moment, from the provider's list of machines, its prices, and the rounds
    that were worked.
    """
    there = [
        machine
        for machine in one.cloud.everything
        if machine.started < now and (machine.ended is None or machine.ended > now)
    ]
    groups: dict[tuple[int, Market, int | None], list[Machine]] = {}
    for machine in there:
        groups.setdefault((machine.started, machine.market, machine.bid), []).append(machine)
    offers = {offer.market: offer for offer in OFFERS}
    holdings = tuple(
        Holding(
            number, Rent(offers[market], len(machines), bid), started, started + LEASE_TIMES.startup
        )
        for number, ((started, market, bid), machines) in enumerate(groups.items())
    )
    worked = sum(
        1 for round_, _ in one.work.done if START + round_ * one.world.round_seconds * SECOND <= now
    )
    return Situation(
        now=now,
        offers=open_offers(one, now),
        price=lambda offer: PRICES[offer.market].price_at(now),
        holdings=holdings,
        baseline=BASELINE,
        most_nu=16.0,
        work_left=WORK * max(1.0 - worked / ROUNDS, 0.0),
    )


def open_offers(one: Life, now: int) -> tuple[Offer, ...]:
    """A market that evicted a moment ago is avoided; the second time, for twice as long."""
    resting = set()
    for market in MARKETS:
        gone = [
            machine
            for machine in one.cloud.everything
            if machine.market == market and machine.ended is not None
        ]
        evicted = {
            machine.ended or 0 for machine in gone if machine.end_reason is EndReason.EVICTED
        }
        moments = sorted(at for at in evicted if at <= now)
        if moments and now < moments[-1] + (FIRST_BACK_OFF << (len(moments) - 1)):
            resting.add(market)
    calm = tuple(offer for offer in OFFERS if offer.market not in resting)
    return calm or OFFERS


def test_the_rebuilt_decisions_differ_where_the_events_do(tmp_path: Path) -> None:
    one = evicted_life(tmp_path, START + 140 * MINUTE)
    one.run()
    at = next(row.at for row in one.rows() if isinstance(row.event, ev.Decided))
    assert wants(decider(START + 140 * MINUTE).decide(rebuilt(one, at)))
    assert not wants(decider(START + 140 * MINUTE).decide(rebuilt(one, at + 5 * MINUTE)))
