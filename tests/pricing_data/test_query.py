"""Queries that read the prices and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from pricing_data.errors import BadInput, OverLimit
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.market import Market
from pricing_data.query import QueryLimits, export, query
from pricing_data.store.table import CorrectedPrices, PriceTable
from pricing_data.units import parse_time
from tests.pricing_data.histories import START, market
from tests.pricing_data.sources.test_files import prices_in
from tests.pricing_data.store.test_table import contents


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


named = st.sampled_from(
    list(
        map(
            Market.parse,
            [
                "aws/sa-east-1/sa-east-1a/t",
                "aws/sa-east-1/sa-east-1a/t/windows",
                "aws/sa-east-1/-/t/linux-vpc",
                "gcp/us-east1/-/n1",
                "azure/eastus/-/D4",
            ],
        )
    )
)
rows = st.lists(
    st.builds(PriceEvent, named, st.integers(START, START + 10**12), st.integers(1, 10**13)),
    min_size=1,
)


@settings(max_examples=40)
@given(rows)
@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_an_export_imports_without_loss(
    tmp_path_factory: pytest.TempPathFactory, name: str, rows: list[PriceEvent]
) -> None:
    path = tmp_path_factory.mktemp("export") / name
    table = PriceTable.of(PriceBatch.of(rows))
    export(table, path)
    assert prices_in(path) == contents(table)


def test_common_spellings_of_times_and_prices_are_read(tmp_path: Path) -> None:
    event = PriceEvent(
        Market.parse("aws/us-east-1/us-east-1a/c4.xlarge"),
        parse_time("2016-02-25T00:35:34Z"),
        16_200_000,
    )
    export(PriceTable.of(PriceBatch.of([event])), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().splitlines()[1].replace('"', "") == (
        "2016-02-25T00:35:34Z,aws,us-east-1,us-east-1a,c4.xlarge,Linux/UNIX,0.0162"
    )
    export(PriceTable.of(PriceBatch.of([event])), tmp_path / "out.parquet")
    assert pq.read_table(tmp_path / "out.parquet").to_pylist()[0]["spot_price"] == "0.0162"


def test_an_unknown_suffix_and_a_missing_folder_are_reported(tmp_path: Path) -> None:
    table = PriceTable.of(PriceBatch.of([]))
    with pytest.raises(BadInput, match=r"must end with one of \.csv"):
        export(table, tmp_path / "out.xls")
    with pytest.raises(BadInput, match=r"cannot write .*csv: No such file"):
        export(table, tmp_path / "no" / "out.csv")
