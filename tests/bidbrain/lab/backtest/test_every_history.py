"""Backtests and frontiers end with results on histories of every kind, whatever the training span
has seen.
"""

from __future__ import annotations

from math import isfinite

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from bidbrain.billing import billing_rule
from bidbrain.lab.backtest.frontier import points, settings_of
from bidbrain.lab.backtest.run import backtest
from bidbrain.lab.backtest.scenario import Scenario
from bidbrain.strategies.base import Checkpointing, Overheads
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, MINUTE, SECOND, Span
from tests.bidbrain.lab.backtest.worlds import BASELINE, ON_DEMAND, offer
from tests.pricing_data.histories import START

TRAIN_HOURS, HOURS = 24, 60
NEVER, ALWAYS, AT, OFTEN, SELDOM = "above", "below", "at", "often crossing", "seldom crossing"
KINDS = st.sampled_from([NEVER, ALWAYS, AT, OFTEN, SELDOM])


def _prices(kind: str, rng: np.random.Generator, count: int) -> list[int]:
    above, below = (
        rng.integers(ON_DEMAND + 1, 3 * ON_DEMAND, count),
        rng.integers(1, ON_DEMAND, count),
    )
    crosses = rng.random(count) < (0.5 if kind == OFTEN else 0.02)
    chosen = {NEVER: above, ALWAYS: below, AT: np.full(count, ON_DEMAND)}.get(
        kind, np.where(crosses, above, below)
    )
    return [int(price) for price in chosen]


def history(kinds: tuple[str, str], seed: int, name: str) -> PriceSeries:
    """A price that is of one kind in the training span and of another in the test."""
    rng, times, prices = np.random.default_rng(seed), list[int](), list[int]()
    for kind, begin, end in ((kinds[0], 0, TRAIN_HOURS), (kinds[1], TRAIN_HOURS, HOURS)):
        every = int(rng.choice([MINUTE, 20 * MINUTE, 5 * HOUR]))
        moments = list(range(START + begin * HOUR, START + end * HOUR, every))
        times += moments
        prices += _prices(kind, rng, len(moments))
    times.append(START + HOURS * HOUR)
    prices.append(prices[-1])
    market = Market("aws", "us-east-1", "us-east-1a", name)
    return PriceSeries(market, np.array(times, dtype=np.int64), np.array(prices, dtype=np.int64))


def scenario(histories: tuple[PriceSeries, ...], billing: str) -> Scenario:
    return Scenario(
        histories=histories,
        offers=tuple(map(offer, histories)),
        train=Span(START, START + TRAIN_HOURS * HOUR),
        test=Span(START + TRAIN_HOURS * HOUR, START + HOURS * HOUR),
        baseline=BASELINE,
        reliable=None,
        hours=(2.0,),
        most_nu=48.0,
        billing=billing_rule(billing),
        overheads=Overheads(300 * SECOND, 60 * SECOND, 30 * SECOND),
        checkpoints=Checkpointing(0.83, 120 * SECOND),
        starts=2,
        seed=3,
    )


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.tuples(KINDS, KINDS), st.integers(0, 99)), min_size=1, max_size=2),
    st.sampled_from(["hourly-refund", "per-second-first-hour-free"]),
)
@example(made=[(("above", "above"), 0)], billing="hourly-refund")
def test_every_strategy_ends_on_every_kind_of_history(
    made: list[tuple[tuple[str, str], int]], billing: str
) -> None:
    histories = tuple(
        history(kinds, seed, f"{name}.large")
        for name, (kinds, seed) in zip("ab", made, strict=False)
    )
    world = scenario(histories, billing)
    results = backtest(world, [*settings_of(world), "bound"])
    assert all(isfinite(result.cost) and result.cost >= 0 for result in results)
    judged, bounds = points(world, [result for result in results if result.scheme != "bound"])
    assert {point.scheme for point in judged} == set(settings_of(world))
    assert all(isfinite(bound.cost_pct) for bound in bounds)


@pytest.mark.parametrize("seed", range(4))
def test_a_market_that_was_never_affordable_in_training_has_an_interval_between_checkpoints(
    seed: int,
) -> None:
    world = scenario((history((NEVER, OFTEN), seed, "a.large"),), "hourly-refund")
    assert all(isfinite(result.cost) for result in backtest(world, ["standard+checkpoint"]))
