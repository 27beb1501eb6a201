"""How much do present prices say of a job's cost on the shipped market? python -m
bench.forecast_ceiling [PLAYS]

A job is played at many random moments. The quantiles of each fifth of the plays are predicted from
the others, without the eight hours on either side: from all alike, from those nearest in the state
of the market at their start, and from boosted trees on that state. `hindsight` is the constant
prediction that knows the outcomes of the very fifth.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

import numpy as np

from bench.forecast_worlds import World, shipped
from bidbrain.arrays import Floats
from bidbrain.eviction import boosting
from bidbrain.eviction.conditional import PricePath
from bidbrain.forecast.forecast import pinball
from bidbrain.forecast.values import HIGH, LOW, ForecastJob
from bidbrain.forecast.windows import played_of, run_from
from bidbrain.replay.market import MarketReplay
from pricing_data.market import Market
from pricing_data.series import Ints
from pricing_data.units import DAY, HOUR
from spotctl.planning.facts import PlanningFacts
from spotctl.planning.forecast import forecast_job
from spotctl.planning.offers import MarketSnapshot
from spotctl.planning.plan import plan_jobs
from spotctl.planning.values import Job

PLAYS = 1200
_LEVELS = np.array([LOW, 0.5, HIGH])
_PARTS = 5
_APART = 8 * HOUR
_SEED = 1
_SHAPE = boosting.TreeSettings(trees=60, depth=2, ridge=2.0, leaf_curvature=2.0)

Predict = Callable[[Floats, Floats, Floats], Floats]
"""From states and costs that are known, and states to predict: quantiles."""


def alike(_: Floats, known: Floats, asked: Floats) -> Floats:
    """All plays count alike."""
    return np.tile(np.quantile(known, _LEVELS), (len(asked), 1))


def nearest(share: float) -> Predict:
    """The plays with the most similar states."""

    def predict(states: Floats, known: Floats, asked: Floats) -> Floats:
        count = max(int(share * len(known)), 10)
        apart = ((asked[:, None, :] - states[None, :, :]) ** 2).sum(axis=2)
        near = np.argpartition(apart, count, axis=1)[:, :count]
        quantiles: Floats = np.quantile(known[near], _LEVELS, axis=1).T
        return quantiles

    return predict


def trees(states: Floats, known: Floats, asked: Floats) -> Floats:
    """The distribution from boosted probabilities of being above each of nine values."""
    values = np.unique(np.quantile(known, np.linspace(0.1, 0.9, 9)))
    chance, shape = np.random.default_rng(_SEED), _SHAPE
    above = []
    for value in values:
        over = (known > value).astype(np.float64)
        forest = boosting.fit(states, over, np.ones(over.size), shape, chance)
        above.append(forest.probabilities(asked))
    below = np.maximum.accumulate(1 - np.array(above), axis=0).T
    return np.array([np.interp(_LEVELS, row + np.arange(row.size) * 1e-9, values) for row in below])


METHODS: dict[str, Predict] = {
    "boosted trees": trees,
    "nearest 20%": nearest(0.2),
    "nearest 5%": nearest(0.05),
}


def play_at_random(world: World, count: int) -> tuple[Ints, Floats, Floats]:
    """Starts, the state of the markets at each, and what the job then cost."""
    at = world.begin
    snapshot = MarketSnapshot.of(world.table, world.catalog, at)
    job = forecast_job(
        plan_jobs(PlanningFacts((Job(world.spec, hours=4.0),), snapshot, world.hazard))[0]
    )
    future = dict(zip(world.table.markets, world.table, strict=True))
    histories = {offer.market: future[offer.market] for offer in job.offers}
    market = MarketReplay(histories.values())
    starts = np.sort(np.random.default_rng(_SEED).integers(at, world.end - DAY, count))
    runs = [run_from(job, market, histories, start)[0] for start in starts.tolist()]
    usd = np.array([played_of(run, job, histories, run.job.start).usd for run in runs])
    return (
        starts,
        _states(job, {market: PricePath(series) for market, series in histories.items()}, starts),
        usd,
    )


def _states(job: ForecastJob, paths: Mapping[Market, PricePath], starts: Ints) -> Floats:
    columns = [
        paths[offer.market].features(starts, np.full(starts.size, offer.on_demand, dtype=np.int64))
        for offer in job.offers
    ]
    states = np.column_stack(columns)
    scaled: Floats = (states - states.mean(axis=0)) / np.maximum(states.std(axis=0), 1e-9)
    return scaled


def losses(starts: Ints, states: Floats, usd: Floats) -> dict[str, float]:
    """The mean pinball loss of each method."""
    sums = dict.fromkeys(("alike", "hindsight", *METHODS), 0.0)
    for part in np.array_split(np.arange(starts.size), _PARTS):
        begin, end = starts[part[0]] - _APART, starts[part[-1]] + _APART
        others = np.flatnonzero((starts < begin) | (starts > end))
        for name, predict in {"alike": alike, **METHODS}.items():
            predicted = predict(states[others], usd[others], states[part])
            sums[name] += float(pinball(predicted, usd[part]).sum())
        constant = np.tile(np.quantile(usd[part], _LEVELS), (part.size, 1))
        sums["hindsight"] += float(pinball(constant, usd[part]).sum())
    return {name: loss / starts.size for name, loss in sums.items()}


def main(words: list[str]) -> None:
    """Prints how much lower each method's loss is than that of quantiles of all plays."""
    count = int(words[0]) if words else PLAYS
    for strategy in ("auto", "proteus"):
        by_method = losses(*play_at_random(shipped(strategy), count))
        base = by_method.pop("alike")
        gains = (f"{name} {1 - loss / base:.0%}" for name, loss in by_method.items())
        print(f"shipped market, {strategy:8} {count} plays: {', '.join(gains)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
