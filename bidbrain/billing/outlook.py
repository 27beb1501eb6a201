"""Expected cost of a machine: a rule's dues under a survival curve.

Time already used is left out: neither its cost nor a possible refund of it counts. Eq. 4.1 of the BidBrain paper does
the same with the minutes left in a paid hour; under hourly refunds, to the end of that hour, this is Eq. 4.1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing.bill import End, ImpossibleLife
from bidbrain.billing.rules import BillingRule
from bidbrain.errors import TooLittleHistory
from pricing_data.units import HOUR

Survival = Callable[[Floats], Floats]
"""From ages (microseconds) to the probability of no eviction before them. A second axis of the answer has one value per
market."""


@dataclass(frozen=True, slots=True, eq=False)
class SampledSurvival:
    """A survival curve known at some ages (microseconds, from 0 on), linear between them.

    A query beyond the last age raises `TooLittleHistory`.
    """

    ages: Floats
    alive: Floats

    def __post_init__(self) -> None:
        if self.ages.ndim != 1 or self.ages.shape != self.alive.shape or self.ages.size == 0 or self.ages[0] != 0:
            raise ImpossibleLife("a survival curve needs ages from 0 on, and one probability per age")
        steps = np.diff(self.alive)
        if np.any(np.diff(self.ages) <= 0) or np.any(steps > 0) or self.alive[0] > 1 or self.alive[-1] < 0:
            raise ImpossibleLife(
                "a survival curve's ages must increase and its probabilities fall, from at most 1 to at least 0"
            )

    def __call__(self, ages: Floats) -> Floats:
        """The probability of no eviction before each age."""
        if ages.size and float(ages.max()) > self.ages[-1]:
            raise TooLittleHistory(
                f"survival is known to an age of {self.ages[-1] / HOUR:.1f} hours, not to"
                f" {float(ages.max()) / HOUR:.1f}; use a shorter horizon or a longer curve"
            )
        return np.interp(ages, self.ages, self.alive)


def expected_seconds(rule: BillingRule, age: int, horizon: int, survival: Survival, ended: End = End.LEFT) -> Floats:
    """Expected billed seconds, from `age` on, of a machine that runs at `age` and is kept for `horizon`.

    One number (an array without axes), or one per market if the survival curve covers several.
    """
    alive = survival(np.array([age], dtype=np.float64))[0]
    if not np.all(alive > 0):
        raise ImpossibleLife(f"no machine survives to an age of {age / HOUR:.1f} hours, so its future is undefined")
    dues = rule.dues(age, horizon, ended)
    return np.asarray(dues.seconds @ survival(dues.ages) / alive, dtype=np.float64)
