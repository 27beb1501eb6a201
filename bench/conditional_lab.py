"""Do conditional eviction estimates pay in decisions? python -m bench.conditional_lab SCENARIO.yaml [STARTS]

Estimators answer for every bid at once, from what is known at a moment. `present` is that of `lookahead-present`.
`nearby` weights past starts by how alike the market was then (price level, moves within the hour, time since the last
move). `boosted` is one forest of deep trees over starts and bids. All are fitted once to the training span. Printed are
their Brier scores over the test span, next to the plain share; then what lookahead costs with the plain shares and with
`present`, at several prices of time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean

import numpy as np

from bidbrain.backtest.results import JobResult
from bidbrain.backtest.run import run_strategy
from bidbrain.backtest.scenario import Scenario
from bidbrain.backtest.setup import inputs_of
from bidbrain.eviction import boosting
from bidbrain.eviction.crossing import Floats
from bidbrain.eviction.path import PricePath
from bidbrain.strategies.inputs import StrategyInputs
from bidbrain.strategies.lookahead_hour import DISTANCES, survival_curve
from bidbrain.strategies.present_hours import InThePresent, PresentHours
from bidbrain.strategies.recovery import AGILE
from bidbrain.strategies.registry import StrategySetup, application_of, lookahead_present_of
from pricing_data.library import Library
from pricing_data.market import Market
from pricing_data.series import Ints
from pricing_data.store import PriceStore
from pricing_data.units import HOUR, MINUTE
from spotctl.lab.backtest import scenario as scenario_file

PRICES_OF_TIME = (8.0, 12.0, 16.0)
STARTS = 10
_STEP = 10 * MINUTE
_ROWS = 20_000
_SEED = 5
# Columns of `PricePath.features` that do not depend on the bid: moves in 1 h, place in range of 24 h, time since the
# last move.
_ALIKE = (6, 14, 18)
_OWN_SHARE_WINDOWS = 24.0

Estimator = Callable[[Market, Ints], Floats]
"""Crossing probabilities within an hour: moments by `DISTANCES`."""


@dataclass(frozen=True)
class Past:
    """The training span of a zone, and whole histories; features read only what came before a moment."""

    inputs: StrategyInputs
    paths: Mapping[Market, PricePath]

    @cached_property
    def starts(self) -> dict[Market, Ints]:
        """Starts of the training span."""
        return {
            market: np.arange(one.first + 2 * HOUR, one.last - HOUR, _STEP, dtype=np.int64)
            for market, one in self.inputs.histories.items()
        }

    @cached_property
    def curves(self) -> dict[Market, Floats]:
        """The plain survival curves: distances by ages."""
        return {market: survival_curve(one) for market, one in self.inputs.histories.items()}

    def crossed(self, market: Market, times: Ints) -> Floats:
        """Whether each bid was crossed: moments by distances."""
        path = self.paths[market]
        held = path.series.prices[path.index_at(times)]
        return (path.highest_after(times, HOUR)[:, None] > held[:, None] + DISTANCES).astype(np.float64)

    def features(self, market: Market, times: Ints, distances: Ints) -> Floats:
        """Features of moments with bids at some distance above the price."""
        path = self.paths[market]
        return path.features(times, path.series.prices[path.index_at(times)] + distances)


def plain(past: Past) -> Estimator:
    """The share of the training span, whatever holds now."""
    return lambda market, times: np.tile(1 - past.curves[market][:, -1], (times.size, 1))


def nearby(past: Past) -> Estimator:
    """Shares of past starts, weighted by how alike the market was, and shrunk towards the plain share."""
    known = {}
    for market, times in past.starts.items():
        state = _state(past, market, times)
        scale = np.maximum(state.std(axis=0), 1e-6)
        known[market] = state / scale, scale, past.crossed(market, times)

    def estimate(market: Market, times: Ints) -> Floats:
        state, scale, crossed = known[market]
        own = 1 - past.curves[market][:, -1]
        now = _state(past, market, times) / scale
        found = np.empty((times.size, DISTANCES.size))
        for i, one in enumerate(now):
            weights = np.exp(-2.0 * ((state - one) ** 2).sum(axis=1))
            windows = weights.sum() * _STEP / HOUR
            found[i] = (weights @ crossed * _STEP / HOUR + _OWN_SHARE_WINDOWS * own) / (windows + _OWN_SHARE_WINDOWS)
        return found

    return estimate


def _state(past: Past, market: Market, times: Ints) -> Floats:
    path = past.paths[market]
    level = np.log(path.series.prices[path.index_at(times)].astype(np.float64))
    return np.column_stack([level, past.features(market, times, np.zeros_like(times))[:, _ALIKE]])


def boosted(past: Past) -> Estimator:
    """One forest over starts and bids of all markets."""
    chance = np.random.default_rng(_SEED)
    markets = list(past.starts)
    each = _ROWS // len(markets)
    rows, outcomes = [], []
    for market in markets:
        times = chance.choice(past.starts[market], each)
        place = chance.integers(0, DISTANCES.size, each)
        rows.append(_with_share(past, market, times, DISTANCES[place], place))
        outcomes.append(past.crossed(market, times)[np.arange(each), place])
    crossed = np.concatenate(outcomes)
    forest = boosting.fit(np.concatenate(rows), crossed, np.ones(crossed.size), boosting.TreeSettings(trees=80), chance)

    def estimate(market: Market, times: Ints) -> Floats:
        place = np.tile(np.arange(DISTANCES.size), times.size)
        asked = _with_share(past, market, np.repeat(times, DISTANCES.size), DISTANCES[place], place)
        found = forest.probabilities(asked).reshape(times.size, DISTANCES.size)
        # A price above a bid is above every lower bid, too.
        return np.minimum.accumulate(found, axis=1)

    return estimate


def _with_share(past: Past, market: Market, times: Ints, distances: Ints, place: Ints) -> Floats:
    share = boosting.log_odds(1 - past.curves[market][place, -1])
    return np.column_stack([past.features(market, times, distances), share])


def present(past: Past) -> Estimator:
    """What `lookahead-present` is given; the plain share where its past shows too little."""
    application = application_of(past.inputs)
    hours = PresentHours.of(past.inputs.histories, past.inputs.billing, application.startup_hours)
    if hours is None:
        return plain(past)
    risk, asked = hours.risk, np.log(hours.risk.distances + 1)

    def estimate(market: Market, times: Ints) -> Floats:
        odds = boosting.log_odds(risk.probabilities(market, past.paths[market], times))
        return boosting.logistic(np.array([np.interp(np.log(DISTANCES + 1), asked, row) for row in odds]))

    return estimate


ESTIMATORS: dict[str, Callable[[Past], Estimator]] = {
    "plain": plain,
    "nearby": nearby,
    "boosted": boosted,
    "present": present,
}


def past_of(scenario: Scenario, zone: str) -> Past:
    """What is known of a zone."""
    histories = scenario.histories_in(zone)
    return Past(inputs_of(scenario, zone), {market: PricePath(one) for market, one in histories.items()})


def brier_scores(scenario: Scenario, pasts: Mapping[str, Past]) -> None:
    """Prints the scores of each estimator over the test span, by distance."""
    begin, end = scenario.test.start, scenario.test.end - 2 * HOUR
    columns = [0, *np.searchsorted(DISTANCES, [10**6, 10**7, 10**8]).tolist()]
    print(f"{'Brier score at price +':28}" + "".join(f"${DISTANCES[i] / 1e9:<10.4f}" for i in columns) + "all bids")
    base: Floats | None = None
    for name, make in ESTIMATORS.items():
        errors = []
        for past in pasts.values():
            estimator = make(past)
            for market in past.paths:
                times = np.arange(begin, end, 97 * MINUTE, dtype=np.int64)
                errors.append((estimator(market, times) - past.crossed(market, times)) ** 2)
        found = np.concatenate(errors).mean(axis=0)
        base = found if base is None else base
        gains = [1 - found[i] / base[i] for i in columns] + [1 - found.mean() / base.mean()]
        print(f"{name:28}" + "".join(f"{found[i]:.4f} {gain:4.0%} " for i, gain in zip(columns, gains, strict=False))
              + f" {found.mean():.4f} {gains[-1]:4.0%}", flush=True)  # fmt: skip


def costs(scenario: Scenario, pasts: Mapping[str, Past]) -> None:
    """Prints cost and run time of lookahead with both kinds of odds."""
    makes = {zone: lookahead_present_of(past.inputs, "lookahead") for zone, past in pasts.items()}
    for usd, kind in product(PRICES_OF_TIME, ("plain", "present")):
        began, results = time.process_time(), list[JobResult]()
        for zone, make in makes.items():
            strategy = make(scenario.offers_in(zone), usd)
            if kind == "plain" and isinstance(strategy, InThePresent):
                strategy = strategy.usual
            results += run_strategy(scenario, zone, StrategySetup("lookahead", strategy, AGILE, reliable=True))
        cost = fmean(one.cost / one.on_demand_cost for one in results)
        took = fmean(one.runtime_hours / one.hours for one in results)
        evictions = fmean(one.evictions for one in results)
        print(
            f"lookahead:{usd:<4g}{kind:10} cost {cost:7.2%} run time {took:.4f} evictions {evictions:5.1f}"
            f" ({len(results)} jobs, {time.process_time() - began:.0f} s)",
            flush=True,
        )


def main(words: Sequence[str]) -> None:
    """Prints both tables."""
    if not words:
        sys.exit("usage: python -m bench.conditional_lab SCENARIO.yaml [STARTS]")
    loaded = scenario_file.load(Path(words[0]), Library(PriceStore(Path("no-such-folder")))).scenario
    scenario = replace(loaded, starts=int(words[1]) if len(words) > 1 else STARTS)
    pasts = {zone: past_of(scenario, zone) for zone in scenario.zones}
    brier_scores(scenario, pasts)
    costs(scenario, pasts)


if __name__ == "__main__":
    main(sys.argv[1:])
