"""`MarketStats`: statistics of one market's history; and the gaps in histories: holes in
observation, seams between downloads, and markets that are not watched any more."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from pricing_data.catalog import Catalog, OnDemandPrice
from pricing_data.errors import UnknownPrice
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries, holes, longest_silence
from pricing_data.units import DAY, HOUR, SECOND

# A spike is a rise above this multiple of the median price.
SPIKE_FACTOR = 2
# A price above either limit is an outlier: more likely a recording error than a market price.
OUTLIER_MEDIANS = 20
OUTLIER_ON_DEMANDS = 10
_UNIT = 100_000
_MAX_STEPS = 8


@dataclass(frozen=True, slots=True)
class MarketStats:
    """Prices in nano-dollars per hour, times in microseconds UTC, means and medians weighted by
    observed time.

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
        if self.on_demand:
            return 1 - self.mean / self.on_demand.price
        return None

    def age_seconds(self, now: int) -> float:
        """Time since the last event."""
        return (now - self.last) / SECOND


def describe(series: PriceSeries, catalog: Catalog) -> MarketStats:
    """The statistics of a market over its observed time."""
    on_demand = on_demand_of(series.market, series.last, catalog)
    levels, time = _time_at_prices(series)
    prices = series.seen
    total = float(time.sum())
    until = np.cumsum(time)

    # The price that the market was at or below for half of the time.
    half = until[-1] / 2
    middle = np.searchsorted(until, half)
    median = int(levels[middle])
    observed = int(total)
    highest = int(prices.max())
    days = max(observed / DAY, 1 / 24)
    spike = SPIKE_FACTOR * median
    outlier = OUTLIER_MEDIANS * median
    if on_demand is not None:
        outlier = min(outlier, OUTLIER_ON_DEMANDS * on_demand.price)
    spikes = 0.0
    if highest > spike:
        above = prices > spike
        rises = above[1:] & ~above[:-1]
        crossings = int(np.count_nonzero(rises))
        spikes = crossings / days

    events = len(series) - series.confirmed
    last_price = series.prices[-1]
    mean = float(levels @ time) / total if total else float(levels[-1])
    changes = series.changes / days
    hours_above = None
    if on_demand:
        hours_above = series.seconds_above(on_demand.price) * SECOND / HOUR
    outliers = 0
    if highest > outlier:
        outliers = int(np.count_nonzero(prices > outlier))
    coverage = 1.0
    if series.last > series.first:
        coverage = observed / (series.last - series.first)
    return MarketStats(
        market=series.market,
        events=events,
        first=series.first,
        last=series.last,
        price_now=int(last_price),
        lowest=int(prices.min()),
        highest=highest,
        mean=mean,
        median=median,
        on_demand=on_demand,
        changes_per_day=changes,
        spikes_per_day=spikes,
        hours_above_on_demand=hours_above,
        outliers=outliers,
        coverage=coverage,
        observed=observed,
    )


def _time_at_prices(series: PriceSeries) -> tuple[Ints, NDArray[np.float64]]:
    """The prices in ascending order, and the observed time at each; exact, because whole numbers
    below 2**53 are.
    """
    held = series.held
    prices = series.prices[:-1]
    if not held.any():
        return series.prices[-1:], np.zeros(1)

    steps = prices // _UNIT
    unit = 1
    if np.array_equal(steps * _UNIT, prices):
        unit = _UNIT
    steps = steps if unit == _UNIT else prices
    lowest = int(steps.min())

    if int(steps.max()) - lowest <= _MAX_STEPS * steps.size:
        # Prices on a grid: counting the time at each step takes less than sorting.
        spent = np.bincount(steps - lowest, weights=held)
        multiples = lowest + np.arange(spent.size)
        seconds = spent.astype(np.float64, copy=False)
        return multiples * unit, seconds

    order = np.argsort(prices)
    return prices[order], held[order].astype(np.float64)


def on_demand_of(market: Market, at: int, catalog: Catalog) -> OnDemandPrice | None:
    """The on-demand price nearest to a time; None if none is known."""
    try:
        return catalog.on_demand(market, at)
    except UnknownPrice:
        return None


# A seam is a time when at least this share of a region's markets was not observed.
_SEAM_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Gap:
    """A market was not observed from `start` to `end`."""

    market: Market
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Seam:
    """At least half of a region's markets were not observed from `start` to `end`: the recording
    stopped.
    """

    cloud: str
    region: str
    start: int
    end: int
    silent: int
    markets: int


@dataclass(frozen=True, slots=True)
class GapReport:
    """All gaps of a set of markets."""

    seams: tuple[Seam, ...]
    gaps: tuple[Gap, ...]
    stale: tuple[Gap, ...]
    """Markets last observed longer ago than is usual for them: until their region's last
    observation."""


def find_gaps(histories: Iterable[PriceSeries], now: int) -> GapReport:
    """The gaps in sorted histories, region by region; `now` is the time that staleness is measured
    against.
    """
    seams: list[Seam] = []
    gaps: list[Gap] = []
    stale: list[Gap] = []
    for (cloud, region), members in groupby(
        histories, key=lambda series: (series.market.cloud, series.market.region)
    ):
        here = list(members)
        gaps_here = [
            Gap(series.market, *hole) for series in here for hole in holes(series.watched or ())
        ]
        newest = max(series.last for series in here)
        gaps += gaps_here

        # The spans in which enough gaps of the region overlap.
        markets = len(here)
        begins = [(gap.start, 1) for gap in gaps_here]
        ends = [(gap.end, -1) for gap in gaps_here]
        silent = most = start = 0
        for time, step in sorted(begins + ends) if markets > 1 else ():
            before = silent
            silent += step
            if before < markets * _SEAM_SHARE <= silent:
                start = time
                most = silent
            elif silent < markets * _SEAM_SHARE <= before:
                seams.append(Seam(cloud, region, start, time, most, markets))
            most = max(most, silent)

        stale += (
            Gap(series.market, series.last, newest)
            for series in here
            if not series.market.is_synthetic and now - series.last > longest_silence(series.times)
        )

    return GapReport(tuple(seams), tuple(gaps), tuple(stale))
