"""`FetchedRows`: rows from a file or a cloud, not yet in the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pricing_data.availability import AvailabilitySpan, Interruption
from pricing_data.catalog import InstanceType, OnDemandPrice
from pricing_data.list_prices import ListPrice
from pricing_data.market import Market
from pricing_data.series import Ints, WatchRecord, joined
from pricing_data.units import Span


class PriceEvent(NamedTuple):
    """From `time` (microseconds UTC), the market costs `price` (nano-dollars per hour)."""

    market: Market
    time: int
    price: int


NO_SPOT = 1
"""The amount by which markets of machines that are not sold as spot cost more than on demand, so
that plans know the machines, rent them on demand, and bid for none."""


@dataclass(frozen=True, slots=True, eq=False)
class PriceBatch:
    """Price events in columns: `codes[i]` indexes `markets`. Any order, duplicates allowed."""

    markets: tuple[Market, ...]
    codes: Ints
    times: Ints
    prices: Ints

    def __len__(self) -> int:
        return int(self.times.size)

    @classmethod
    def of(cls, events: Iterable[PriceEvent]) -> PriceBatch:
        codes: dict[Market, int] = {}
        rows = [
            (codes.setdefault(event.market, len(codes)), event.time, event.price)
            for event in events
        ]
        table = np.array(rows, dtype=np.int64)
        columns = table.reshape(-1, 3)
        arrays = (np.ascontiguousarray(columns[:, i]) for i in range(3))
        return cls(tuple(codes), *arrays)

    @classmethod
    def joined(cls, batches: Iterable[PriceBatch]) -> PriceBatch:
        codes: dict[Market, int] = {}
        columns: list[tuple[Ints, Ints, Ints]] = [(_NONE, _NONE, _NONE)]
        for batch in batches:
            recoded = np.array(
                [codes.setdefault(m, len(codes)) for m in batch.markets], dtype=np.int64
            )
            columns.append((recoded[batch.codes], batch.times, batch.prices))

        by_column = zip(*columns, strict=True)
        code, time, price = (np.concatenate(column) for column in by_column)
        return cls(tuple(codes), code, time, price)


_NONE: Ints = np.empty(0, dtype=np.int64)
NO_PRICES = PriceBatch((), _NONE, _NONE, _NONE)


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """The rows of one step of a source. The store commits them together or not at all.

    `covered` maps the key of a history (`FetchRequest.history`) to the span that is now complete,
    where the next fetch continues. A step with only part of the rows leaves it out: its rows are
    kept, and fetched again. `watched` says when markets were observed, whether or not their prices
    changed. `notes` tell the user where the rows are from, and are not stored.
    """

    prices: PriceBatch = NO_PRICES
    types: tuple[InstanceType, ...] = ()
    on_demand: tuple[OnDemandPrice, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    list_prices: tuple[ListPrice, ...] = ()
    availability: tuple[AvailabilitySpan, ...] = ()
    covered: dict[str, Span] = field(default_factory=dict)
    watched: Mapping[Market, WatchRecord] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        facts = (
            self.types,
            self.on_demand,
            self.interruptions,
            self.list_prices,
            self.availability,
        )
        return len(self.prices) + sum(map(len, facts))

    @classmethod
    def joined(cls, parts: Iterable[FetchedRows]) -> FetchedRows:
        parts = tuple(parts)
        prices = PriceBatch.joined(part.prices for part in parts)
        types = tuple(row for part in parts for row in part.types)
        on_demand = tuple(row for part in parts for row in part.on_demand)
        interruptions = tuple(row for part in parts for row in part.interruptions)
        list_prices = tuple(row for part in parts for row in part.list_prices)
        availability = tuple(row for part in parts for row in part.availability)
        covered = joined(part.covered for part in parts)
        watched = joined(part.watched for part in parts)
        notes = tuple(note for part in parts for note in part.notes)
        return cls(
            prices,
            types,
            on_demand,
            interruptions,
            list_prices,
            availability,
            covered,
            watched,
            notes,
        )
