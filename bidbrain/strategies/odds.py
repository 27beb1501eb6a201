"""`Odds`: a market's eviction probability per paid hour by bid, precomputed for use in every decision."""

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from bidbrain.eviction.crossing import CrossingHistory
from pricing_data.series import PriceSeries
from pricing_data.units import HOUR, NANOS_PER_DOLLAR

# Bid deltas between the papers' bounds, [$0.0001, $0.4] (Harlap 4.3.2).
LOWEST_DELTA, HIGHEST_DELTA = NANOS_PER_DOLLAR // 10_000, NANOS_PER_DOLLAR * 4 // 10
# Resolution of the distance between bid and price; beyond the furthest only rare spikes remain.
_DISTANCES = 160
_FURTHEST = 10 * HIGHEST_DELTA


@dataclass(frozen=True, slots=True)
class Odds:
    """For ascending distances of a bid above the price: the probability of an eviction within an hour, and the median
    share of that hour that passes before it."""

    distances: tuple[int, ...]
    betas: tuple[float, ...]
    medians: tuple[float, ...]

    @classmethod
    def of(cls, history: PriceSeries) -> "Odds":
        crossings = CrossingHistory(history, HOUR)
        distances = np.unique(np.geomspace(LOWEST_DELTA, _FURTHEST, _DISTANCES).round().astype(np.int64))
        outcomes = crossings.at_deltas(distances)
        medians = (HOUR if crossing.median_time is None else crossing.median_time for crossing in outcomes)
        return cls(
            tuple(distances.tolist()),
            tuple(crossing.share for crossing in outcomes),
            tuple(median / HOUR for median in medians),
        )

    def at(self, distance: int) -> tuple[float, float]:
        """beta and median at the largest known distance not above this one; beta is 1 for a bid below the price."""
        if distance < 0:
            return 1.0, 0.0
        at = max(bisect_right(self.distances, distance) - 1, 0)
        return self.betas[at], self.medians[at]


def bid_deltas(count: int) -> tuple[int, ...]:
    """Logarithmically spaced bid deltas between the papers' bounds."""
    return tuple(np.geomspace(LOWEST_DELTA, HIGHEST_DELTA, count).round().astype(np.int64).tolist())
