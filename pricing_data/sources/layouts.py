"""The supported CSV layouts: their columns, and the meaning of a row.

A block of price changes, of which most files consist, is also parsed by columns, without a Python
object per row.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from pricing_data.availability import AvailabilitySpan, Ending, Interruption
from pricing_data.catalog import OnDemandPrice
from pricing_data.errors import BadInput
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.known_clouds import markets_of
from pricing_data.list_prices import ADDRESSES, COLUMNS, DISKS, EGRESS, CsvRow, ListPrice
from pricing_data.market import LINUX, NO_ZONE, Market
from pricing_data.series import Ints
from pricing_data.sources.observations import MACHINES
from pricing_data.units import (
    EARLIEST,
    HOUR,
    LATEST,
    MAX_USD_PER_HOUR,
    NANOS_PER_DOLLAR,
    format_time,
    parse_time,
    parse_usd,
)

Fact = PriceEvent | OnDemandPrice | Interruption | ListPrice | AvailabilitySpan

# The Spot Advisor's five buckets: shares of machines interrupted in the last month.
_ADVISOR_BANDS = ((0.0, 0.05), (0.05, 0.10), (0.10, 0.15), (0.15, 0.20), (0.20, 1.0))
_LONGEST_LIFE_HOURS = 100_000
_ALIASES = {
    "time": "timestamp",
    "date": "asof",
    "as_of": "asof",
    "os": "product",
    "product_description": "product",
}


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """A kind of table: its name, its required and optional columns, and the parser of a row.

    `facts` raises `BadInput` for an unusable row; for an unusable cell, it returns the error in
    place of the fact.
    """

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...]
    facts: Callable[[CsvRow], Iterable[Fact | BadInput]]


@dataclass(frozen=True, slots=True)
class Header:
    """The header line of a file: its layout, and its columns by the layout's names. No row may be
    after `latest`.
    """

    layout: CsvLayout
    columns: tuple[str, ...]
    latest: int = LATEST

    @property
    def unused(self) -> tuple[str, ...]:
        """Columns that the layout does not use."""
        used = {*self.layout.required, *self.layout.optional}
        return tuple(column for column in self.columns if column not in used)


def header_of(names: Iterable[str], latest: int = LATEST) -> Header:
    """The layout of a header line; raises `BadInput` if it matches none."""
    stripped = [name.strip().strip('"').lower() for name in names]
    columns = tuple(_ALIASES.get(name, name) for name in stripped)
    for layout in (PRICES, ADVISOR, ON_DEMAND, LIVES, *_OTHER_LISTS):
        if set(layout.required) <= set(columns):
            repeats = {column for column in columns if columns.count(column) > 1}
            repeated = sorted(repeats)
            if repeated:
                raise BadInput(f"column {', '.join(repeated)} appears more than once")
            return Header(layout, columns, latest)

    missing = [column for column in PRICES.required if column not in columns]
    present = ", ".join(stripped)
    needs = "; ".join(
        f"{layout.name} need {', '.join(layout.required)}"
        for layout in (ON_DEMAND, LIVES, *_OTHER_LISTS)
    )
    raise BadInput(
        f"columns {present[:120]!r} match no layout: price changes need "
        f"{', '.join(PRICES.required)}"
        f" (missing: {', '.join(missing)}); " + needs
    )


def not_after(latest: int, fact: Fact) -> Fact | BadInput:
    """The fact, or an error if it is dated after `latest`: nothing was observed in the future."""
    match fact:
        case PriceEvent():
            time = fact.time
        case AvailabilitySpan():
            time = fact.until
        case _:
            time = fact.as_of
    if time <= latest:
        return fact
    return BadInput(f"time {format_time(time)} is in the future")


def rows_of_facts(facts: Iterable[Fact]) -> FetchedRows:
    """Facts grouped by kind."""
    facts = tuple(facts)
    prices = PriceBatch.of(fact for fact in facts if isinstance(fact, PriceEvent))
    on_demand = tuple(fact for fact in facts if isinstance(fact, OnDemandPrice))
    interruptions = tuple(fact for fact in facts if isinstance(fact, Interruption))
    list_prices = tuple(fact for fact in facts if isinstance(fact, ListPrice))
    availability = tuple(fact for fact in facts if isinstance(fact, AvailabilitySpan))
    return FetchedRows(
        prices=prices,
        on_demand=on_demand,
        interruptions=interruptions,
        list_prices=list_prices,
        availability=availability,
    )


def _price_facts(cells: CsvRow) -> Iterable[Fact | BadInput]:
    """A spot price, an on-demand price, or both: snapshots from before spot pricing have only the
    latter.
    """
    product = cells.get("product", LINUX)
    market = Market.of_row(
        cells["cloud"], cells["region"], cells.get("zone"), cells["instance_type"], product
    )
    time = parse_time(cells["timestamp"])
    on_demand = cells.get("on_demand_price", "").strip()

    # A bad price of one kind is no reason to drop the other.
    if cells["spot_price"].strip() or not on_demand:
        try:
            yield PriceEvent(market, time, parse_usd(cells["spot_price"], "spot price"))
        except BadInput as error:
            yield error

    if on_demand:
        try:
            yield _on_demand(market, time, on_demand, "price history file")
        except BadInput as error:
            yield error


def _on_demand_facts(cells: CsvRow) -> Iterable[Fact]:
    cloud = cells.get("cloud", "").strip() or "aws"
    product = cells.get("product", LINUX)
    market = Market.of_row(cloud, cells["region"], NO_ZONE, cells["instance_type"], product)
    source = cells.get("source", "").strip() or "on-demand file"
    price = _on_demand(market, parse_time(cells["asof"]), cells["on_demand_price"], source)
    yield price


def _on_demand(market: Market, as_of: int, price: str, source: str) -> OnDemandPrice:
    return OnDemandPrice(
        market.cloud,
        market.region,
        market.instance_type,
        market.os,
        as_of,
        parse_usd(price, "on-demand price"),
        source,
    )


def _advisor_facts(cells: CsvRow) -> Iterable[Fact]:
    bucket = cells["interruption_bucket"].strip()
    if bucket not in {"0", "1", "2", "3", "4"}:
        raise BadInput(f"interruption bucket {bucket!r} is not one of 0, 1, 2, 3, 4")

    low, high = _ADVISOR_BANDS[int(bucket)]
    product = cells.get("product", LINUX)
    market = Market.of_row("aws", cells["region"], NO_ZONE, cells["instance_type"], product)
    as_of = parse_time(cells["asof"])
    figure = Interruption(market, "monthly-bucket", as_of, low, high, "aws spot advisor")
    yield figure


def _life_facts(cells: CsvRow) -> Iterable[Fact]:
    """The life of one spot machine, which ended in its eviction if it was `preempted`."""
    cloud = cells["cloud"].strip()
    zone = cells["zone"].strip()
    preempted = cells["preempted"].strip()

    if preempted not in {"0", "1"}:
        raise BadInput(f"preempted is {preempted!r}, not 0 or 1")

    try:
        count = int(cells["gpu_count"])
        hours = float(cells["lifetime_h"])
    except ValueError as error:
        raise BadInput(f"gpu_count or lifetime_h is not a number ({error})") from None

    if not 0 <= hours < _LONGEST_LIFE_HOURS:
        raise BadInput(f"lifetime_h is {hours:g}; it must be from 0 to {_LONGEST_LIFE_HOURS:,}")

    gpu = cells["gpu"].strip().lower()
    type_ = MACHINES.get((cloud, gpu, count), f"{gpu}x{count}")
    market = Market(cloud, markets_of(cloud).region_of_zone(zone), zone, type_)
    start = parse_time(cells["start"])
    ended: Ending = "evicted" if preempted == "1" else "returned"
    until = start + round(hours * HOUR)
    span = AvailabilitySpan(market, start, until, 1, 1, ended, "table of lives")
    yield span


PRICES = CsvLayout(
    "price changes",
    ("timestamp", "cloud", "region", "instance_type", "spot_price"),
    ("zone", "product", "on_demand_price"),
    _price_facts,
)
ON_DEMAND = CsvLayout(
    "on-demand prices",
    ("asof", "region", "instance_type", "on_demand_price"),
    ("cloud", "product", "source"),
    _on_demand_facts,
)
ADVISOR = CsvLayout(
    "interruption buckets",
    ("asof", "region", "instance_type", "interruption_bucket"),
    ("product",),
    _advisor_facts,
)


LIVES = CsvLayout(
    "machine lives",
    ("cloud", "zone", "gpu", "gpu_count", "start", "lifetime_h", "preempted"),
    ("end",),
    _life_facts,
)


def _list_layout(table: str, name: str) -> CsvLayout:
    return CsvLayout(
        name,
        COLUMNS[table],
        ("certainty", "source"),
        lambda cells: (ListPrice.of_row(table, cells),),
    )


_OTHER_LISTS = (
    _list_layout(EGRESS, "egress prices"),
    _list_layout(DISKS, "disk prices"),
    _list_layout(ADDRESSES, "address prices"),
)


RowMask = NDArray[np.bool_]

_NAMES = ("cloud", "region", "zone", "instance_type", "product")
# Parsing fewer rows than this one by one is faster than casting again.
_MIN_BISECTED = 32


def price_columns(
    block: bytes, columns: tuple[str, ...], latest: int
) -> tuple[PriceBatch, list[int]] | None:
    """The rows of a block of lines, and the positions of those to parse one by one, which says what
    is wrong with them; None if not every line is a row with one cell per column. Rows after
    `latest` are to be parsed one by one, too.

    An unclosed quote makes one row of many lines. Then, or with mixed line endings, line numbers do
    not identify rows, and the block must be read line by line.
    """
    table = _texts(block, columns)
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if table is None or table.num_rows != lines or block.count(b"\r") != block.count(b"\r\n"):
        return None

    times, time_ok = _cast(table.column("timestamp"), _to_micros)
    prices, price_ok = _cast(table.column("spot_price"), _to_nanos)
    markets, codes = _markets(table)
    ok = time_ok & price_ok & (codes >= 0) & (times >= EARLIEST) & (times <= latest)
    ok &= (prices > 0) & (prices <= MAX_USD_PER_HOUR * NANOS_PER_DOLLAR)

    batch = PriceBatch(markets, codes[ok], times[ok], prices[ok])
    odd = np.flatnonzero(~ok)
    return batch, odd.tolist()


def _texts(block: bytes, columns: tuple[str, ...]) -> pa.Table | None:
    odd_rows = False

    def on_odd_row(_: object) -> str:
        nonlocal odd_rows
        odd_rows = True
        return "skip"

    known = [column for column in columns if column in {*_NAMES, "timestamp", "spot_price"}]
    coded = pa.dictionary(pa.int32(), pa.string())
    try:
        lines = pa.BufferReader(block)
        reading = arrow_csv.ReadOptions(column_names=list(columns))
        parsing = arrow_csv.ParseOptions(invalid_row_handler=on_odd_row, ignore_empty_lines=False)
        types = {name: coded if name in _NAMES else pa.string() for name in known}
        conversion = arrow_csv.ConvertOptions(
            column_types=types, include_columns=known, strings_can_be_null=False
        )
        table = arrow_csv.read_csv(lines, reading, parsing, conversion)
    except pa.ArrowInvalid:
        return None

    return None if odd_rows else table


def _cast(column: pa.ChunkedArray, convert: Callable[[pa.Array], Ints]) -> tuple[Ints, RowMask]:
    """The numbers in a column of text, and a mask of those that could be parsed."""
    values = column.combine_chunks()
    numbers = np.zeros(len(values), dtype=np.int64)
    ok = np.zeros(len(values), dtype=bool)
    parts = [(0, len(values))] if len(values) else []
    while parts:
        start, end = parts.pop()
        try:
            part = values.slice(start, end - start)
            numbers[start:end] = convert(part)
            ok[start:end] = True
        except pa.ArrowInvalid:
            # One bad cell fails the whole array: bisect until few cells remain with it.
            middle = (start + end) // 2
            parts += [(start, middle), (middle, end)] if end - start > _MIN_BISECTED else []

    return numbers, ok


def _to_micros(texts: pa.Array) -> Ints:
    micros = pa.timestamp("us", tz="UTC")
    parsed = texts.cast(micros)
    times: Ints = parsed.cast(pa.int64()).to_numpy()
    return times


def _to_nanos(texts: pa.Array) -> Ints:
    """Exact: the integer behind a decimal with nine places is the price in nano-dollars."""
    # Arrow reads outside its tables for an exponent such as e-999999999. As 0, such a cell is
    # parsed one by one.
    has_exponent = pc.match_substring(texts, "e", ignore_case=True)
    safe = pc.if_else(has_exponent, "0", texts)
    decimals = safe.cast(pa.decimal128(18, 9))
    words = np.frombuffer(decimals.buffers()[1], dtype="<i8")
    halves = words.reshape(-1, 2)
    end = decimals.offset + len(decimals)
    return halves[decimals.offset : end, 0]


def _markets(table: pa.Table) -> tuple[tuple[Market, ...], Ints]:
    """The markets named in a table, and each row's code; -1 if the names are not a valid market."""
    # The columns of names: each row's code, and the words of the codes.
    coded: list[tuple[Ints, list[str]]] = []
    for name in _NAMES:
        if name not in table.column_names:
            zeros = np.zeros(table.num_rows, dtype=np.int64)
            usual = LINUX if name == "product" else ""
            coded.append((zeros, [usual]))
            continue
        column: Any = table.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            no_codes = pa.array([], pa.int32())
            no_names = pa.array([""])
            column = pa.DictionaryArray.from_arrays(no_codes, no_names)
        codes = pc.cast(column.indices, pa.int64()).to_numpy()
        names = column.dictionary.to_pylist()
        coded.append((codes, names or [""]))

    mixed = np.zeros(table.num_rows, dtype=np.int64)
    for codes, words in coded:
        mixed = mixed * len(words) + codes
    _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    markets: dict[Market, int] = {}
    code_of = np.full(first.size, -1, dtype=np.int64)

    for number, row in enumerate(first):
        with suppress(BadInput):
            cells = (words[codes[row]] for codes, words in coded)
            market = Market.of_row(*cells)
            code_of[number] = markets.setdefault(market, len(markets))

    return tuple(markets), code_of[inverse]
