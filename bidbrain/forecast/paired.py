"""Whether one decision object serves a job better than another: both play the same past, with the same luck."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from bidbrain.arrays import Floats
from bidbrain.forecast.windows import PastMarket, Played, trials
from pricing_data.units import HOUR

_LEAST_APART = 4
"""Fewer plays that do not overlap tell too little."""
_MATTERS, _SAME = 0.01, 0.005
"""The shares of the cost, or of the time, by which plays are clearly better, and by which they count as equal."""
_CLEAR = 0.975


@dataclass(frozen=True, slots=True)
class Trials:
    """Plays of a job by their starts, and the length of the history that they are spread over, in hours."""

    played: dict[int, Played]
    span: float

    @classmethod
    def of(cls, market: PastMarket) -> "Trials":
        """The plays of a job in a market's past."""
        return cls({played.start: played for played, _ in trials(market)}, market.span / HOUR)


def is_better(new: Trials, old: Trials) -> bool:
    """Whether `new` is clearly cheaper or clearly faster than `old`, and neither more expensive nor slower."""
    both = [(new.played[start], old.played[start]) for start in new.played if start in old.played]
    apart = min(len(both), new.span / max(max(mine.hours, other.hours) for mine, other in both))
    if apart < _LEAST_APART or any(not mine.finished and other.finished for mine, other in both):
        return False
    usd = _Change.of([mine.usd for mine, _ in both], [other.usd for _, other in both], apart)
    hours = _Change.of([mine.hours for mine, _ in both], [other.hours for _, other in both], apart)
    return max(usd.mean, hours.mean) <= _SAME and min(usd.highest, hours.highest) < -_MATTERS


@dataclass(frozen=True, slots=True)
class _Change:
    """The mean change of a figure as a share of its old mean, and the most that it may be."""

    mean: float
    highest: float

    @classmethod
    def of(cls, new: Sequence[float], old: Sequence[float], apart: float) -> "_Change":
        changes: Floats = np.subtract(new, old) / np.mean(old)
        error = float(changes.std(ddof=1)) / apart**0.5
        return cls(float(changes.mean()), float(changes.mean()) + float(stdtrit(apart - 1, _CLEAR)) * error)
