"""Fact tables: instance types, list prices, interruption figures, observed availability,
corrections and lost prices, each in one small Parquet file.

A fact has a key; a newer fact replaces an older one with the same key.
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import pyarrow as pa

from pricing_data.availability import AvailabilitySpan, Interruption
from pricing_data.catalog import InstanceType, MachineTraits, OnDemandPrice
from pricing_data.list_prices import ListPrice
from pricing_data.market import Market
from pricing_data.series import WatchRecord
from pricing_data.store.sealed import read_rows, write_rows
from pricing_data.store.table import PriceCorrection
from pricing_data.units import Span

FOLDER = "set-aside"
"""The folder, in that of the store, that keeps damaged files."""


@dataclass(frozen=True, slots=True)
class LostPrices:
    """A segment that was set aside: its file, how many rows it had, and their span in microseconds
    UTC.
    """

    file: str
    rows: int
    first: int
    last: int


def keep_file(root: Path, name: str) -> None:
    """Keeps a damaged file where the store deletes nothing; a missing one cannot be kept."""
    kept = root / FOLDER / name
    kept.parent.mkdir(exist_ok=True)
    kept.unlink(missing_ok=True)
    try:
        os.link(root / name, kept)
    except FileNotFoundError:
        return
    except OSError:
        # Not every file system has links.
        shutil.copyfile(root / name, kept)


F = TypeVar(
    "F",
    InstanceType,
    OnDemandPrice,
    Interruption,
    ListPrice,
    PriceCorrection,
    AvailabilitySpan,
    LostPrices,
)
_Fact = (
    InstanceType
    | OnDemandPrice
    | Interruption
    | ListPrice
    | PriceCorrection
    | AvailabilitySpan
    | LostPrices
)

_NUMBERS = {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}
"""The types of columns by those of fields; all others are stored as text."""


@dataclass(frozen=True)
class FactTable(Generic[F]):
    """One kind of fact, and the fields that are its key. The columns are the fields of its class: a
    market is one text, and the traits of a machine type, which are its last field, a column
    each."""

    name: str
    kind: type[F]
    key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(list(_columns(self.kind)))

    def write(self, path: Path, facts: Iterable[F], description: bytes) -> None:
        """Writes facts as a new file."""
        write_rows(path, self.schema, map(_row, facts), description)

    def read(self, path: Path, cloud: str | None = None) -> list[F]:
        """The facts of a file, optionally of one cloud only."""
        # Not filtered by Arrow's functions, whose import takes longer than to read a table.
        rows = (row for row in read_rows(path) if cloud is None or row[0].startswith(cloud))
        of_row: Callable[..., F] = self.kind
        names = _stored(self.kind)
        hints = get_type_hints(self.kind)
        if hints[names[0]] is Market:
            return [of_row(Market.parse(market), *rest) for market, *rest in rows]

        if hints[names[-1]] is MachineTraits:
            # Older files have no traits.
            size = len(names) - 1
            return [of_row(*row[:size], MachineTraits(*row[size:])) for row in rows]
        return [of_row(*row) for row in rows]

    def merged(self, known: Iterable[F], newer: Iterable[F]) -> list[F]:
        """All facts; a newer one replaces a known one with the same key."""
        key_of = attrgetter(*self.key)
        by_key = {key_of(fact): fact for fact in known}
        by_key.update((key_of(fact), fact) for fact in newer)
        return sorted(by_key.values(), key=_order)


def _order(fact: _Fact) -> tuple[str, ...]:
    """A fixed order, so that equal facts give equal files."""
    texts = (str(getattr(fact, field.name)) for field in fields(fact))
    return tuple(texts)


def _stored(kind: type[_Fact | MachineTraits] | _Fact | MachineTraits) -> list[str]:
    """The fields that are stored: those that make facts different."""
    return [field.name for field in fields(kind) if field.compare]


def _columns(kind: type[_Fact | MachineTraits]) -> Iterator[tuple[str, pa.DataType]]:
    """The columns of a kind of fact; the traits of a machine type have columns of their own."""
    hints = get_type_hints(kind)
    for name in _stored(kind):
        if hints[name] is MachineTraits:
            yield from _columns(MachineTraits)
        else:
            types = get_args(hints[name]) or (hints[name],)
            numbers = (_NUMBERS[each] for each in types if each in _NUMBERS)
            yield name, next(numbers, pa.string())


def _row(fact: _Fact | MachineTraits) -> tuple[Any, ...]:
    values: list[Any] = []
    for value in (getattr(fact, name) for name in _stored(fact)):
        match value:
            case MachineTraits():
                values += _row(value)
            case Market():
                values.append(str(value))
            case _:
                values.append(value)

    return tuple(values)


TYPES = FactTable("types", InstanceType, ("cloud", "name"))
ON_DEMAND = FactTable(
    "on_demand", OnDemandPrice, ("cloud", "region", "instance_type", "os", "as_of")
)
INTERRUPTIONS = FactTable("interruptions", Interruption, ("market", "measure", "as_of"))
LIST_PRICES = FactTable("list_prices", ListPrice, ("key",))
CORRECTIONS = FactTable("corrections", PriceCorrection, ("market", "time", "made"))
LOST = FactTable("lost", LostPrices, ("file",))
AVAILABILITY = FactTable("availability", AvailabilitySpan, ("market", "since", "until", "source"))

WATCHED = "watched"
_WATCHED_SCHEMA = pa.schema(
    [("market", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("complete", pa.bool_())]
)


def write_watched(path: Path, watched: Mapping[Market, WatchRecord], description: bytes) -> None:
    """Writes the table as a new file."""
    in_order = sorted(watched.items(), key=lambda item: str(item[0]))
    rows = (
        (str(market), span.start, span.end, complete)
        for market, record in in_order
        for complete, spans in ((True, record.complete), (False, record.recorded))
        for span in spans
    )
    write_rows(path, _WATCHED_SCHEMA, rows, description)


def read_watched(path: Path, names: Collection[str] | None = None) -> dict[Market, WatchRecord]:
    """The table of a file, optionally of these markets only."""
    spans: dict[str, tuple[list[Span], list[Span]]] = {}
    for name, start, end, complete in read_rows(path):
        if names is None or name in names:
            of_market = spans.setdefault(name, ([], []))
            of_market[not complete].append(Span(start, end))
    return {
        Market.parse(name): WatchRecord(tuple(whole), tuple(parts))
        for name, (whole, parts) in spans.items()
    }
