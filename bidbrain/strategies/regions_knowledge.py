"""How long spot lasts and stays away in each zone, learned from tries and machine lives.

The older a spell, up or down, the less often it ends: a prior gives endings per hour by age
(decision 4), and each zone corrects the prior by a factor for each side, with a Gamma prior on the
factor. Capacity returns to the zones of a region together, so the other zones of a region count in
part for down spells; for up spells they tell hardly anything. Times are in hours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from bidbrain.arrays import Floats, Ints
from bidbrain.strategies.deadline_spells import AGES, PUBLIC_PRIOR
from pricing_data.units import HOUR

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
