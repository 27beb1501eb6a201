"""Replay of a market: the price at a moment, and when machines are evicted.

A machine with a bid is evicted when the price rises above it. Where a market's capacity is known,
machines are also evicted when more are held than there are; where machines live by a hazard, when
their drawn life ends.

The backtest and the local provider use the same replay, so that runs match what a backtest
predicts. The replay knows the whole history; a strategy may only see the current moment (`price`
and `capacity`, never `evicted_at`, `short_from` or `openings`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, isfinite
from zlib import crc32

import numpy as np

from bidbrain.arrays import Bools
from bidbrain.errors import BidBrainError
from bidbrain.eviction.survival import AGELESS, AgeProfile
from bidbrain.strategies.base import Offer
from bidbrain.strategies.known_spells import GAP, at_most
from bidbrain.strategies.spells import PUBLIC_PRIOR, SpellOutlook, outlook
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries
from pricing_data.units import SECOND, format_time

GOLDEN_RATIO = (5**0.5 - 1) / 2
"""Its multiples are spread evenly between the whole numbers, wherever they begin."""


class UnknownMarketInReplay(BidBrainError):
    """The history of this market is not part of the replay."""


class Tape:
    """One market's history, indexed for two frequent queries: the price now, and when it next
    exceeds a bid.
    """

    def __init__(self, series: PriceSeries) -> None:
        self.market = series.market
        self.times: list[int] = series.times.tolist()
        self.prices: list[int] = series.prices.tolist()
        self.first = self.times[0]
        self.last = self.times[-1]
        self._highest = _block_maxima(series.prices)

    def index(self, time: int) -> int:
        """Index of the event in force at a time."""
        at = bisect_right(self.times, time) - 1
        if at < 0 or time > self.times[-1]:
            raise BidBrainError(
                f"{self.market} is replayed from {format_time(self.first)} to "
                f"{format_time(self.last)}, not at {format_time(time)}; choose a time in between"
            )
        return at

    def price(self, time: int) -> int:
        """The price in force at a time."""
        return self.prices[self.index(time)]

    def first_above(self, bid: int, after: int) -> int | None:
        """The first moment after a time at which the price is strictly above a bid; None if there
        is none.
        """
        return _first_above(self.times, self._highest, bid, after)


class Capacity:
    """How many machines of a market can be held at once, as a step function; the first number also
    holds earlier.
    """

    def __init__(self, times: Ints, machines: Ints) -> None:
        if (
            times.size == 0
            or times.shape != machines.shape
            or np.any(np.diff(times) <= 0)
            or np.any(machines < 0)
        ):
            raise BidBrainError(
                "a capacity needs increasing times, each with a non-negative number of machines"
            )

        self._times: list[int] = times.tolist()
        self._machines: list[int] = machines.tolist()
        self._top = int(machines.max())
        self._missing = _block_maxima(self._top - machines)

    @property
    def openings(self) -> tuple[Ints, Bools]:
        """When the number changes, and whether it is positive from then on."""
        times = np.array(self._times, dtype=np.int64)
        counts = np.array(self._machines)
        return times, counts > 0

    def at(self, time: int) -> int:
        """The number of machines available at a time."""
        later = bisect_right(self._times, time)
        return self._machines[max(later - 1, 0)]

    def at_most(self, machines: int) -> Capacity:
        """This capacity, but never above a number of machines."""
        times = np.array(self._times, dtype=np.int64)
        fewer = np.minimum(self._machines, machines)
        return Capacity(times, fewer.astype(np.int64))

    def next_change(self, after: int) -> float:
        """The first moment after a time at which the number changes; infinite if there is none."""
        at = bisect_right(self._times, after)
        if at < len(self._times):
            return self._times[at]
        return inf

    def first_below(self, machines: int, after: int) -> int | None:
        """The first moment after a time at which fewer than `machines` are available; None if there
        is none.
        """
        return _first_above(self._times, self._missing, self._top - machines, after)


@dataclass(frozen=True, slots=True)
class Mortality:
    """How machines of a market are evicted at any price: evictions per hour, how that varies with
    age, and the age in hours that none survives."""

    per_hour: float
    ages: AgeProfile = AGELESS
    longest: float = inf

    def __post_init__(self) -> None:
        if not 0 <= self.per_hour < inf:
            raise BidBrainError(
                f"a hazard of {self.per_hour:g} evictions per hour is negative or infinite"
            )

    def age_at(self, cumulative: float) -> float:
        """The age in hours at which the cumulative hazard reaches a value; infinite if it never
        does.
        """
        begins = np.array(self.ages.ages)
        factors = np.array(self.ages.factors)
        lived = np.diff(begins) * factors[:-1]
        summed = np.concatenate(([0.0], np.cumsum(lived)))
        reached = summed * self.per_hour
        band = int(np.searchsorted(reached, cumulative, side="right")) - 1
        rate = self.per_hour * float(factors[band])
        age = inf
        if rate:
            age = float(begins[band]) + (cumulative - float(reached[band])) / rate
        return min(age, self.longest)


@dataclass(frozen=True, slots=True)
class DrawnLives:
    """Lives drawn from hazards. A draw depends only on the market and the moment of the grant:
    machines of one market that start together are evicted together, and compared strategies meet
    the same draws."""

    mortality: Mapping[Market, Mortality]
    seed: int

    def evicted_at(self, market: Market, start: int) -> int | None:
        """When machines granted at a moment are evicted, on a whole second of their life; None if
        never.
        """
        if market not in self.mortality:
            return None
        number = crc32(str(market).encode())
        seeds = [self.seed, number, start]
        chance = np.random.default_rng(seeds)
        hours = self.mortality[market].age_at(chance.exponential())
        if isfinite(hours):
            return start + max(ceil(hours * 3600), 1) * SECOND
        return None


@dataclass(frozen=True, slots=True)
class Warnings:
    """How evictions are announced: `ahead` of them (microseconds of market time), except a share of
    the allocations.

    An allocation's number and the seed decide whether the allocation is warned, evenly: of any 1 /
    share in a row, about one is not.
    """

    ahead: int = 120 * SECOND
    unwarned: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ahead < 0 or not 0 <= self.unwarned <= 1:
            raise BidBrainError(
                f"warnings {self.ahead} us ahead, except for a share of {self.unwarned:g}:"
                " the time must be at least 0, the share from 0 to 1"
            )

    def warned_at(self, allocation: int, started: int, taken_at: int) -> int | None:
        """When the machines of the allocation with this number are warned; None: not at all."""
        low_discrepancy = self.seed * GOLDEN_RATIO
        draw = (low_discrepancy + (allocation + 0.5) * self.unwarned) % 1
        if draw >= 1 - self.unwarned:
            return None
        return max(started, taken_at - self.ahead)


class MarketReplay:
    """Several markets replayed on a common clock."""

    def __init__(
        self,
        histories: Iterable[PriceSeries],
        capacities: Mapping[Market, Capacity] | None = None,
        lives: DrawnLives | None = None,
    ) -> None:
        self.tapes: Mapping[Market, Tape] = {series.market: Tape(series) for series in histories}
        self._capacities = capacities or {}
        self._lives = lives

    def with_capacities(
        self, capacities: Mapping[Market, Capacity], lives: DrawnLives | None
    ) -> MarketReplay:
        """This market's prices with other capacities and lives; the histories are not indexed
        again.
        """
        other = MarketReplay((), capacities, lives)
        other.tapes = self.tapes
        return other

    def at_most(self, machines: int) -> MarketReplay:
        """These markets, each with at most a number of machines."""
        begin = np.zeros(1, dtype=np.int64)
        constant = np.full(1, machines, dtype=np.int64)
        always = Capacity(begin, constant)
        capacities = {
            market: self._capacities[market].at_most(machines)
            if market in self._capacities
            else always
            for market in self.tapes
        }
        return self.with_capacities(capacities, self._lives)

    def price(self, market: Market, now: int) -> int:
        """Price of a machine per hour at a moment, in nano-dollars."""
        return self._tape(market).price(now)

    def evicted_at(self, market: Market, bid: int, start: int) -> int | None:
        """When a machine granted at `start` is evicted because the price rises above its bid or its
        life ends.
        """
        crossed = self._tape(market).first_above(bid, start)
        dies = None
        if self._lives is not None:
            dies = self._lives.evicted_at(market, start)
        moments = (at for at in (crossed, dies) if at is not None)
        return min(moments, default=None)

    @property
    def limited(self) -> bool:
        return bool(self._capacities)

    def capacity(self, market: Market, now: int) -> float:
        """Available machines of a market at a moment; infinite without a limit."""
        limit = self._capacities.get(market)
        if limit is None:
            return inf
        return limit.at(now)

    def granted(self, market: Market, machines: int, held: int, now: int) -> int:
        """How many of the spot machines of an order a market grants at a moment, next to those that
        are held.
        """
        capacity = self.capacity(market, now)
        most = int(min(capacity, machines + held))
        free = max(most - held, 0)
        return min(machines, free)

    def openings(self, market: Market) -> tuple[Ints, Bools] | None:
        """When a market gains or loses its last machines; None without a limit."""
        if market in self._capacities:
            return self._capacities[market].openings
        return None

    def next_change(self, after: int) -> float:
        """The first moment after a time at which the capacity of a market changes; infinite if
        there is none.
        """
        all_capacities = self._capacities.values()
        return min((capacity.next_change(after) for capacity in all_capacities), default=inf)

    def short_from(self, market: Market, machines: int, after: int) -> int | None:
        """The first moment after a time at which a market has fewer machines than are held."""
        if market in self._capacities:
            return self._capacities[market].first_below(machines, after)
        return None

    def _tape(self, market: Market) -> Tape:
        try:
            return self.tapes[market]
        except KeyError:
            raise UnknownMarketInReplay(
                f"{market} is not replayed; name its price history in the scenario"
            ) from None


def _first_above(times: list[int], highest: list[list[int]], bound: int, after: int) -> int | None:
    """The first event after a time with a value strictly above a bound."""
    at = bisect_right(times, after)
    size = len(times)
    level = 0
    top = len(highest)

    # Climb while whole blocks stay at or below the bound, then descend into the first that does
    # not.
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
    """Level k holds the highest value of each block of 2**k events."""
    levels = [values]
    while levels[-1].size > 1:
        below = levels[-1]
        pairs = np.append(below, below[-1:]) if below.size % 2 else below
        in_pairs = pairs.reshape(-1, 2)
        maxima = in_pairs.max(axis=1)
        levels.append(maxima)
    return [level.tolist() for level in levels]


@lru_cache(maxsize=8)
def recorded_spells(market: MarketReplay, offers: tuple[Offer, ...]) -> SpellOutlook:
    """The spells of a whole recording. Capacity is there while a market has machines for at most
    their on-demand price.

    Many jobs are replayed on the same markets, hence the cache.
    """
    tapes = [market.tapes[offer.market] for offer in offers]
    # A market is known from its first price on, and from the begin of its capacity if that is
    # limited.
    known_from = []
    for offer, tape in zip(offers, tapes, strict=True):
        openings = market.openings(offer.market)
        since = tape.first if openings is None else max(tape.first, int(openings[0][0]))
        known_from.append(since)

    begin = min(known_from)
    end = max(tape.last for tape in tapes)
    ticks = np.arange(begin, end + 1, GAP)
    up = np.zeros(ticks.size, dtype=np.bool_)

    for offer, tape in zip(offers, tapes, strict=True):
        times_of_tape = np.array(tape.times)
        prices_of_tape = np.array(tape.prices)
        there = at_most(times_of_tape, prices_of_tape, ticks, offer.on_demand)
        openings = market.openings(offer.market)
        if openings is not None:
            times, opened = openings
            later = times.searchsorted(ticks, side="right")
            place = np.maximum(later - 1, 0)
            there &= opened[place]
        up |= there

    return outlook(up, GAP, PUBLIC_PRIOR, begin)
