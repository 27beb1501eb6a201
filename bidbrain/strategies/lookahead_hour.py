"""`NextHour`: what a machine can expect of the next hour, by how far its bid is above the price.

Everything follows from the survival curve S(t) over the hour: the share of past moments from which such a bid would
have held for t (price crossing), times the survival of capacity evictions. The expected time alive is its integral, and
the expected useful time its integral after the start-up. Eq. 4.2 of Harlap uses the median time to eviction instead of
the integral and subtracts the start-up; but a machine evicted while starting up loses no work by it, and bids close to
the price are often evicted then.
"""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from bidbrain.arrays import Floats
from bidbrain.billing import BillingRule, expected_seconds
from bidbrain.eviction.crossing import CrossingHistory
from bidbrain.eviction.hazard import Hazard
from bidbrain.strategies.odds import HIGHEST_DELTA, LOWEST_DELTA
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import HOUR, MINUTE

# A bid at the price itself is allowed too: a machine is evicted when the price is strictly above its bid.
DISTANCES: Ints = np.append(0, np.geomspace(LOWEST_DELTA, 10 * HIGHEST_DELTA, 40).round()).astype(np.int64)
"""Distances of a bid above the price, ascending."""
_DISTANCES: list[int] = DISTANCES.tolist()

# Bids close to the price are mostly evicted in the first minutes.
_AGES: Ints = np.array([0, 1, 2, 3, 4, 5, 7, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60], dtype=np.int64) * MINUTE


@dataclass(frozen=True, slots=True, eq=False)
class NextHour:
    """For each of `DISTANCES`: the probability of surviving the hour, hours alive, useful hours of a machine that
    starts up first, and billed hours of a new machine and of one that has run before."""

    survival: Floats
    alive: Floats
    useful: Floats
    paid_new: Floats
    paid_old: Floats

    @classmethod
    def of(cls, history: PriceSeries, billing: BillingRule, startup_hours: float, hazard: Hazard | None) -> "NextHour":
        """The figures of a history, under a billing rule and, where one is known, a hazard of capacity evictions."""
        return hour_of(survival_curve(history) * _spared(hazard), billing, startup_hours)


def hour_of(curve: Floats, billing: BillingRule, startup_hours: float) -> NextHour:
    """The values of survival curves, one row for each of `DISTANCES`."""
    return NextHour(
        survival=curve[:, -1],
        alive=_area(curve, 0.0),
        useful=_area(curve, startup_hours),
        paid_new=_paid(billing, curve, 0),
        paid_old=_paid(billing, curve, HOUR),
    )


def place_of(distance: int) -> int:
    """Index of the largest of `DISTANCES` that is not above this one."""
    return max(bisect_right(_DISTANCES, distance) - 1, 0)


def survival_curve(history: PriceSeries) -> Floats:
    """For each distance (rows) the share of starts that hold to each age."""
    held = [1 - CrossingHistory(history, int(age)).betas(DISTANCES) for age in _AGES[1:]]
    # Each age counts the starts whose window the history still covers, so tiny rises can occur.
    curve: Floats = np.minimum.accumulate(np.column_stack([np.ones(DISTANCES.size), *held]), axis=1)
    return curve


def _spared(hazard: Hazard | None) -> Floats:
    """The share of machines that capacity evictions leave alive at each age."""
    risks = [0.0 if hazard is None else hazard.cumulative(0, float(age) / HOUR)[0] for age in _AGES]
    spared: Floats = np.exp(-np.array(risks))
    return spared


def _area(curve: Floats, since_hours: float) -> Floats:
    """The integral of each curve from an age to the end of the hour, in hours."""
    since = min(since_hours, 1.0)
    hours = np.unique(np.append(_AGES / HOUR, since))
    rows = np.array([np.interp(hours, _AGES / HOUR, row) for row in curve])
    area: Floats = np.trapezoid(rows[:, hours >= since], hours[hours >= since], axis=1)
    return area


def _paid(billing: BillingRule, curve: Floats, age: int) -> Floats:
    """Expected billed hours of the next hour for machines of an age."""

    def survival(ages: Floats) -> Floats:
        return np.column_stack([np.interp(ages - age, _AGES, row) for row in curve])

    return expected_seconds(billing, age, HOUR, survival) / 3600
