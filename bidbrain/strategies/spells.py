"""How long spot capacity lasts and stays away: a prior, updated with a market's history.

Availability comes in spells, up or down. The probability that a spell ends within the next minutes
falls steeply with its age: capacity that went a minute ago often returns at once, and capacity that
has been gone for a day stays away. The prior is a rate of ending per age class. Each market
multiplies these rates by its own factors, one for young and one for old spells, up and down. With a
Gamma prior on a factor its posterior mean is

    (strength + endings seen) / (strength + endings the prior expected over the same time)

where observations lose half their weight every `HALF_LIFE`, because markets drift.

Of several zones, `Known` has what was learned from tries and machine lives: each zone corrects the
prior by one factor for each side. Capacity returns to the zones of a region together, so the other
zones of a region count in part for down spells; for up spells they tell hardly anything. Its times
are in hours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bidbrain.arrays import Bools, Floats, Ints
from pricing_data.units import DAY, HOUR, MINUTE

# Lower bounds of the age classes. Ten minutes apart at first, about how often the public traces
# were sampled.
AGES: Final = (
    10 * MINUTE * np.array([0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 144])
)
CLASSES: Final = AGES.size
OLD_FROM: Final = int(np.searchsorted(AGES, HOUR))
HALF_LIFE: Final = 2 * DAY
SIDE_STRENGTH: Final = 5.0
AGE_STRENGTH: Final = 10.0
# Factors are rounded to powers of this, so that a few dozen plans serve every market at every time.
FACTOR_STEP: Final = 1.5
MAX_STEPS: Final = 5


@dataclass(frozen=True, slots=True)
class Prior:
    """Endings per hour of down and of up spells, by age class."""

    down: tuple[float, ...]
    up: tuple[float, ...]

    def rates(self, factors: Sequence[float] = (1.0, 1.0, 1.0, 1.0)) -> Floats:
        """Endings per hour, down and up by class, under factors: down young, down old, up young, up
        old.
        """
        by_side = np.array([self.down, self.up])
        young_factors = np.array(factors[::2])
        by_side[:, :OLD_FROM] *= young_factors[:, None]
        old_factors = factors[1::2]
        by_side[:, OLD_FROM:] *= np.array(old_factors)[:, None]
        return by_side


# Endings per hour by age class over the single-node AWS traces of October 2022 and April 2023, each
# zone with a factor of its own: pooled, old spells would be those of the zones whose spells hardly
# end, and the factor would count these zones twice. `python -m bench.deadline_prior` prints them.
_DOWN = "2.99 1.61 1.19 1.09 1.16 .768 .878 .465 .391 .407 .366 .377 .332 .199 .163 .179 .133 .0268"
_UP = "1.83 1.2 .897 .891 .669 .616 .528 .462 .387 .385 .281 .301 .217 .229 .2 .147 .153 .0658"
PUBLIC_PRIOR: Final = Prior(tuple(map(float, _DOWN.split())), tuple(map(float, _UP.split())))


@dataclass(frozen=True, slots=True, eq=False)
class SpellOutlook:
    """The knowledge of a market at each tick, from that tick and earlier ones. Ticks are `gap`
    microseconds apart, from `begin` on.

    `state` combines side and age class: 0 to CLASSES - 1 is down, from CLASSES on up. `steps` has
    the four factors as rounded powers of FACTOR_STEP.
    """

    state: Ints
    steps: Ints
    gap: int
    begin: int = 0

    def at(self, now: int) -> "SpotSpell":
        """The spell at a moment, which depends only on what came before it; after the last tick,
        that of the last.
        """
        passed = (now - self.begin) // self.gap
        tick = min(passed, self.state.size - 1)
        state = int(self.state[tick])
        listed = self.steps[tick].tolist()
        steps = tuple(listed)
        return SpotSpell(state, steps)


@dataclass(frozen=True, slots=True)
class SpotSpell:
    """The present spell of a market at one moment, as `SpellOutlook` has it for many."""

    state: int
    steps: tuple[int, ...] = (0, 0, 0, 0)

    @property
    def up(self) -> bool:
        return self.state >= CLASSES

    @classmethod
    def begun(cls, *, up: bool) -> "SpotSpell":
        """A spell that has just begun, in a market without a record."""
        return cls(CLASSES * up)


def outlook(up: Bools, gap: int, prior: Prior, begin: int = 0) -> SpellOutlook:
    """Spells and factors at each tick of a history whose ticks are `gap` microseconds apart.

    A spell's age counts from the first tick that shows it. The first spell began before the
    history; its age counts from the history's start, because the true start is unknown.
    """
    ages = spell_ages(up, gap)
    place = np.searchsorted(AGES, ages, side="right")
    age_class = place - 1
    forget = 0.5 ** (gap / HALF_LIFE)
    young = age_class < OLD_FROM
    factors = []

    # The factors of each side at each tick, for young and for old spells, from earlier ticks.
    for side in (0, 1):
        here = up == bool(side)
        endings = (here & spell_ends(here)).astype(np.float64)
        endings_expected = prior.rates()[side][age_class] * gap
        expected = np.where(here, endings_expected / HOUR, 0.0)
        overall = _mean(SIDE_STRENGTH, 1.0, endings, expected, forget)
        for among in (young, ~young):
            mean = _mean(AGE_STRENGTH, overall, endings * among, expected * among, forget)
            factors.append(mean)

    joined = np.stack(factors)
    logs = np.log(joined)
    whole_steps = np.rint(logs / np.log(FACTOR_STEP))
    steps = whole_steps.astype(np.int64)

    states = age_class + CLASSES * up
    clipped = np.clip(steps, -MAX_STEPS, MAX_STEPS)
    return SpellOutlook(states, clipped.T, gap, begin)


def spell_ages(up: Bools, gap: int) -> Ints:
    """Age of each tick's spell, in microseconds."""
    ticks = np.arange(up.size)
    changes = up[1:] != up[:-1]
    begins = np.concatenate(([True], changes))
    at_begins = np.where(begins, ticks, 0)
    began = np.maximum.accumulate(at_begins)
    ages: Ints = (ticks - began) * gap
    return ages


def spell_ends(up: Bools) -> Bools:
    """Ticks that are the last of their spell; for the history's last tick this is not known, so it
    is False.
    """
    changes = up[1:] != up[:-1]
    return np.concatenate((changes, [False]))


def _mean(
    strength: float, about: Floats | float, endings: Floats, expected: Floats, forget: float
) -> Floats:
    seen = strength * about + _remembered(endings, forget)
    mean: Floats = seen / (strength + _remembered(expected, forget))
    return mean


def _remembered(values: Floats, forget: float) -> Floats:
    """At each tick the sum of earlier values, each weighted by `forget` to the power of its age in
    ticks.

    Summed in stretches over which the weights stay within floating-point range.
    """
    stretch = values.size if forget >= 1 else min(values.size, max(1, int(-200 / np.log(forget))))
    sums_before = np.empty(values.size)
    carried = 0.0
    for begin in range(0, values.size, stretch):
        part = values[begin : begin + stretch]
        weights = forget ** np.arange(part.size + 1)
        weighed = part / weights[:-1]
        summed = np.cumsum(weighed)
        before = np.concatenate(([0.0], summed))
        sums = (carried + before) * weights
        all_but_last = sums[:-1]
        sums_before[begin : begin + part.size], carried = all_but_last, sums[-1]
    return sums_before


UNSEEN: Final = -1

# For down and for up spells; `python -m bench.regions_prior` prints what is likely on the traces of
# the prior.
STRENGTH: Final = (5.0, 7.0)
PEER_WEIGHT: Final = (0.2, 0.0)
UNKNOWN_UP: Final = 0.5
_HOPEFUL: Final = 0.25
FIRST_AGE: Final = 2.0
"""The age of a spell when its zone is first seen: long spells are met more often than short
ones."""
_LONG: Final = 0.5


class ZoneHazard:
    """Endings of spells by their age, and summed from age 0."""

    def __init__(self, rates: Sequence[float]) -> None:
        self._ages: Floats = AGES / HOUR
        self._rates = np.array(rates)
        self._sums = np.concatenate(([0.0], np.cumsum(self._rates[:-1] * np.diff(self._ages))))

    def rate(self, age: Floats | float) -> Floats:
        """Endings per hour at an age."""
        rates: Floats = self._rates[self._ages.searchsorted(age, side="right") - 1]
        return rates

    def until(self, ages: Floats | float) -> Floats:
        """Expected endings from age 0 on."""
        at = self._ages.searchsorted(ages, side="right") - 1
        endings: Floats = self._sums[at] + self._rates[at] * (ages - self._ages[at])
        return endings

    def between(self, young: float, old: float) -> float:
        """Expected endings from one age to another."""
        return float(self.until(old) - self.until(young))


HAZARDS: Final = (ZoneHazard(PUBLIC_PRIOR.down), ZoneHazard(PUBLIC_PRIOR.up))
"""The hazards of down and of up spells."""


@dataclass(frozen=True, eq=False)
class Known:
    """All zones: the spell that was last seen (`up` is 0, 1, or `UNSEEN`), since when, and when it
    was last seen.

    `endings` and `expected` are of down and of up spells (rows), by zone. `region` numbers the
    regions. `changes` counts the spells that were seen to end.
    """

    region: Ints
    up: Ints
    since: Floats
    seen: Floats
    endings: Floats
    expected: Floats
    changes: int = 0

    @classmethod
    def nothing(cls, regions: Sequence[str]) -> "Known":
        """The knowledge before the first look."""
        numbers = {name: number for number, name in enumerate(dict.fromkeys(regions))}
        count = len(regions)
        none = np.zeros(len(regions))
        region = np.array([numbers[name] for name in regions], dtype=np.int64)
        return cls(
            region, np.full(count, UNSEEN), none, none, np.zeros((2, count)), np.zeros((2, count))
        )

    def observed(self, zones: Sequence[int], now: float, up: Sequence[bool]) -> "Known":
        """The knowledge with one more look at some zones, each of them once: a try, or a step of a
        machine's life.

        A change is taken to have happened halfway since the last look.
        """
        at = np.array(zones)
        side = np.array(up, dtype=np.int64)
        before = self.up[at]
        since = self.since[at]
        last = self.seen[at]
        unseen = before == UNSEEN
        expected = self.expected.copy()
        for number, hazard in enumerate(HAZARDS):
            of_side = np.flatnonzero(before == number)
            young = last[of_side] - since[of_side]
            old = now - since[of_side]
            expected[number, at[of_side]] += hazard.until(old) - hazard.until(young)

        ended = ~unseen & (before != side)
        endings = self.endings.copy()
        new_since = np.where(ended, (now + last) / 2, since)
        endings[before[ended], at[ended]] += 1.0
        return Known(
            self.region,
            up=_with(self.up, at, side),
            since=_with(self.since, at, np.where(unseen, now - FIRST_AGE, new_since)),
            seen=_with(self.seen, at, now),
            endings=endings,
            expected=expected,
            changes=self.changes + int(ended.sum()),
        )

    def ages(self, now: float, *, up: bool) -> Floats:
        """Ages of spells that are up or down now, by zone."""
        return np.where(self.up == int(up), now - self.since, 0.0)

    @cached_property
    def factors(self) -> Floats:
        """How much more often down and up spells of each zone end than the prior says: for down
        spells what is expected, for up spells the lower quartile. A zone that is thought better
        than it is shows that soon; one that is thought worse is never tried again."""
        from scipy.special import gammaincinv

        strength = np.array(STRENGTH)[:, None]
        peers = np.array(PEER_WEIGHT)[:, None]
        shared = []
        for counts in (self.endings, self.expected):
            of_region = np.stack([np.bincount(self.region, row) for row in counts])[:, self.region]
            shared.append(strength + (counts + peers * (of_region - counts)))

        endings, expected = shared
        factors: Floats = np.stack([endings[0], gammaincinv(endings[1], _HOPEFUL)]) / expected
        return factors

    def chances(self, now: float) -> Floats:
        """The probability that spot is up, by zone."""
        returns, leaves = (
            HAZARDS[side].rate(np.where(self.up == side, now - self.since, _LONG))
            * self.factors[side]
            for side in (0, 1)
        )
        lasting = returns / (leaves + returns)
        seen = lasting + (self.up - lasting) * np.exp(-(leaves + returns) * (now - self.seen))
        return np.where(self.up == UNSEEN, UNKNOWN_UP, seen)

    def survivals(self, now: float, hours: Floats) -> Floats:
        """The probability that a machine that runs in a zone now, or starts there, still runs after
        some hours; zones are rows of `hours`, or there is one row for all."""
        age = self.ages(now, up=True)[:, None]
        lost = HAZARDS[True].until(age + hours) - HAZARDS[True].until(age)
        survivals: Floats = np.exp(-self.factors[1][:, None] * lost)
        return survivals


def _with(values: NDArray[Any], zones: Ints, value: float | NDArray[Any]) -> NDArray[Any]:
    changed = values.copy()
    changed[zones] = value
    return changed
