"""Kept statistics say what the prices say, after every kind of change."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.catalog import Catalog, OnDemandPrice
from pricing_data.errors import BadInput, OverLimit, UnknownMarket
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library, Selection
from pricing_data.market import Market
from pricing_data.query import QueryLimits, query
from pricing_data.series import WatchRecord
from pricing_data.stats import describe
from pricing_data.store import PriceStore
from pricing_data.store.table import CorrectedPrices
from pricing_data.units import HOUR, SECOND, Span
from tests.pricing_data.histories import START, market, random_batch, stored

LOCAL = Market.parse("local/sim-east/sim-east-a/c4.xlarge")
AZURE = Market.parse("azure/eastus/-/Standard_NC6s_v3")


@pytest.fixture
def library(tmp_path: Path) -> Library:
    store = PriceStore(tmp_path / "prices")
    events = [
        PriceEvent(one, START + step, 5 + step)
        for one in (market(), AZURE, LOCAL)
        for step in range(3)
    ]
    store.commit(FetchedRows(prices=PriceBatch.of(events)))
    return Library(store)


def test_a_stored_local_market_replaces_the_shipped_one(library: Library) -> None:
    assert len(library.series(LOCAL)) == len(next(iter(library.table([LOCAL])))) == 3
    other = Market.parse("local/sim-west/sim-west-a/c4.xlarge")
    assert len(library.series(other)) > 100
    with pytest.raises(UnknownMarket, match=r"no price history of aws/.*spotctl lab prices ls"):
        library.series(market("none.large"))


@pytest.mark.parametrize(
    ("selection", "found"),
    [
        (Selection("azure/us_east/-/Standard_NC6s_v3"), [AZURE]),
        (Selection(regions=("us_east",)), [AZURE]),
        (Selection(regions=("US-EAST-1",)), [market()]),
        (Selection(clouds=("AWS",)), [market()]),
        (Selection(accelerator="v100"), [AZURE]),
        (Selection("aws", vcpus=(4, 4)), [market()]),
        (Selection("aws", vcpus=(5, 9)), []),
        (Selection(types=("c4.*",)), [market(), LOCAL]),
    ],
)
def test_markets_match_common_spellings(
    library: Library, selection: Selection, found: list[Market]
) -> None:
    assert [one for one in library.select(selection) if one in (market(), AZURE, LOCAL)] == found


def test_an_unknown_cloud_is_rejected() -> None:
    with pytest.raises(BadInput, match="cloud 'ibm' is not one of aws, gcp, azure, vast, local"):
        Selection(clouds=("ibm",))


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


DOLLAR = 1_000_000_000
CHANGED = market("t0.large")
NEXT = PriceEvent(CHANGED, START + 100 * HOUR, DOLLAR)


@pytest.fixture
def kept(tmp_path: Path) -> PriceStore:
    store = PriceStore(tmp_path / "prices")
    store.commit(FetchedRows(prices=random_batch(0, markets=3, rows=90)))
    Library(store).keep_statistics()
    return store


def assert_agrees(store: PriceStore) -> None:
    library = Library(store)
    from_rows = [describe(series, library.catalog) for series in store.table()]
    assert library.statistics(store.markets()) == from_rows
    assert library.statistics([CHANGED]) == [one for one in from_rows if one.market == CHANGED]


def listed(price: int) -> OnDemandPrice:
    return OnDemandPrice(
        CHANGED.cloud, CHANGED.region, CHANGED.instance_type, CHANGED.os, START, price, "a list"
    )


@pytest.mark.parametrize(
    "change",
    [
        FetchedRows(prices=PriceBatch.of([NEXT])),
        FetchedRows(prices=PriceBatch.of([NEXT._replace(market=market("new.large"))])),
        FetchedRows(watched={CHANGED: WatchRecord(complete=(Span(START, START + 900 * HOUR),))}),
        FetchedRows(on_demand=(listed(1_000),)),
        FetchedRows(),
    ],
    ids=["a later price", "a new market", "longer observation", "an on-demand price", "nothing"],
)
@pytest.mark.parametrize("kept_again", [False, True], ids=["old", "kept again"])
def test_statistics_follow_a_change(
    kept: PriceStore, change: FetchedRows, *, kept_again: bool
) -> None:
    kept.commit(change)
    if kept_again:
        Library(kept).keep_statistics()
    assert_agrees(kept)


def test_statistics_follow_a_correction_and_a_merge(kept: PriceStore) -> None:
    series = stored(kept, CHANGED)
    kept.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(CHANGED, series.first, DOLLAR)])))
    assert_agrees(kept)
    Library(kept).keep_statistics()
    kept.compact()
    assert_agrees(kept)
    assert Library(kept).statistics([CHANGED])[0].highest == DOLLAR


def test_kept_statistics_are_shown_without_a_look_at_the_prices(kept: PriceStore) -> None:
    expected = Library(kept).statistics(kept.markets())
    for segment in kept.root.glob("prices-*"):
        segment.write_bytes(b"")
    assert Library(kept).statistics([one.market for one in expected]) == expected


def test_an_on_demand_price_of_another_catalog_is_not_mixed_in(kept: PriceStore) -> None:
    """As after an upgrade, whose catalog has newer list prices."""
    library = Library(kept)
    library.catalog = Catalog(prices=(listed(2 * SECOND),))
    [one] = library.statistics([CHANGED])
    assert one.on_demand is not None
    assert one == describe(stored(kept, CHANGED), library.catalog)


def test_a_store_without_room_keeps_no_statistics(
    kept: PriceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.commit(FetchedRows(prices=PriceBatch.of([NEXT])))

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("pricing_data.store.draft.sync", full)
    Library(kept).keep_statistics()
    monkeypatch.undo()
    assert_agrees(kept)
