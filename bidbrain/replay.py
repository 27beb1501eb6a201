"""The market replayed: what a price was at a moment, and when machines are taken away.

A machine that holds a bid is taken when the price rises above it. Where a market's capacity is known, machines are
also taken when more are held than there are; where machines live by a hazard, when a drawn life is over.

The backtest and the local provider ask the same replay, so that what the one foretells the other does. The replay
knows the whole history; who decides is shown only what was known at the moment (`price` and `capacity`, never
`evicted_at`, `short_from` or `openings`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, inf, isfinite
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bidbrain.errors import BidBrainError
from bidbrain.eviction.survival import AGELESS, AgeProfile
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import SECOND, format_time

Bools = NDArray[np.bool_]


class UnknownMarketInReplay(BidBrainError):
    """A market is asked about whose history is not replayed."""


class Tape:
    """One market's history, arranged for two frequent questions: the price now, and when it next exceeds a bid."""

    def __init__(self, series: PriceSeries) -> None:
        self.market = series.market
        self.times: list[int] = series.times.tolist()
        self.prices: list[int] = series.prices.tolist()
        self._highest = _block_maxima(series.prices)

    @property
    def first(self) -> int:
        """Where the history begins."""
        return self.times[0]

    @property
    def last(self) -> int:
        """Where the history ends."""
        return self.times[-1]

    def index(self, time: int) -> int:
        """The event that is in force at a time."""
        at = bisect_right(self.times, time) - 1
        if at < 0 or time > self.times[-1]:
            raise BidBrainError(
                f"{self.market} is replayed from {format_time(self.first)} to {format_time(self.last)},"
                f" not at {format_time(time)}; choose a span inside"
            )
        return at

    def price(self, time: int) -> int:
        """The price in force at a time."""
        return self.prices[self.index(time)]

    def first_above(self, bid: int, after: int) -> int | None:
        """The first moment after a time at which the price is strictly above a bid; None if that never comes."""
        return _first_above(self.times, self._highest, bid, after)


class Capacity:
    """How many machines of a market can be held at once: so many from each time on, the first number before it too."""

    def __init__(self, times: Ints, machines: Ints) -> None:
        if times.size == 0 or times.shape != machines.shape or np.any(np.diff(times) <= 0) or np.any(machines < 0):
            raise BidBrainError("a capacity needs increasing times, and at each a number of machines from 0 on")
        self._times: list[int] = times.tolist()
        self._machines: list[int] = machines.tolist()
        self._top = int(machines.max())
        self._missing = _block_maxima(self._top - machines)

    @property
    def openings(self) -> tuple[Ints, Bools]:
        """When the number changes, and whether there is any machine from then on."""
        return np.array(self._times, dtype=np.int64), np.array(self._machines) > 0

    def at(self, time: int) -> int:
        """How many there are at a time."""
        return self._machines[max(bisect_right(self._times, time) - 1, 0)]

    def first_below(self, machines: int, after: int) -> int | None:
        """The first moment after a time at which there are fewer than so many; None if that never comes."""
        return _first_above(self._times, self._missing, self._top - machines, after)


@dataclass(frozen=True, slots=True)
class Mortality:
    """How machines of a market die whatever the price: evictions per hour, and how that varies with age."""

    per_hour: float
    ages: AgeProfile = AGELESS

    def __post_init__(self) -> None:
        if not 0 <= self.per_hour < inf:
            raise BidBrainError(f"a hazard of {self.per_hour:g} evictions an hour is not at least 0 and finite")

    def age_at(self, cumulative: float) -> float:
        """The age in hours at which the cumulative hazard reaches a value; infinite if it never does."""
        begins, factors = np.array(self.ages.ages), np.array(self.ages.factors)
        reached = np.concatenate(([0.0], np.cumsum(np.diff(begins) * factors[:-1]))) * self.per_hour
        band = int(np.searchsorted(reached, cumulative, side="right")) - 1
        rate = self.per_hour * float(factors[band])
        return float(begins[band]) + (cumulative - float(reached[band])) / rate if rate else inf


@dataclass(frozen=True, slots=True)
class DrawnLives:
    """Lives drawn from hazards. The draw belongs to the market and the moment of the grant, not to who asks: machines
    of one market that start together fall together, and strategies that are compared meet the same luck."""

    mortality: Mapping[Market, Mortality]
    seed: int

    def evicted_at(self, market: Market, start: int) -> int | None:
        """When machines granted at a moment are taken, on a whole second of their life; None if never."""
        if market not in self.mortality:
            return None
        chance = np.random.default_rng([self.seed, crc32(str(market).encode()), start])
        hours = self.mortality[market].age_at(chance.exponential())
        return start + max(ceil(hours * 3600), 1) * SECOND if isfinite(hours) else None


class MarketReplay:
    """Several markets replayed over a common clock."""

    def __init__(
        self,
        histories: Iterable[PriceSeries],
        capacities: Mapping[Market, Capacity] | None = None,
        lives: DrawnLives | None = None,
    ) -> None:
        self.tapes: Mapping[Market, Tape] = {series.market: Tape(series) for series in histories}
        self._capacities = capacities or {}
        self._lives = lives

    def price(self, market: Market, now: int) -> int:
        """What a machine of a market costs per hour at a moment."""
        return self._tape(market).price(now)

    def evicted_at(self, market: Market, bid: int, start: int) -> int | None:
        """When a machine granted at `start` under a bid is taken because the price rises above it or its life ends."""
        crossed = self._tape(market).first_above(bid, start)
        dies = None if self._lives is None else self._lives.evicted_at(market, start)
        return min((at for at in (crossed, dies) if at is not None), default=None)

    @property
    def limited(self) -> bool:
        """Whether any market has less than endless capacity."""
        return bool(self._capacities)

    def capacity(self, market: Market, now: int) -> float:
        """How many machines of a market there are at a moment; infinite where nothing limits them."""
        return self._capacities[market].at(now) if market in self._capacities else inf

    def openings(self, market: Market) -> tuple[Ints, Bools] | None:
        """When a market has machines and when it has none; None where nothing limits them."""
        return self._capacities[market].openings if market in self._capacities else None

    def short_from(self, market: Market, machines: int, after: int) -> int | None:
        """The first moment after a time at which a market has fewer machines than are held."""
        return self._capacities[market].first_below(machines, after) if market in self._capacities else None

    def _tape(self, market: Market) -> Tape:
        try:
            return self.tapes[market]
        except KeyError:
            raise UnknownMarketInReplay(f"{market} is not replayed; name its price history in the scenario") from None


def _first_above(times: list[int], highest: list[list[int]], bound: int, after: int) -> int | None:
    """The first event after a time with a value strictly above a bound."""
    at = bisect_right(times, after)
    size = len(times)
    level, top = 0, len(highest)
    # Climb while whole blocks stay at or below the bound, then descend into the first that does not.
    while at < size:
        if highest[level][at >> level] > bound:
            if level == 0:
                return times[at]
            level -= 1
            continue
        at = ((at >> level) + 1) << level
        while level + 1 < top and at & ((2 << level) - 1) == 0:
            level += 1
    return None


def _block_maxima(values: Ints) -> list[list[int]]:
    """Level k holds the highest value of each block of 2**k events, from the first on."""
    levels = [values]
    while levels[-1].size > 1:
        below = levels[-1]
        pairs = np.append(below, below[-1:]) if below.size % 2 else below
        levels.append(pairs.reshape(-1, 2).max(axis=1))
    return [level.tolist() for level in levels]
