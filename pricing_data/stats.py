"""`MarketStats`: statistics of one market's history."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
_UNIT = 100_000
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
    on_demand = on_demand_of(series.market, series.last, catalog)
    spent, prices = _TimeAtPrices.of(series), series.seen
    observed, median, highest = int(spent.total), spent.median, int(prices.max())
    days = max(observed / DAY, 1 / 24)
    spike, outlier = SPIKE_FACTOR * median, _outlier_limit(median, on_demand)
    return MarketStats(
        market=series.market,
        events=len(series) - series.confirmed,
        first=series.first,
        last=series.last,
        price_now=int(series.prices[-1]),
        lowest=int(prices.min()),
        highest=highest,
        mean=spent.mean,
        median=median,
        on_demand=on_demand,
        changes_per_day=series.changes / days,
        spikes_per_day=_rises_above(prices, spike) / days if highest > spike else 0.0,
        hours_above_on_demand=series.seconds_above(on_demand.price) * SECOND / HOUR if on_demand else None,
        outliers=int(np.count_nonzero(prices > outlier)) if highest > outlier else 0,
        coverage=observed / (series.last - series.first) if series.last > series.first else 1.0,
        observed=observed,
    )


@dataclass(frozen=True, slots=True)
class _TimeAtPrices:
    """The observed time at each price, in ascending order; exact, because whole numbers below 2**53 are."""

    prices: Ints
    time: NDArray[np.float64]

    @classmethod
    def of(cls, series: PriceSeries) -> "_TimeAtPrices":
        held, prices = series.held, series.prices[:-1]
        if not held.any():
            return cls(series.prices[-1:], np.zeros(1))
        steps = prices // _UNIT
        unit = _UNIT if np.array_equal(steps * _UNIT, prices) else 1
        steps = steps if unit == _UNIT else prices
        lowest = int(steps.min())
        if int(steps.max()) - lowest <= _MOST_STEPS * steps.size:
            # Prices on a grid: counting the time at each step takes less than sorting.
            spent = np.bincount(steps - lowest, weights=held)
            return cls((lowest + np.arange(spent.size)) * unit, spent.astype(np.float64, copy=False))
        order = np.argsort(prices)
        return cls(prices[order], held[order].astype(np.float64))

    @property
    def total(self) -> float:
        return float(self.time.sum())

    @property
    def mean(self) -> float:
        """The mean price; without observed time, the last one."""
        return float(self.prices @ self.time) / self.total if self.total else float(self.prices[-1])

    @property
    def median(self) -> int:
        """The price that the market was at or below for half of the time."""
        until = np.cumsum(self.time)
        return int(self.prices[np.searchsorted(until, until[-1] / 2)])


def on_demand_of(market: Market, at: int, catalog: Catalog) -> OnDemandPrice | None:
    """The on-demand price nearest to a time; None if none is known."""
    try:
        return catalog.on_demand(market, at)
    except UnknownPrice:
        return None


def _rises_above(prices: Ints, limit: int) -> int:
    above = prices > limit
    return int(np.count_nonzero(above[1:] & ~above[:-1]))


def _outlier_limit(median: int, on_demand: OnDemandPrice | None) -> int:
    limits = [OUTLIER_MEDIANS * median]
    if on_demand is not None:
        limits.append(OUTLIER_ON_DEMANDS * on_demand.price)
    return min(limits)
