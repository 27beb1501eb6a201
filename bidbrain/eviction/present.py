"""How much riskier than usual each bid is now, from what its market's price did lately.

The estimates of `conditional` answer one bid at a moment. A strategy compares all bids of all its markets at every
decision, and a forecast takes thousands of decisions; so here one forest answers for all bids, with the usual share of
each among its features, evaluated for a day of moments at a time. The forest is used only if, fitted to the first three
quarters of the past, it predicts the last quarter better than the usual shares do.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.eviction import boosting
from bidbrain.eviction.path import PricePath
from pricing_data.market import Market
from pricing_data.series import Ints
from pricing_data.units import DAY, HOUR, MINUTE

WINDOW = HOUR
"""Bids are asked for the next hour, the longest time for which one is paid."""
MOST_DOUBLINGS = 3.0
"""A bid is called at most this many doublings riskier, or safer, than usual."""
STEP = 5 * MINUTE
"""Time is cut into steps: events within a step count from the next step on."""
_STEPS_A_DAY = DAY // STEP
_ROWS = 12_000
_WARM_UP = 12 * HOUR
_LEAST_PAST = 4 * DAY
_HELD_OUT = 0.25
_SEED = 2016
_LEAST_CHANCE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class PresentRisk:
    """For bids at `distances` above the price: how many times as fast as usual they are crossed.

    `shares` are the usual probabilities of a crossing within the hour, by market.
    """

    model: boosting.Forest
    distances: Ints
    shares: Mapping[Market, Floats]
    _days: WeakKeyDictionary[PricePath, dict[int, Floats]] = field(default_factory=WeakKeyDictionary, repr=False)

    @classmethod
    def of(
        cls, paths: Mapping[Market, PricePath], distances: Ints, shares: Mapping[Market, Floats]
    ) -> "PresentRisk | None":
        """The model of the whole past; None if it is too short, or if the usual shares predict as well."""
        begin = max(path.series.first for path in paths.values()) + _WARM_UP
        end = min(path.series.last for path in paths.values()) - WINDOW
        if end - begin < _LEAST_PAST:
            return None
        split = round(end - _HELD_OUT * (end - begin))
        trial = _fitted(paths, distances, shares, (begin, split - WINDOW))
        if trial is None or not _is_better(trial, paths, (split, end)):
            return None
        return _fitted(paths, distances, shares, (begin, end))

    def doublings(self, market: Market, path: PricePath, now: int) -> Floats:
        """The logarithm to base 2 of how many times as fast bids are crossed, by distance."""
        series = path.series
        day, step = divmod((min(max(now, series.first), series.last) - series.first) // STEP, _STEPS_A_DAY)
        days = self._days.setdefault(path, {})
        if day not in days:
            moments = series.first + (day * _STEPS_A_DAY + np.arange(_STEPS_A_DAY, dtype=np.int64)) * STEP
            days[day] = self._at(market, path, moments[moments <= series.last])
        doublings: Floats = days[day][step]
        return doublings

    def probabilities(self, market: Market, path: PricePath, moments: Ints) -> Floats:
        """Probabilities of a crossing within the hour: moments by distances."""
        count = self.distances.size
        rows = _rows(path, np.repeat(moments, count), np.tile(self.distances, moments.size))
        usual = np.tile(boosting.log_odds(self.shares[market]), moments.size)
        chances = self.model.probabilities(np.column_stack([rows, usual])).reshape(moments.size, count)
        # A price above a bid is above every lower bid, too.
        return np.minimum.accumulate(chances, axis=1)

    def _at(self, market: Market, path: PricePath, moments: Ints) -> Floats:
        usual, now = _hazard(self.shares[market]), _hazard(self.probabilities(market, path, moments))
        return np.clip(np.log2(now / usual), -MOST_DOUBLINGS, MOST_DOUBLINGS)


def _hazard(chances: Floats) -> Floats:
    return -np.log1p(-np.clip(chances, _LEAST_CHANCE, 1 - _LEAST_CHANCE))


def _rows(path: PricePath, moments: Ints, distances: Ints) -> Floats:
    return path.features(moments, path.series.prices[path.index_at(moments)] + distances)


def _crossed(path: PricePath, moments: Ints, distances: Ints) -> Floats:
    held = path.series.prices[path.index_at(moments)] + distances
    return (path.highest_after(moments, WINDOW) > held).astype(np.float64)


def _fitted(
    paths: Mapping[Market, PricePath], distances: Ints, shares: Mapping[Market, Floats], span: tuple[int, int]
) -> PresentRisk | None:
    """Fits a model to random moments and bids of a span; None if all have the same outcome."""
    chance = np.random.default_rng(_SEED)
    each = _ROWS // len(paths)
    rows, outcomes = list[Floats](), list[Floats]()
    for market, path in paths.items():
        moments, place = chance.integers(*span, each), chance.integers(0, distances.size, each)
        usual = boosting.log_odds(shares[market][place])
        rows.append(np.column_stack([_rows(path, moments, distances[place]), usual]))
        outcomes.append(_crossed(path, moments, distances[place]))
    crossed = np.concatenate(outcomes)
    if crossed.all() or not crossed.any():
        return None
    forest = boosting.fit(np.concatenate(rows), crossed, np.ones(crossed.size), boosting.TreeSettings(), chance)
    return PresentRisk(forest, distances, shares)


def _is_better(trial: PresentRisk, paths: Mapping[Market, PricePath], span: tuple[int, int]) -> bool:
    """Whether the trial's Brier score over a span is below that of the usual shares."""
    moments = np.linspace(*span, max(_ROWS // trial.distances.size // len(paths), 1)).astype(np.int64)
    gain = 0.0
    for market, path in paths.items():
        crossed = _crossed(
            path, np.repeat(moments, trial.distances.size), np.tile(trial.distances, moments.size)
        ).reshape(moments.size, -1)
        gain += float(((trial.shares[market] - crossed) ** 2).sum())
        gain -= float(((trial.probabilities(market, path, moments) - crossed) ** 2).sum())
    return gain > 0
