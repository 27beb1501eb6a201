"""Fact tables: instance types, list prices, interruption figures, observed availability, corrections and lost prices,
each in one small Parquet file.

A fact has a key; a newer fact replaces an older one with the same key.
"""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from pricing_data.availability import AvailabilitySpan
from pricing_data.catalog import InstanceType, OnDemandPrice
from pricing_data.corrections import PriceCorrection
from pricing_data.interruptions import Interruption
from pricing_data.list_prices import ListPrice
from pricing_data.market import Market
from pricing_data.store.lost import LostPrices
from pricing_data.store.parquet import read_rows, write_rows
from pricing_data.traits import MachineTraits

F = TypeVar("F", InstanceType, OnDemandPrice, Interruption, ListPrice, PriceCorrection, AvailabilitySpan, LostPrices)
_Fact = InstanceType | OnDemandPrice | Interruption | ListPrice | PriceCorrection | AvailabilitySpan | LostPrices


@dataclass(frozen=True)
class FactTable(Generic[F]):
    """The key and the columns of one kind of fact."""

    name: str
    key: Callable[[F], object]
    schema: pa.Schema
    to_row: Callable[[F], tuple[Any, ...]]
    of_row: Callable[..., F]

    def write(self, path: Path, facts: Iterable[F], description: bytes) -> None:
        """Writes facts as a new file."""
        write_rows(path, self.schema, map(self.to_row, facts), description)

    def read(self, path: Path, cloud: str | None = None) -> list[F]:
        """The facts of a file, optionally of one cloud only."""
        # Not filtered by Arrow's functions, whose import takes longer than to read a table.
        return [self.of_row(*row) for row in read_rows(path) if cloud is None or row[0].startswith(cloud)]

    def merged(self, known: Iterable[F], newer: Iterable[F]) -> list[F]:
        """All facts; a newer one replaces a known one with the same key."""
        by_key = {self.key(fact): fact for fact in known}
        by_key.update((self.key(fact), fact) for fact in newer)
        return sorted(by_key.values(), key=_order)


def _order(fact: _Fact) -> tuple[str, ...]:
    """A fixed order, so that equal facts give equal files."""
    return tuple(str(getattr(fact, field.name)) for field in fields(fact))


_SIZES = 7
"""The fields of a type before its traits."""


def _type_of_row(*row: Any) -> InstanceType:  # noqa: ANN401 - the columns of a table
    """The type in a row; older files have no traits."""
    cloud, name, vcpus, memory_gib, accelerator, accelerators, network_gbps, *traits = row
    sizes = cloud, name, vcpus, memory_gib, accelerator, accelerators, network_gbps
    return InstanceType(*sizes, MachineTraits(*traits))


TYPES = FactTable[InstanceType](
    "types",
    key=lambda fact: (fact.cloud, fact.name),
    schema=pa.schema(
        [
            ("cloud", pa.string()),
            ("name", pa.string()),
            ("vcpus", pa.int64()),
            ("memory_gib", pa.float64()),
            ("accelerator", pa.string()),
            ("accelerators", pa.int64()),
            ("network_gbps", pa.float64()),
            ("architecture", pa.string()),
            ("baseline", pa.float64()),
            ("hypervisor", pa.string()),
            ("boots", pa.string()),
            ("spot", pa.bool_()),
            ("accelerator_gib", pa.float64()),
            ("driver", pa.string()),
            ("local_disk_gb", pa.float64()),
            ("retires", pa.int64()),
        ]
    ),
    to_row=lambda fact: (*astuple(fact)[:_SIZES], *astuple(fact.traits)),
    of_row=_type_of_row,
)

ON_DEMAND = FactTable[OnDemandPrice](
    "on_demand",
    key=lambda fact: (fact.cloud, fact.region, fact.instance_type, fact.os, fact.as_of),
    schema=pa.schema(
        [
            ("cloud", pa.string()),
            ("region", pa.string()),
            ("instance_type", pa.string()),
            ("os", pa.string()),
            ("as_of", pa.int64()),
            ("price", pa.int64()),
            ("source", pa.string()),
        ]
    ),
    to_row=astuple,
    of_row=OnDemandPrice,
)

INTERRUPTIONS = FactTable[Interruption](
    "interruptions",
    key=lambda fact: (fact.market, fact.measure, fact.as_of),
    schema=pa.schema(
        [
            ("market", pa.string()),
            ("measure", pa.string()),
            ("as_of", pa.int64()),
            ("low", pa.float64()),
            ("high", pa.float64()),
            ("source", pa.string()),
        ]
    ),
    to_row=lambda fact: (str(fact.market), fact.measure, fact.as_of, fact.low, fact.high, fact.source),
    of_row=lambda market, *rest: Interruption(Market.parse(market), *rest),
)

LIST_PRICES = FactTable[ListPrice](
    "list_prices",
    key=lambda fact: fact.key,
    schema=pa.schema(
        [
            ("table", pa.string()),
            ("as_of", pa.int64()),
            ("cloud", pa.string()),
            ("where", pa.string()),
            ("what", pa.string()),
            ("step", pa.float64()),
            ("usd", pa.float64()),
            ("certainty", pa.string()),
            ("source", pa.string()),
        ]
    ),
    to_row=astuple,
    of_row=ListPrice,
)

CORRECTIONS = FactTable[PriceCorrection](
    "corrections",
    key=lambda fact: (fact.market, fact.time, fact.made),
    schema=pa.schema(
        [
            ("market", pa.string()),
            ("time", pa.int64()),
            ("price", pa.int64()),
            ("reason", pa.string()),
            ("made", pa.int64()),
        ]
    ),
    to_row=lambda fact: (str(fact.market), fact.time, fact.price, fact.reason, fact.made),
    of_row=lambda market, *rest: PriceCorrection(Market.parse(market), *rest),
)

LOST = FactTable[LostPrices](
    "lost",
    key=lambda fact: fact.file,
    schema=pa.schema([("file", pa.string()), ("rows", pa.int64()), ("first", pa.int64()), ("last", pa.int64())]),
    to_row=astuple,
    of_row=LostPrices,
)

AVAILABILITY = FactTable[AvailabilitySpan](
    "availability",
    key=lambda fact: (fact.market, fact.since, fact.until, fact.source),
    schema=pa.schema(
        [
            ("market", pa.string()),
            ("since", pa.int64()),
            ("until", pa.int64()),
            ("machines", pa.int64()),
            ("wanted", pa.int64()),
            ("ended", pa.string()),
            ("source", pa.string()),
        ]
    ),
    to_row=lambda fact: (
        str(fact.market), fact.since, fact.until, fact.machines, fact.wanted, fact.ended, fact.source,
    ),
    of_row=lambda market, *rest: AvailabilitySpan(Market.parse(market), *rest),
)  # fmt: skip
