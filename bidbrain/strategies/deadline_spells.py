"""How long spot capacity stays and stays away: what is believed before looking, and what a market's past adds.

Availability comes in spells, up or down. How likely a spell is to end within the next minutes falls steeply with its
age: capacity that went a minute ago often comes back at once, and what has been gone for a day stays away. The prior
is a rate of ending for each of some classes of age. A market ends its spells faster or slower than that by a factor;
there is one for young and one for old spells, up and down. With a Gamma prior on a factor its posterior mean is

    (strength + endings seen) / (strength + endings the prior expected over the same time)

where what was seen counts half as much for each `HALF_LIFE` that went by, because markets drift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pricing_data.series import Ints
from pricing_data.units import DAY, HOUR, MINUTE

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Ages at which a class begins. Ten minutes, because the observers of the public traces asked about that often.
AGES: Final = 10 * MINUTE * np.array([0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 144])
CLASSES: Final = AGES.size
OLD_FROM: Final = int(np.searchsorted(AGES, HOUR))
HALF_LIFE: Final = 2 * DAY
SIDE_STRENGTH: Final = 5.0
AGE_STRENGTH: Final = 10.0
# Factors are rounded to powers of this, so that a few dozen plans serve every market at every time.
FACTOR_STEP: Final = 1.5
MOST_STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class Prior:
    """Endings per hour of down and of up spells, by class of age."""

    down: tuple[float, ...]
    up: tuple[float, ...]

    def rates(self, factors: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> Floats:
        """Endings per hour, down and up by class, under factors: down young, down old, up young, up old."""
        by_side = np.array([self.down, self.up])
        by_side[:, :OLD_FROM] *= np.array(factors[::2])[:, None]
        by_side[:, OLD_FROM:] *= np.array(factors[1::2])[:, None]
        return by_side


# Pooled over public single-node traces of 2022 and 2023, as `python -m bench.deadline_lab prior` prints it.
_DOWN = "2.08 1.6 1.01 .879 .731 .502 .561 .366 .42 .32 .333 .288 .292 .19 .162 .156 .111 .0216"
_UP = "1.69 1.27 .899 .927 .568 .519 .412 .405 .391 .257 .247 .233 .173 .141 .125 .101 .0862 .0292"
PUBLIC_PRIOR: Final = Prior(tuple(map(float, _DOWN.split())), tuple(map(float, _UP.split())))


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """What is known of a market at each tick from that tick and those before.

    `state` numbers the side and the class of age: 0 to CLASSES - 1 down, from CLASSES on up. `steps` holds the four
    factors as rounded powers of FACTOR_STEP.
    """

    state: Ints
    steps: Ints

    def last(self) -> Outlook:
        """The present alone: what a live decision needs."""
        return Outlook(self.state[-1:], self.steps[-1:])


def outlook(up: Flags, gap: int, prior: Prior) -> Outlook:
    """Spells and factors at each tick of a history whose ticks are `gap` microseconds apart.

    A spell's age counts from the tick that first shows it. The first spell began before the history; its age counts
    from there, too, for want of anything better.
    """
    age_class = np.searchsorted(AGES, _ages(up, gap), side="right") - 1
    forget = 0.5 ** (gap / HALF_LIFE)
    factors = [_factors(up == bool(side), age_class, gap, prior.rates()[side], forget) for side in (0, 1)]
    steps = np.rint(np.log(np.concatenate(factors)) / np.log(FACTOR_STEP)).astype(np.int64)
    return Outlook(age_class + CLASSES * up, np.clip(steps, -MOST_STEPS, MOST_STEPS).T)


def fit_prior(histories: Sequence[tuple[Flags, int]]) -> Prior:
    """Pooled endings per hour; each class is drawn towards its side's mean by one ending."""
    endings, hours = np.zeros((2, CLASSES)), np.zeros((2, CLASSES))
    for up, gap in histories:
        age_class = np.searchsorted(AGES, _ages(up, gap), side="right") - 1
        for side in (0, 1):
            here = up == bool(side)
            endings[side] += np.bincount(age_class[here & _ends(up)], minlength=CLASSES)
            hours[side] += np.bincount(age_class[here], minlength=CLASSES) * gap / HOUR
    mean = (endings.sum(axis=1) + 1) / (hours.sum(axis=1) + 1)
    rates = (endings + 1) / (hours + 1 / mean[:, None])
    return Prior(tuple(rates[0].tolist()), tuple(rates[1].tolist()))


def _ages(up: Flags, gap: int) -> Ints:
    """How long the spell of each tick has lasted."""
    ticks = np.arange(up.size)
    begins = np.concatenate(([True], up[1:] != up[:-1]))
    ages: Ints = (ticks - np.maximum.accumulate(np.where(begins, ticks, 0))) * gap
    return ages


def _ends(up: Flags) -> Flags:
    """Ticks that are the last of their spell; whether the history's last one is, nobody knows yet."""
    return np.concatenate((up[1:] != up[:-1], [False]))


def _factors(here: Flags, age_class: Ints, gap: int, rates: Floats, forget: float) -> Floats:
    """The factors of a side at each tick, for young and for old spells, from the ticks before it."""
    endings = (here & _ends(here)).astype(np.float64)
    expected = np.where(here, rates[age_class] * gap / HOUR, 0.0)
    overall = _mean(SIDE_STRENGTH, 1.0, endings, expected, forget)
    young = age_class < OLD_FROM
    return np.array([_mean(AGE_STRENGTH, overall, endings * m, expected * m, forget) for m in (young, ~young)])


def _mean(strength: float, about: Floats | float, endings: Floats, expected: Floats, forget: float) -> Floats:
    seen = strength * about + _remembered(endings, forget)
    found: Floats = seen / (strength + _remembered(expected, forget))
    return found


def _remembered(values: Floats, forget: float) -> Floats:
    """At each tick the sum of the values before it, each weighted by `forget` to the power of its age in ticks.

    Summed in stretches over which the weights stay within floating-point range.
    """
    stretch = values.size if forget >= 1 else min(values.size, max(1, int(-200 / np.log(forget))))
    found, carried = np.empty(values.size), 0.0
    for begin in range(0, values.size, stretch):
        part = values[begin : begin + stretch]
        weights = forget ** np.arange(part.size + 1)
        sums = (carried + np.concatenate(([0.0], np.cumsum(part / weights[:-1])))) * weights
        found[begin : begin + part.size], carried = sums[:-1], sums[-1]
    return found
