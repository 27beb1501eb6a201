"""What tries, lives and probes have shown of each zone, and what follows for how long spot lasts or stays away.

The older a spell, up or down, the less often it ends: a prior gives endings per hour by age (decision 4), and each zone
corrects it by a factor a side, with a Gamma prior on the factor. Zones of one region run dry together, so the others of
its region count in part. Times are in hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import exp
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bidbrain.strategies.deadline_spells import AGES, Prior
from pricing_data.units import HOUR

Floats = NDArray[np.float64]

STRENGTH: Final = 3.0
PEER_WEIGHT: Final = 0.25
UNKNOWN_UP: Final = 0.5
FIRST_AGE: Final = 2.0
"""A spell that is there when a zone is first seen is old already: long spells are met more often than short ones."""
_LONG: Final = 0.5

# Endings per hour by age class, pooled over the single-node AWS traces of October 2022 and April 2023;
# `python -m bench.deadline_lab prior` prints them.
_DOWN = "2.87 1.5 1.08 .98 1.03 .678 .763 .402 .337 .347 .306 .315 .276 .163 .129 .137 .0972 .0169"
_UP = "2.05 1.29 .939 .919 .674 .611 .512 .443 .368 .356 .251 .264 .184 .189 .164 .12 .121 .0605"
REGIONS_PRIOR: Final = Prior(tuple(map(float, _DOWN.split())), tuple(map(float, _UP.split())))


class ZoneHazard:
    """Endings of spells by their age, and summed from age 0."""

    def __init__(self, rates: Sequence[float]) -> None:
        self._ages: Floats = AGES / HOUR
        self._rates = np.array(rates)
        self._sums = np.concatenate(([0.0], np.cumsum(self._rates[:-1] * np.diff(self._ages))))

    def rate(self, age: float) -> float:
        """Endings per hour at an age."""
        return float(self._rates[self._ages.searchsorted(age, side="right") - 1])

    def until(self, ages: Floats) -> Floats:
        """Expected endings from age 0 on."""
        at = self._ages.searchsorted(ages, side="right") - 1
        found: Floats = self._sums[at] + self._rates[at] * (ages - self._ages[at])
        return found

    def between(self, young: float, old: float) -> float:
        """Expected endings from one age to another."""
        first, last = self.until(np.array([young, old]))
        return float(last - first)


HAZARDS: Final = (ZoneHazard(REGIONS_PRIOR.down), ZoneHazard(REGIONS_PRIOR.up))
"""Of down and of up spells."""


@dataclass(frozen=True, slots=True)
class ZoneKnowledge:
    """One zone: the spell that was last seen, since when, and endings seen and expected of both kinds of spells.

    `up` is None until the zone is seen for the first time.
    """

    up: bool | None = None
    since: float = 0.0
    seen: float = 0.0
    endings: tuple[float, float] = (0.0, 0.0)
    expected: tuple[float, float] = (0.0, 0.0)

    def observed(self, now: float, *, up: bool) -> ZoneKnowledge:
        """After a try, a probe, or a step of a machine's life. A change happened somewhere since the last look."""
        if self.up is None:
            return replace(self, up=up, since=now - FIRST_AGE, seen=now)
        passed = HAZARDS[self.up].between(self.seen - self.since, now - self.since)
        expected = _added(self.expected, self.up, passed)
        if up is self.up:
            return replace(self, seen=now, expected=expected)
        ended = _added(self.endings, self.up, 1.0)
        return ZoneKnowledge(up, (now + self.seen) / 2, now, ended, expected)

    def age(self, now: float, *, up: bool) -> float:
        """Age of a spell that is up or down now."""
        return now - self.since if self.up is up else 0.0


def _added(both: tuple[float, float], side: bool, more: float) -> tuple[float, float]:  # an index
    return (both[0], both[1] + more) if side else (both[0] + more, both[1])


@dataclass(frozen=True, slots=True)
class Known:
    """All zones, and the zones that share a region with each."""

    zones: tuple[ZoneKnowledge, ...]
    peers: tuple[tuple[int, ...], ...]
    changes: int = field(default=0)

    @classmethod
    def nothing(cls, regions: Sequence[str]) -> Known:
        """Before the first look."""
        peers = tuple(
            tuple(other for other, name in enumerate(regions) if name == region and other != zone)
            for zone, region in enumerate(regions)
        )
        return cls(tuple(ZoneKnowledge() for _ in regions), peers)

    def observed(self, zone: int, now: float, *, up: bool) -> Known:
        """With one more look at a zone."""
        before = self.zones[zone]
        zones = (*self.zones[:zone], before.observed(now, up=up), *self.zones[zone + 1 :])
        return Known(zones, self.peers, self.changes + (before.up is not None and before.up is not up))

    def factor(self, zone: int, *, up: bool) -> float:
        """How much more often spells of a zone end than the prior says."""
        endings = expected = STRENGTH
        for one, weight in ((zone, 1.0), *((peer, PEER_WEIGHT) for peer in self.peers[zone])):
            endings += weight * self.zones[one].endings[up]
            expected += weight * self.zones[one].expected[up]
        return endings / expected

    def chance(self, zone: int, now: float) -> float:
        """The probability that spot is up in a zone."""
        known = self.zones[zone]
        if known.up is None:
            return UNKNOWN_UP
        leaves, returns = (
            HAZARDS[up].rate(now - known.since if known.up is up else _LONG) * self.factor(zone, up=up)
            for up in (True, False)
        )
        lasting = returns / (leaves + returns)
        return lasting + (known.up - lasting) * exp(-(leaves + returns) * (now - known.seen))

    def survival(self, zone: int, now: float, hours: Floats) -> Floats:
        """The probability that a machine which runs in a zone now, or starts there, still runs after some hours."""
        age = self.zones[zone].age(now, up=True)
        lost = HAZARDS[True].until(age + hours) - HAZARDS[True].until(np.array([age]))
        return np.exp(-self.factor(zone, up=True) * lost)
