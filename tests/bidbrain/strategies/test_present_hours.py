"""`lookahead-present`: what comes later changes no decision, in the replay and in a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from bidbrain.billing import billing_rule
from bidbrain.eviction.path import PricePath
from bidbrain.replay.job import run_job
from bidbrain.replay.market import MarketReplay
from bidbrain.replay.pace import PastJobs
from bidbrain.replay.run import ReplayedJob
from bidbrain.strategies.base import Decision, Offer, Rent, Situation, Strategy
from bidbrain.strategies.inputs import StrategyInputs
from bidbrain.strategies.lookahead_hour import NextHour
from bidbrain.strategies.present_hours import PresentHours
from bidbrain.strategies.recovery import Checkpointing
from bidbrain.strategies.registry import set_up
from bidbrain.values import Overheads
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import DAY, HOUR, MINUTE
from tests.bidbrain.eviction.worlds import START, moody

LEARNED, RULE = START + 12 * DAY, billing_rule("hourly-refund")
OVERHEADS = Overheads(5 * MINUTE, MINUTE, MINUTE // 2)
# Ten cents and more, so that the bids of strategies are between the prices.
WORLD = [
    replace(one, prices=one.prices * 100)
    for one in (moody(np.random.default_rng(seed), name, 16) for seed, name in enumerate("ab"))
]
OFFERS = tuple(Offer(one.market, 8.0, 300_000_000) for one in WORLD)
BASELINE = Rent(OFFERS[0], 4, None)


def lookahead() -> Strategy:
    inputs = StrategyInputs(
        offers=OFFERS,
        histories={one.market: one.window(START, LEARNED) for one in WORLD},
        hazards=dict.fromkeys(one.market for one in WORLD),
        baseline=BASELINE,
        reliable=None,
        billing=RULE,
        overheads=OVERHEADS,
        checkpoints=Checkpointing(0.83, 2 * MINUTE),
        pace=PastJobs((4.0,), 32.0),
        value_of_time=0.2,
    )
    return set_up("lookahead-present", inputs).strategy


class Noted:
    """A strategy whose decisions are kept."""

    name = "noted"

    def __init__(self, strategy: Strategy) -> None:
        self.strategy, self.decisions = strategy, list[tuple[int, Decision]]()

    def decide(self, situation: Situation) -> Decision:
        decision = self.strategy.decide(situation)
        self.decisions.append((situation.now, decision))
        return decision


def decisions(strategy: Strategy, histories: list[PriceSeries]) -> list[tuple[int, Decision]]:
    noted, start = Noted(strategy), LEARNED + HOUR
    job = ReplayedJob(start, 32.0 * 20 * HOUR, start + 60 * HOUR, OFFERS, BASELINE, 32.0)
    run_job(job, noted, MarketReplay(histories), OVERHEADS)
    return noted.decisions


@pytest.fixture(scope="module")
def strategy() -> Strategy:
    return lookahead()


def test_what_comes_later_changes_no_decision_before(strategy: Strategy) -> None:
    moment = LEARNED + 9 * HOUR
    first = [one for one in decisions(strategy, WORLD) if one[0] <= moment]
    later = [replace(one, prices=np.where(one.times > moment, 3 * one.prices, one.prices)) for one in WORLD]
    assert len(first) > 5
    assert [one for one in decisions(strategy, later) if one[0] <= moment] == first


def test_the_present_decides(strategy: Strategy) -> None:
    """Without the past of its markets the same strategy decides by the usual odds, and otherwise."""

    class Blind:
        name = "blind"

        def decide(self, situation: Situation) -> Decision:
            return strategy.decide(replace(situation, path=lambda _: None))

    assert decisions(Blind(), WORLD) != decisions(strategy, WORLD)


def test_the_past_up_to_now_is_enough(strategy: Strategy) -> None:
    """A run knows prices until now, a replay the whole record; both decide alike."""

    class Live:
        name = "live"

        def decide(self, situation: Situation) -> Decision:
            until = {one.market: PricePath(one.window(one.first, situation.now)) for one in WORLD}
            return strategy.decide(replace(situation, path=lambda market: until[market]))

    assert decisions(Live(), WORLD)[:12] == decisions(strategy, WORLD)[:12]


def test_bids_that_are_as_risky_as_usual_have_the_usual_hour() -> None:
    histories: Mapping[Market, PriceSeries] = {one.market: one.window(START, LEARNED) for one in WORLD}
    present = PresentHours.of(histories, RULE, 1 / 12)
    assert present is not None
    market = WORLD[0].market
    usual = NextHour.of(histories[market], RULE, 1 / 12, None)
    middle = present.figures[market][3]
    assert middle == pytest.approx(
        np.array([usual.survival, usual.alive, usual.useful, usual.paid_new, usual.paid_old])
    )
