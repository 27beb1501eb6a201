"""The market behind a provider that rents nothing real: what an order gets, what its machines meet, and what it costs.

It is `bidbrain.replay`, so that what the backtest foretells is what happens here. Pure; `local` adds processes to it,
`fake` a scriptable memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bidbrain.replay import Capacity, DrawnLives, MarketReplay
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import SECOND, format_time, format_usd
from spotctl.agent.planned_ending import PlannedEnding
from spotctl.errors import BadSettings
from spotctl.machines.base import MachineRequest, NoCapacity, NotFound

# Its multiples fall evenly between the whole numbers, wherever they begin.
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Warnings:
    """How evictions are announced: so long before (microseconds of market time), but for a share of the allocations.

    Which ones are not warned follows from their number and the seed, evenly: of any 1 / share in a row about one.
    """

    ahead: int = 120 * SECOND
    unwarned: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.ahead < 0 or not 0 <= self.unwarned <= 1:
            raise BadSettings(
                f"warnings {self.ahead} us ahead but for a share of {self.unwarned:g}:"
                " the span is at least 0, the share from 0 to 1"
            )

    def warned_at(self, allocation: int, started: int, taken_at: int) -> int | None:
        """When machines of the allocation with this number are told that they will be taken; None: they are not."""
        if (self.seed * _GOLDEN + (allocation + 0.5) * self.unwarned) % 1 >= 1 - self.unwarned:
            return None
        return max(started, taken_at - self.ahead)


@dataclass(frozen=True, slots=True)
class Held:
    """A spot machine that runs: when it was granted, and when the market takes it."""

    started: int
    taken_at: int | None


@dataclass(frozen=True)
class Replayed:
    """Price histories and what is known to happen on them."""

    histories: Mapping[Market, PriceSeries]
    capacities: Mapping[Market, Capacity] | None = None
    lives: DrawnLives | None = None

    @classmethod
    def of(
        cls,
        histories: Iterable[PriceSeries],
        capacities: Mapping[Market, Capacity] | None = None,
        lives: DrawnLives | None = None,
    ) -> Replayed:
        """The market of these histories."""
        return cls({series.market: series for series in histories}, capacities, lives)

    @cached_property
    def _replay(self) -> MarketReplay:
        return MarketReplay(self.histories.values(), self.capacities, self.lives)

    def prices(self, market: Market, start: int, end: int, now: int) -> PriceSeries:
        """What a market cost; nothing of what is still to come."""
        series = self._history(market)
        if not series.first <= start <= end <= min(now, series.last):
            raise NotFound(
                f"{market}: prices are known from {format_time(series.first)} to {format_time(min(now, series.last))},"
                f" not from {format_time(start)} to {format_time(end)}"
            )
        return series.window(start, end)

    def closes_at(self, market: Market) -> int:
        """The end of a market's history: what a machine would cost beyond is unknown, so no lease goes further."""
        return self._history(market).last

    def grant(self, order: MachineRequest, held: Sequence[Held], now: int) -> tuple[int | None, ...]:
        """When each machine that is granted will be taken. `held` are the spot machines of the market, oldest first.

        Where capacity is short, who came last goes first. That those before may be given back early is not foreseen.
        """
        price = self._price(order.market, now)
        if order.bid is None:
            return (None,) * order.count
        if price > order.bid:
            raise NoCapacity(
                f"{order.market} costs {format_usd(price)} USD an hour, more than the bid of {format_usd(order.bid)};"
                " bid more, or wait"
            )
        room = self._replay.capacity(order.market, now) - len(held)
        granted = int(min(room, order.count))
        if granted < 1:
            raise NoCapacity(f"{order.market} has no machine left now; another market may, or this one later")
        before = list(held)
        for _ in range(granted):
            before.append(Held(now, self._taken_at(order.market, order.bid, before, now)))
        return tuple(one.taken_at for one in before[len(held) :])

    def fates(
        self, order: MachineRequest, held: Sequence[Held], now: int, allocation: int, warnings: Warnings
    ) -> tuple[PlannedEnding, ...]:
        """What is in store for each machine that is granted."""
        return tuple(
            PlannedEnding(now, taken_at, None if taken_at is None else warnings.warned_at(allocation, now, taken_at))
            for taken_at in self.grant(order, held, now)
        )

    def _taken_at(self, market: Market, bid: int, before: Sequence[Held], now: int) -> int | None:
        moments = (self._replay.evicted_at(market, bid, now), self._short_at(market, before, now))
        return min((at for at in moments if at is not None), default=None)

    def _short_at(self, market: Market, before: Sequence[Held], now: int) -> int | None:
        """When a market has too few for one more beside those before, who are themselves taken at their times."""
        leaves = sorted(one.taken_at for one in before if one.taken_at is not None and one.taken_at > now)
        there = len(before) - sum(one.taken_at is not None and one.taken_at <= now for one in before) + 1
        at = now
        for leave in leaves:
            short = self._replay.short_from(market, there, at)
            if short is None or short < leave:
                return short
            at, there = leave - 1, there - 1
        return self._replay.short_from(market, there, at)

    def _price(self, market: Market, now: int) -> int:
        series = self._history(market)
        if not series.first <= now <= series.last:
            raise NoCapacity(
                f"{market}: its history is replayed from {format_time(series.first)} to {format_time(series.last)},"
                f" and it is {format_time(now)}; begin the market within"
            )
        return self._replay.price(market, now)

    def _history(self, market: Market) -> PriceSeries:
        try:
            return self.histories[market]
        except KeyError:
            raise NotFound(f"{market} is not replayed; spotctl prices ls shows the markets with a history") from None
