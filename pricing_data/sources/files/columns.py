"""Parses a block of CSV into a `PriceBatch`, without creating a Python object per row."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from pricing_data.errors import BadInput
from pricing_data.fetched_rows import PriceBatch
from pricing_data.market import LINUX, Market
from pricing_data.series import Ints
from pricing_data.units import EARLIEST, MOST_USD_PER_HOUR, NANOS_PER_DOLLAR

RowMask = NDArray[np.bool_]

_NAMES = ("cloud", "region", "zone", "instance_type", "product")
# Parsing fewer rows than this one by one is faster than casting again.
_LEAST_BISECTED = 32


@dataclass(frozen=True, slots=True)
class ParsedBlock:
    """A block's rows: those that were parsed, and the positions of those to parse one by one."""

    rows: int
    prices: PriceBatch
    unparsed: list[int]


def parse(block: bytes, columns: tuple[str, ...], latest: int) -> ParsedBlock | None:
    """The rows of a block of lines; None if not every line is a row with one cell per column.

    Rows after `latest` are left to be parsed one by one, which says what is wrong with them.

    An unclosed quote makes one row of many lines. Then, or with mixed line endings, line numbers do not identify rows,
    and the block must be read line by line.
    """
    table = _cells(block, columns)
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if table is None or table.num_rows != lines or block.count(b"\r") != block.count(b"\r\n"):
        return None
    times, time_ok = _cast(table.column("timestamp"), _to_micros)
    prices, price_ok = _cast(table.column("spot_price"), _to_nanos)
    markets, codes = _markets(table)
    ok = time_ok & price_ok & (codes >= 0) & (times >= EARLIEST) & (times <= latest)
    ok &= (prices > 0) & (prices <= MOST_USD_PER_HOUR * NANOS_PER_DOLLAR)
    batch = PriceBatch(markets, codes[ok], times[ok], prices[ok])
    return ParsedBlock(table.num_rows, batch, np.flatnonzero(~ok).tolist())


def _cells(block: bytes, columns: tuple[str, ...]) -> pa.Table | None:
    odd_rows = False

    def on_odd_row(_: object) -> str:
        nonlocal odd_rows
        odd_rows = True
        return "skip"

    known = [column for column in columns if column in {*_NAMES, "timestamp", "spot_price"}]
    coded = pa.dictionary(pa.int32(), pa.string())
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(block),
            arrow_csv.ReadOptions(column_names=list(columns)),
            arrow_csv.ParseOptions(invalid_row_handler=on_odd_row, ignore_empty_lines=False),
            arrow_csv.ConvertOptions(
                column_types={name: coded if name in _NAMES else pa.string() for name in known},
                include_columns=known,
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    return None if odd_rows else table


def _cast(column: pa.ChunkedArray, convert: Callable[[pa.Array], Ints]) -> tuple[Ints, RowMask]:
    """The numbers in a column of text, and a mask of those that could be parsed."""
    values = column.combine_chunks()
    numbers, ok = np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=bool)
    parts = [(0, len(values))] if len(values) else []
    while parts:
        start, end = parts.pop()
        try:
            numbers[start:end] = convert(values.slice(start, end - start))
            ok[start:end] = True
        except pa.ArrowInvalid:
            # One bad cell fails the whole array: bisect until few cells remain with it.
            middle = (start + end) // 2
            parts += [(start, middle), (middle, end)] if end - start > _LEAST_BISECTED else []
    return numbers, ok


def _to_micros(texts: pa.Array) -> Ints:
    times: Ints = texts.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()).to_numpy()
    return times


def _to_nanos(texts: pa.Array) -> Ints:
    """Exact: the integer behind a decimal with nine places is the price in nano-dollars."""
    # Arrow reads outside its tables for an exponent such as e-999999999. As 0, such a cell is parsed one by one.
    safe = pc.if_else(pc.match_substring(texts, "e", ignore_case=True), "0", texts)
    decimals = safe.cast(pa.decimal128(18, 9))
    words = np.frombuffer(decimals.buffers()[1], dtype="<i8")
    return words.reshape(-1, 2)[decimals.offset : decimals.offset + len(decimals), 0]


def _markets(table: pa.Table) -> tuple[tuple[Market, ...], Ints]:
    """The markets named in a table, and each row's code; -1 if the names are not a valid market."""
    coded = {name: _coded(table, name) for name in _NAMES}
    mixed = np.zeros(table.num_rows, dtype=np.int64)
    for codes, words in coded.values():
        mixed = mixed * len(words) + codes
    _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    markets: dict[Market, int] = {}
    code_of = [_code(markets, *(words[codes[row]] for codes, words in coded.values())) for row in first]
    return tuple(markets), np.array(code_of, dtype=np.int64)[inverse]


def _coded(table: pa.Table, name: str) -> tuple[Ints, list[str]]:
    if name not in table.column_names:
        return np.zeros(table.num_rows, dtype=np.int64), [LINUX if name == "product" else ""]
    column: Any = table.column(name).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), pa.array([""]))
    return pc.cast(column.indices, pa.int64()).to_numpy(), column.dictionary.to_pylist() or [""]


def _code(markets: dict[Market, int], *names: str) -> int:
    try:
        market = Market.of_row(*names)
    except BadInput:
        return -1
    return markets.setdefault(market, len(markets))
