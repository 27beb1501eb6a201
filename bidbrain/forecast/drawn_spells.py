"""Spells of spot capacity drawn for a play: from what is known of a market now, or from the prior alone."""

from bisect import bisect_right
from typing import Final

import numpy as np

from bidbrain.replay.market import Capacity
from bidbrain.strategies.deadline_spells import AGES
from bidbrain.strategies.known_spells import KnownSpells
from bidbrain.strategies.regions_knowledge import REGIONS_PRIOR
from pricing_data.units import HOUR

_ENOUGH: Final = 1 << 30
"""Machines of a market that has spot capacity: more than any job wants."""
_AGES: Final = (AGES / HOUR).tolist()
_BEFORE: Final = HOUR


class _SpellLengths:
    """How long spells of one side last, in hours, when their endings have a factor."""

    def __init__(self, rates: tuple[float, ...], factor: float) -> None:
        self._rates = [max(rate * factor, 1e-6) for rate in rates]
        widths = np.diff(_AGES)
        self._sums = [0.0, *np.cumsum(np.array(self._rates[:-1]) * widths).tolist()]
        alive = np.exp(-np.array(self._sums))
        spans = np.append(widths, np.inf)
        self._lived = np.cumsum(alive * -np.expm1(-np.array(self._rates) * spans) / np.array(self._rates))
        self.mean = float(self._lived[-1])

    def rest(self, age: float, endings: float) -> float:
        """How much longer a spell of some age lasts, if it ends once this many endings were expected."""
        at = bisect_right(_AGES, age) - 1
        total = self._sums[at] + self._rates[at] * (age - _AGES[at]) + endings
        at = bisect_right(self._sums, total) - 1
        return float(_AGES[at] + (total - self._sums[at]) / self._rates[at] - age)

    def age(self, share: float) -> float:
        """The age of a spell that is met at any moment: it is younger with this probability."""
        target = share * self.mean
        at = min(int(np.searchsorted(self._lived, target)), len(_AGES) - 1)
        before = 0.0 if at == 0 else float(self._lived[at - 1])
        alive = np.exp(-self._sums[at])
        part = min((target - before) * self._rates[at] / alive, 1 - 1e-12)
        return float(_AGES[at] - np.log1p(-part) / self._rates[at])


def drawn_capacity(
    known: KnownSpells, start: int, end: int, luck: tuple[float, float], chance: np.random.Generator
) -> Capacity:
    """A market's capacity from shortly before `start` until `end`, if `start` were now; `luck` draws the factors of
    down and up spells."""
    sides = [
        _SpellLengths(rates, known.factor(side, luck[side]))
        for side, rates in enumerate((REGIONS_PRIOR.down, REGIONS_PRIOR.up))
    ]
    if known.up is None:
        up = int(chance.random() * (sides[0].mean + sides[1].mean) < sides[1].mean)
        age, at = sides[up].age(float(chance.random())), float(start)
    else:
        up, age, at = int(known.up), known.age, start - known.ago * HOUR
    times, states = [at - age * HOUR - _BEFORE, at - age * HOUR], [1 - up, up]
    while at < end:
        at += sides[up].rest(age, float(chance.exponential())) * HOUR
        up, age = 1 - up, 0.0
        times.append(at)
        states.append(up)
    moments = np.array(times).astype(np.int64)
    kept = np.append(np.diff(moments) > 0, True)
    return Capacity(moments[kept], np.array(states, dtype=np.int64)[kept] * _ENOUGH)
