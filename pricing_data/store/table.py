"""`PriceTable`: price events of many markets in sorted columns, as they are stored and read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from pricing_data.fetched_rows import NO_PRICES, PriceBatch
from pricing_data.market import Market
from pricing_data.series import Ints, PriceSeries, WatchRecord, joined, of_events
from pricing_data.units import Span


@dataclass(frozen=True, slots=True)
class PriceCorrection:
    """From `time` on, `market` cost `price` and not what was imported; None withdraws the price
    change.

    `made` is the moment of the correction. Times are microseconds UTC, prices nano-dollars per
    hour.
    """

    market: Market
    time: int
    price: int | None
    reason: str
    made: int


CorrectedPrices = dict[str, dict[int, int | None]]
"""By market and time, the price in force, or None for a price change that was withdrawn."""


def in_force(corrections: Iterable[PriceCorrection]) -> CorrectedPrices:
    """The newest correction of each price."""
    newest: CorrectedPrices = {}
    for correction in sorted(corrections, key=lambda each: each.made):
        newest.setdefault(str(correction.market), {})[correction.time] = correction.price
    return newest


@dataclass(frozen=True, slots=True, eq=False)
class PriceTable:
    """The rows of market `i` are those from `starts[i]` to `starts[i + 1]`, sorted by time; markets
    are sorted by text.

    Every market has rows, and none has two rows of the same time. `watched` says when markets were
    observed; a market that is not in it was observed as its rows show.
    """

    markets: tuple[Market, ...]
    starts: Ints
    times: Ints
    prices: Ints
    watched: Mapping[Market, WatchRecord] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.times.size)

    def __iter__(self) -> Iterator[PriceSeries]:
        return map(self.series, range(len(self.markets)))

    def series(self, row: int) -> PriceSeries:
        """The series of a market; another event ends that of a market which was watched after its
        last event.
        """
        market = self.markets[row]
        begin = int(self.starts[row])
        end = int(self.starts[row + 1])
        rows = slice(begin, end)
        times = self.times[rows]
        prices = self.prices[rows]
        spans = of_events(market, times, self.watched.get(market))
        last = int(times[-1])
        until = max([last, *(span.end for span in spans)])
        if confirmed := until > last:
            times = np.append(times, until)
            prices = np.append(prices, prices[-1])
        whole = spans == (Span(int(times[0]), until),)

        return PriceSeries(market, times, prices, None if whole else spans, confirmed)

    @classmethod
    def of(cls, batch: PriceBatch) -> PriceTable:
        """The events of a batch, sorted and without duplicates.

        If two rows give one market different prices at the same time, the higher one is kept: the
        result does not depend on their order, and no eviction is missed.
        """
        return cls.counted(batch)[0]

    @classmethod
    def counted(cls, batch: PriceBatch) -> tuple[PriceTable, int]:
        """Like `of`, with the number of rows that were dropped for a higher price."""
        order = sorted(range(len(batch.markets)), key=lambda i: str(batch.markets[i]))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        codes = rank[batch.codes]
        codes, times, prices, dropped = _sorted_once(codes, batch.times, batch.prices)
        present, starts = np.unique(codes, return_index=True)
        in_order = (batch.markets[order[code]] for code in present)
        markets = tuple(in_order)
        bounds = np.append(starts, times.size)
        table = cls(markets, bounds.astype(np.int64), times, prices)
        return table, dropped

    @classmethod
    def merged(cls, tables: Iterable[PriceTable]) -> PriceTable:
        """The rows of all tables, market by market: most markets are in one table only."""
        tables = tuple(tables)
        if len(tables) == 1:
            return tables[0]

        watched = joined(table.watched for table in tables)
        parts: dict[str, list[tuple[Market, Ints, Ints]]] = {}
        for table in tables:
            for market, start, end in _extents(table):
                own = parts.setdefault(str(market), [])
                own_times = table.times[start:end]
                own_prices = table.prices[start:end]
                own.append((market, own_times, own_prices))

        if not parts:
            return replace(NO_ROWS, watched=watched)

        rows = []
        for name in sorted(parts):
            (market, times, prices), *others = parts[name]
            if others:
                # Of two prices of a market at one time, the higher one stays.
                times, prices = (np.concatenate([part[i] for part in parts[name]]) for i in (1, 2))
                same_market = np.zeros(times.size, dtype=np.int64)
                _, times, prices, _ = _sorted_once(same_market, times, prices)
            rows.append((market, times, prices))

        lengths = [times.size for _, times, _ in rows]
        markets = (market for market, _, _ in rows)
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        all_times = np.concatenate([times for _, times, _ in rows])
        all_prices = np.concatenate([prices for _, _, prices in rows])
        return cls(tuple(markets), bounds.astype(np.int64), all_times, all_prices, watched)

    def batch(self) -> PriceBatch:
        """The rows as a batch, for which order does not matter."""
        return PriceBatch(self.markets, self.codes(), self.times, self.prices)

    def codes(self) -> Ints:
        """The index of each row's market."""
        numbers = np.arange(len(self.markets), dtype=np.int64)
        lengths = np.diff(self.starts)
        return np.repeat(numbers, lengths)

    def with_last_seen(self) -> PriceTable:
        """The rows, and a repetition of its last price for each market that was still watched after
        that.
        """
        ends = self.starts[1:]
        last_rows = ends - 1
        seen = np.full(len(self.markets), np.iinfo(np.int64).min)
        for i, market in enumerate(self.markets):
            if market in self.watched:
                spans = (*self.watched[market].complete, *self.watched[market].recorded)
                ends_seen = (span.end for span in spans)
                seen[i] = max(ends_seen, default=seen[i])

        later = seen > self.times[last_rows] if len(self) else np.zeros(0, dtype=np.bool_)
        added = np.concatenate(([0], np.cumsum(later)))
        all_times = np.insert(self.times, ends[later], seen[later])
        last_prices = self.prices[last_rows[later]]
        all_prices = np.insert(self.prices, ends[later], last_prices)
        return replace(self, starts=self.starts + added, times=all_times, prices=all_prices)

    def corrected(self, in_force: CorrectedPrices) -> PriceTable:
        """The rows with their corrections: with other prices, and without what was withdrawn."""
        affected = (
            [i for i, market in enumerate(self.markets) if str(market) in in_force]
            if in_force
            else []
        )

        if not affected:
            return self

        prices = self.prices.copy()
        kept = np.ones(len(self), dtype=np.bool_)
        for i in affected:
            start = int(self.starts[i])
            end = int(self.starts[i + 1])
            corrections = in_force[str(self.markets[i])]
            for time, price in corrections.items():
                place = np.searchsorted(self.times[start:end], time)
                at = start + int(place)
                if at == end or self.times[at] != time:
                    continue
                if price is None:
                    kept[at] = False
                else:
                    prices[at] = price

        rest = replace(self, prices=prices)
        if kept.all():
            return rest
        return replace(rest.only(kept), watched=self.watched)

    def within(self, span: Span) -> PriceTable:
        """The rows in a span."""
        inside = (self.times >= span.start) & (self.times <= span.end)
        if inside.all():
            return self
        return self.only(inside)

    def only(self, rows: np.typing.NDArray[np.bool_]) -> PriceTable:
        """The rows for which a mask is true."""
        codes = self.codes()[rows]
        batch = PriceBatch(self.markets, codes, self.times[rows], self.prices[rows])
        return PriceTable.of(batch)


NO_ROWS = PriceTable((), np.zeros(1, dtype=np.int64), NO_PRICES.times, NO_PRICES.prices)


@dataclass(frozen=True, slots=True, eq=False)
class Novelty:
    """A table compared with the store: `fresh` rows are new, `higher` rows replace a lower stored
    price.
    """

    fresh: PriceTable
    higher: PriceTable
    known: int
    lower: int


def novelty(table: PriceTable, stored: PriceTable) -> Novelty:
    """Compares a table with the stored rows of the same markets and times."""
    # For each row, the stored price of the same market and time, or 0.
    price_known = np.zeros(len(table), dtype=np.int64)
    rows_of = {market: (start, end) for market, start, end in _extents(stored)}
    for market, start, end in _extents(table):
        if market not in rows_of:
            continue
        low, high = rows_of[market]
        places = np.searchsorted(stored.times[low:high], table.times[start:end])
        at = np.minimum(low + places, high - 1)
        same_time = stored.times[at] == table.times[start:end]
        price_known[start:end] = np.where(same_time, stored.prices[at], 0)

    unknown = price_known == 0
    higher = ~unknown & (table.prices > price_known)
    fresh = table.only(unknown)
    known = int(np.count_nonzero(table.prices == price_known))
    is_lower = ~unknown & (table.prices < price_known)
    lower = int(np.count_nonzero(is_lower))
    return Novelty(fresh=fresh, higher=table.only(higher), known=known, lower=lower)


def _extents(table: PriceTable) -> Iterator[tuple[Market, int, int]]:
    begins = table.starts[:-1].tolist()
    ends = table.starts[1:].tolist()
    return zip(table.markets, begins, ends, strict=True)


def _sorted_once(codes: Ints, times: Ints, prices: Ints) -> tuple[Ints, Ints, Ints, int]:
    """Rows sorted by code and time, only the highest price of each, and the number of rows with a
    lower one.
    """
    step = np.diff(codes)
    later = (step == 0) & (np.diff(times) > 0)
    in_order = (step > 0) | later
    if np.all(in_order):
        return codes, times, prices, 0

    order = np.lexsort((times, codes))
    codes = codes[order]
    times = times[order]
    prices = prices[order]
    new = np.ones(codes.size, dtype=bool)
    new[1:] = (np.diff(codes) != 0) | (np.diff(times) != 0)
    if new.all():
        return codes, times, prices, 0

    highest = np.maximum.reduceat(prices, np.flatnonzero(new))
    group = np.cumsum(new) - 1
    lower = prices < highest[group]
    dropped = int(np.count_nonzero(lower))
    return codes[new], times[new], highest, dropped
