"""The market behind a provider that rents nothing real: what a request gets, when its machines end,
what they cost.

The market is `bidbrain.replay.market`, so what the backtest predicts is what happens here. Pure:
`local` adds the processes, and the tests' fake provider adds scripted failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from bidbrain.replay.market import Capacity, DrawnLives, MarketReplay, Warnings
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import format_time, format_usd
from spotctl.clouds.errors import NoCapacity, NotFound
from spotctl.clouds.local.machine_file import PlannedEnd
from spotctl.clouds.provider import MachineRequest


@dataclass(frozen=True)
class Replayed:
    """Price histories, with capacities and lifetimes where they are known."""

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

    def open_at(self, now: int) -> tuple[Market, ...]:
        """The markets whose history covers a moment."""
        return tuple(
            market
            for market, series in self.histories.items()
            if series.first <= now <= series.last
        )

    def prices(self, market: Market, start: int, end: int, now: int) -> PriceSeries:
        """A market's prices on [start, end], never later than now."""
        series = self._history(market)
        if not series.first <= start <= end <= min(now, series.last):
            problem = (
                f"{market}: prices are known from {format_time(series.first)} to "
                f"{format_time(min(now, series.last))}, not from {format_time(start)} to "
                f"{format_time(end)}"
            )
            raise NotFound(problem)
        return series.window(start, end)

    def closes_at(self, market: Market) -> int:
        """The end of a market's history. No machine runs beyond it, because its price would be
        unknown.
        """
        return self._history(market).last

    def grant(
        self, request: MachineRequest, held: Sequence[int | None], now: int
    ) -> tuple[int | None, ...]:
        """When each granted machine will be taken (None: never). `held` says the same of the
        market's spot machines, oldest first.

        When capacity falls, the newest machines are taken first. Earlier machines count as held
        until the market takes them, even if their launcher will terminate them before.
        """
        series = self._history(request.market)
        if not series.first <= now <= series.last:
            cure = "start the market at a time in between"
            problem = (
                f"{request.market}: its history is replayed from {format_time(series.first)} to "
                f"{format_time(series.last)}, and it is {format_time(now)}; {cure}"
            )
            raise NoCapacity(problem)

        price = self._replay.price(request.market, now)
        if request.bid is None:
            return (None,) * request.count
        if price > request.bid:
            cure = "bid more, or wait"
            problem = (
                f"{request.market} costs {format_usd(price)} USD an hour, more than the bid of "
                f"{format_usd(request.bid)}; {cure}"
            )
            raise NoCapacity(problem)

        room = self._replay.capacity(request.market, now) - len(held)
        granted = int(min(room, request.count))
        if granted < 1:
            cure = "try another market, or this one later"
            raise NoCapacity(f"{request.market} has no machine left now; {cure}")

        before = list(held)
        for _ in range(granted):
            moments = (
                self._replay.evicted_at(request.market, request.bid, now),
                self._short_at(request.market, before, now),
            )
            before.append(min((at for at in moments if at is not None), default=None))

        return tuple(before[len(held) :])

    def planned_ends(
        self,
        request: MachineRequest,
        held: Sequence[int | None],
        now: int,
        allocation: int,
        warnings: Warnings,
    ) -> tuple[PlannedEnd, ...]:
        """When each granted machine will be warned and taken."""
        plans = []
        for taken_at in self.grant(request, held, now):
            warned_at = None
            if taken_at is not None:
                warned_at = warnings.warned_at(allocation, now, taken_at)
            plans.append(PlannedEnd(now, taken_at, warned_at))
        return tuple(plans)

    def _short_at(self, market: Market, before: Sequence[int | None], now: int) -> int | None:
        """When a market has too few machines for one more than those before, which are taken at
        their own times.
        """
        taken = [taken_at for taken_at in before if taken_at is not None]
        leaves = sorted(taken_at for taken_at in taken if taken_at > now)
        running = len(before) - (len(taken) - len(leaves)) + 1
        at = now

        for leave in leaves:
            short = self._replay.short_from(market, running, at)
            if short is None or short < leave:
                return short
            at, running = leave - 1, running - 1

        return self._replay.short_from(market, running, at)

    def _history(self, market: Market) -> PriceSeries:
        try:
            return self.histories[market]
        except KeyError:
            cure = "spotctl lab prices ls shows the markets with a history"
            raise NotFound(f"{market} is not replayed; {cure}") from None
