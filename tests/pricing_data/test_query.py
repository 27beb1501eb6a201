"""Queries that read the prices and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.errors import BadInput, OverLimit
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.query import QueryLimits, query
from pricing_data.store.table import CorrectedPrices
from tests.pricing_data.histories import START, market


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("", "one statement is expected, not 0"),
        ("select 1; copy (select 1) to 'x'", "one statement is expected, not 2"),
        ("select 1 as a, 2 as a", "two columns are named a"),
        ("select * from read_csv('/etc/passwd')", "query: "),
        ("copy prices to '/tmp/stolen.csv'", "COPY is not allowed, because prices sql only reads"),
        ("explain analyze copy (select 1) to 'x'", "EXPLAIN is not allowed"),
        ("pivot prices on region using count(*)", "a pivot must list its columns"),
        ("copy (pivot prices on region using count(*)) to 'x'", "a pivot must list its columns"),
        ("set lock_configuration = false", "SET is not allowed"),
        (
            "select * from enable_logging(storage = 'file', storage_path = '/tmp/x')",
            "configuration",
        ),
        ("select * from query('drop view prices')", "query: "),
        ("install httpfs", "query: "),
        ("selec", "query: "),
    ],
)
def test_a_query_reads_the_prices_and_nothing_else(
    library: Library, sql: str, message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        library.over_segments(lambda segments, corrected: query(segments, corrected, sql))


ENDLESS = (
    "with recursive n as (select 1 as i union all select i + 1 from n) select max(i) as i from n"
)


@pytest.mark.parametrize(
    ("sql", "limits", "message"),
    [
        (
            ENDLESS,
            QueryLimits(seconds=0.2),
            "query: not finished after 0 s; .*allow more: --timeout",
        ),
        (
            "select i from range(1000000000000) as t(i)",
            QueryLimits(seconds=0.2),
            "not finished after",
        ),
        (
            "select count(distinct i::varchar || 'some text') as n from range(20000000) as t(i)",
            QueryLimits(memory_bytes=40_000_000),
            "query: it needs more than 0.04 GB of memory; .*allow more: --memory",
        ),
    ],
)
def test_a_query_keeps_to_its_limits(
    library: Library, sql: str, limits: QueryLimits, message: str
) -> None:
    with pytest.raises(OverLimit, match=message):
        library.over_segments(lambda segments, corrected: query(segments, corrected, sql, limits))


def test_no_query_can_change_a_segment(library: Library) -> None:
    def attack(segments: list[Path], corrected: CorrectedPrices) -> bytes:
        before = segments[0].read_bytes()
        for source in ("(select 1)", "(pivot prices on region using count(*))"):
            for prefix in ("", "explain analyze ", "prepare p as ", "select 1; "):
                with pytest.raises(BadInput):
                    query(
                        segments,
                        corrected,
                        f"{prefix}copy {source} to '{segments[0]}' (format csv, use_tmp_file "
                        "false)",
                    )
        assert segments[0].read_bytes() == before
        return before

    assert library.over_segments(attack)


def test_a_query_is_repeated_after_a_concurrent_write(library: Library) -> None:
    asked = []

    def read(segments: list[Path], corrected: CorrectedPrices) -> object:
        asked.append(segments)
        if len(asked) == 1:
            events = [PriceEvent(market(), START + 9 + step, 1) for step in range(11)]
            library.store.commit(FetchedRows(prices=PriceBatch.of(events)))
            library.store.compact()
        return query(segments, corrected, "select count(*) as n from prices").rows

    assert library.over_segments(read) == [(20,)]
    assert len(asked) == 2
