"""Do conditional eviction estimates pay in decisions? python -m bench.conditional_lab SCENARIO.yaml [STARTS]

Two estimators answer for every bid at once, from what is known at a moment. `nearby` weights past starts by how alike
the market was then (price level, moves within the hour, time since the last move). `boosted` is one forest over starts
and bids, fitted once to the training span. Both scale the whole survival curve of a bid. Printed are their Brier scores
over the test span, next to the plain share, and what proteus and lookahead cost with each, at several prices of time.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean

import numpy as np

from bidbrain.backtest.run import run_strategy
from bidbrain.backtest.scenario import Scenario
from bidbrain.backtest.setup import inputs_of
from bidbrain.eviction import boosting
from bidbrain.eviction.crossing import Floats
from bidbrain.eviction.path import PricePath
from bidbrain.strategies.base import Decision, Offer, Situation, Strategy
from bidbrain.strategies.inputs import StrategyInputs
from bidbrain.strategies.lookahead import Lookahead
from bidbrain.strategies.lookahead_hour import DISTANCES, NextHour, hour_of, survival_curve
from bidbrain.strategies.odds import Odds
from bidbrain.strategies.proteus import Proteus
from bidbrain.strategies.recovery import AGILE
from bidbrain.strategies.registry import StrategySetup, application_of, odds_of
from pricing_data.library import Library
from pricing_data.market import Market
from pricing_data.series import Ints
from pricing_data.store import PriceStore
from pricing_data.units import HOUR, MINUTE
from spotctl.files import scenario as scenario_file

PRICES_OF_TIME = (8.0, 12.0, 16.0, 20.0)
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


ESTIMATORS: dict[str, Callable[[Past], Estimator]] = {"plain": plain, "nearby": nearby, "boosted": boosted}


@dataclass
class Conditioned:
    """A strategy that is given the odds of the moment before each decision."""

    past: Past
    estimator: Estimator
    make: Callable[[Mapping[Market, Floats]], Strategy]
    name: str

    def decide(self, situation: Situation) -> Decision:
        """The decision with the odds of now."""
        now = np.array([situation.now], dtype=np.int64)
        return self.make({one.market: self.estimator(one.market, now)[0] for one in self.past.inputs.offers}).decide(
            situation
        )


def _curve(past: Past, market: Market, beta: Floats) -> Floats:
    """The plain curve with its hazard scaled so that it ends at the probability of the moment."""
    plain_curve = past.curves[market]
    before = np.log(np.clip(plain_curve[:, -1], 1e-6, 1 - 1e-6))
    power = np.log(np.clip(1 - beta, 1e-6, 1 - 1e-6)) / before
    return np.asarray(np.maximum(plain_curve, 1e-9) ** power[:, None])


def lookahead(past: Past, offers: tuple[Offer, ...], usd: float) -> Callable[[Mapping[Market, Floats]], Strategy]:
    """Lookahead at a price of time, with betas by distance."""
    application = application_of(past.inputs)

    def hour(market: Market, beta: Floats) -> NextHour:
        return hour_of(_curve(past, market, beta), past.inputs.billing, application.startup_hours)

    return lambda betas: Lookahead(offers, {one: hour(one, beta) for one, beta in betas.items()}, application, usd)


def proteus(past: Past, offers: tuple[Offer, ...]) -> Callable[[Mapping[Market, Floats]], Strategy]:
    """Proteus with betas by distance; the median times to eviction stay."""
    application, odds = application_of(past.inputs), odds_of(past.inputs)

    def changed(market: Market, beta: Floats) -> Odds:
        before = odds[market]
        return Odds(before.distances, tuple(np.interp(before.distances, DISTANCES, beta).tolist()), before.medians)

    return lambda betas: Proteus(offers, {one: changed(one, beta) for one, beta in betas.items()}, application)


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
    """Prints cost and run time of both strategies with each estimator."""
    for name, estimate in ESTIMATORS.items():
        estimators = {zone: estimate(past) for zone, past in pasts.items()}
        kinds = ["proteus", *(f"lookahead:{usd:g}" for usd in PRICES_OF_TIME)]
        for kind in kinds:
            began, results = time.process_time(), []
            for zone, past in pasts.items():
                offers = scenario.offers_in(zone)
                usd = float(kind.partition(":")[2] or 0)
                make = proteus(past, offers) if kind == "proteus" else lookahead(past, offers, usd)
                strategy = Conditioned(past, estimators[zone], make, kind)
                results += run_strategy(scenario, zone, StrategySetup(kind, strategy, AGILE, reliable=True))
            cost = fmean(one.cost / one.on_demand_cost for one in results)
            took = fmean(one.runtime_hours / one.hours for one in results)
            evictions = fmean(one.evictions for one in results)
            print(
                f"{name:10}{kind:14} cost {cost:7.2%} run time {took:.4f} evictions {evictions:5.1f}"
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
