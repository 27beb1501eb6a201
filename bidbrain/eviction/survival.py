"""Lifetimes of machines with censoring: eviction rates by market and age.

A life that its user ended, or that was still running when observation ended, is censored: the
machine lived at least that long. Leaving such lives out, or counting them as evictions, makes every
machine look short-lived.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Bools, Floats
from pricing_data.availability import Lifetime

_ROUNDS = 20
"""Rates of markets and factors of ages, each from the other, hardly change any more after this many
rounds."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """Observed evictions and machine-hours; both add up.

    Where the rate depends on a machine's age, the hours are those at the mean rate that were as
    risky.
    """

    evictions: float = 0.0
    hours: float = 0.0

    def __str__(self) -> str:
        return f"{self.evictions:.3g} evictions in {self.hours:,.3g} machine-hours"

    def __add__(self, other: Exposure) -> Exposure:
        return Exposure(self.evictions + other.evictions, self.hours + other.hours)

    def scaled(self, weight: float) -> Exposure:
        """This rate with `weight` times the evidence."""
        return Exposure(self.evictions * weight, self.hours * weight)


NOTHING = Exposure()


@dataclass(frozen=True, slots=True)
class AgeProfile:
    """How a machine's eviction rate changes with its age, relative to the mean rate.

    From `ages[i]` hours on (the first is 0) the rate is `factors[i]` times the mean.
    """

    ages: tuple[float, ...] = (0.0,)
    factors: tuple[float, ...] = (1.0,)

    @classmethod
    def of(cls, lives: Iterable[Lifetime], ages: tuple[float, ...], weight: float) -> AgeProfile:
        """The profile over bands that begin at `ages`; each is shrunk towards the mean rate with
        the weight of `weight` evictions.

        Each market has a rate of its own: old machines are mostly from calm ones, which does not
        make age calm.
        """
        groups = by_market(lives).values()
        rows = [_by_band(*_columns(known), np.array(ages)) for known in groups]
        # Machines that were all lost the moment they started have no age.
        rows = [(ended, watched) for ended, watched in rows if watched.any()]
        totals = (ended.sum() for ended, _ in rows)
        if not sum(totals):
            return AGELESS

        evictions, watched = (np.array(column) for column in zip(*rows, strict=True))
        factors = np.ones(len(ages))
        for _ in range(_ROUNDS):
            rates = evictions.sum(axis=1) / (watched @ factors)
            seen = evictions.sum(axis=0)
            evicted = seen + weight
            expected = rates @ watched + weight
            factors = evicted / expected
            # Weighted by observed hours the factors average 1, so that the mean rate keeps its
            # meaning.
            weighed = watched.sum(axis=0) @ factors
            factors *= watched.sum() / float(weighed)

        return cls(ages, tuple(factors.tolist()))

    def mean_hours(self, age: float, hours: float) -> float:
        """The number of hours at the mean rate that are as risky as `hours` from an age on."""
        begin = np.array(self.ages)
        end = np.append(begin[1:], np.inf)
        until = np.minimum(end, age + hours)
        begun = np.maximum(begin, age)
        inside = np.clip(until - begun, 0, None)
        return float(inside @ np.array(self.factors))


AGELESS = AgeProfile()
"""The eviction rate is the same at every age."""


def exposure_of_lives(lives: Iterable[Lifetime], ages: AgeProfile = AGELESS) -> Exposure:
    """Evictions and machine-hours of lives; a censored life adds hours but no eviction.

    Lives that ended young saw little but the rate of young machines: their hours count as `ages`
    has it.
    """
    hours, ended = _columns(lives)
    _, watched = _by_band(hours, ended, np.array(ages.ages))
    weighted = watched @ np.array(ages.factors)
    return Exposure(float(ended.sum()), float(weighted))


def by_market(lives: Iterable[Lifetime]) -> dict[tuple[str, str, str], list[Lifetime]]:
    """Lives by cloud, zone and instance type."""
    groups: dict[tuple[str, str, str], list[Lifetime]] = {}
    for life in lives:
        group = groups.setdefault((life.cloud, life.zone, life.instance_type), [])
        group.append(life)
    return groups


def _by_band(hours: Floats, ended: Bools, ages: Floats) -> tuple[Floats, Floats]:
    end = np.append(ages[1:], np.inf)
    until = np.minimum(hours[:, None], end)
    watched = np.clip(until - ages, 0, None).sum(axis=0)
    band = np.searchsorted(ages, hours[ended], side="right") - 1
    counts = np.bincount(band, minlength=ages.size).astype(np.float64)
    return counts, watched


def _columns(lives: Iterable[Lifetime]) -> tuple[Floats, Bools]:
    known = list(lives)
    hours_of_lives = [life.seconds / 3600 for life in known]
    hours = np.array(hours_of_lives, dtype=np.float64)
    preempted = np.array([life.preempted for life in known], dtype=np.bool_)
    return hours, preempted
