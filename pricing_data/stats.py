"""`MarketStats`: statistics of one market's history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pricing_data.catalog import Catalog, OnDemandPrice
from pricing_data.errors import UnknownPrice
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import DAY, HOUR, SECOND

# A spike is a rise above this multiple of the median price.
SPIKE_FACTOR = 2
# A price above either limit is an outlier: more likely a recording error than a market price.
OUTLIER_MEDIANS = 20
OUTLIER_ON_DEMANDS = 10
_UNITS = (100_000, 1)
_MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class MarketStats:
    """Prices in nano-dollars per hour, times in microseconds UTC, means and medians weighted by observed time.

    `coverage` is the observed share of the time from `first` to `last`; nothing counts the rest.
    `hours_above_on_demand` and `discount` are None where no on-demand price is known.
    """

    market: Market
    events: int
    first: int
    last: int
    price_now: int
    lowest: int
    highest: int
    mean: float
    median: int
    on_demand: OnDemandPrice | None
    changes_per_day: float
    spikes_per_day: float
    hours_above_on_demand: float | None
    outliers: int
    coverage: float
    observed: int

    @property
    def discount(self) -> float | None:
        """1 - mean price / on-demand price; negative where the spot price is higher."""
        return 1 - self.mean / self.on_demand.price if self.on_demand else None

    def age_seconds(self, now: int) -> float:
        """Time since the last event."""
        return (now - self.last) / SECOND


def describe(series: PriceSeries, catalog: Catalog) -> MarketStats:
    """The statistics of a market over its observed time."""
    on_demand = _on_demand(series, catalog)
    median = _time_weighted_median(series)
    days = max(series.observed / DAY, 1 / 24)
    return MarketStats(
        market=series.market,
        events=len(series) - series.confirmed,
        first=series.first,
        last=series.last,
        price_now=int(series.prices[-1]),
        lowest=int(series.prices.min()),
        highest=int(series.prices.max()),
        mean=series.time_weighted_mean(),
        median=median,
        on_demand=on_demand,
        changes_per_day=series.changes / days,
        spikes_per_day=_rises_above(series.prices, SPIKE_FACTOR * median) / days,
        hours_above_on_demand=series.seconds_above(on_demand.price) * SECOND / HOUR if on_demand else None,
        outliers=int(np.count_nonzero(series.prices > _outlier_limit(median, on_demand))),
        coverage=series.coverage,
        observed=series.observed,
    )


def _on_demand(series: PriceSeries, catalog: Catalog) -> OnDemandPrice | None:
    try:
        return catalog.on_demand(series.market, series.last)
    except UnknownPrice:
        return None


def _time_weighted_median(series: PriceSeries) -> int:
    """The price that the market was at or below for half of the observed time."""
    held = series.held
    if not held.any():
        return int(series.prices[-1])
    prices = series.prices[:-1]
    lowest, unit = int(prices.min()), next(unit for unit in _UNITS if not np.any(prices % unit))
    steps = (prices - lowest) // unit
    if int(steps.max()) <= _MOST_STEPS * prices.size:
        # Prices on a grid: counting the time at each step takes less than sorting.
        spent = np.cumsum(np.bincount(steps, weights=held))
        return lowest + unit * int(np.searchsorted(spent, spent[-1] / 2))
    order = np.argsort(prices)
    spent = np.cumsum(held[order])
    return int(prices[order[np.searchsorted(spent, spent[-1] / 2)]])


def _rises_above(prices: Ints, limit: int) -> int:
    above = prices > limit
    return int(np.count_nonzero(above[1:] & ~above[:-1]))


def _outlier_limit(median: int, on_demand: OnDemandPrice | None) -> int:
    limits = [OUTLIER_MEDIANS * median]
    if on_demand is not None:
        limits.append(OUTLIER_ON_DEMANDS * on_demand.price)
    return min(limits)
