from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from pricing_data.fetched_rows import PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.series import WatchRecord
from pricing_data.store.table import NO_ROWS, PriceTable, novelty
from pricing_data.units import Span
from tests.pricing_data.histories import events


def contents(table: PriceTable) -> dict[tuple[str, int], int]:
    return {
        (str(one.market), time): price
        for one in table
        for time, price in zip(one.times.tolist(), one.prices.tolist(), strict=True)
    }


def expected(rows: list[PriceEvent]) -> dict[tuple[str, int], int]:
    """The highest price of each market and time, with a dictionary instead of sorted columns."""
    highest: dict[tuple[str, int], int] = {}
    for row in rows:
        key = (str(row.market), row.time)
        highest[key] = max(highest.get(key, 0), row.price)
    return highest


def table_of(rows: list[PriceEvent]) -> PriceTable:
    return PriceTable.of(PriceBatch.of(rows))


@given(events())
def test_a_table_has_each_time_once_in_order(rows: list[PriceEvent]) -> None:
    table = table_of(rows)
    assert contents(table) == expected(rows)
    assert [str(market) for market in table.markets] == sorted({str(row.market) for row in rows})
    assert len(table) == table.starts[-1] == len(expected(rows))


@given(events(), events())
def test_merging_is_the_same_in_any_order(one: list[PriceEvent], other: list[PriceEvent]) -> None:
    there, back = PriceTable.merged([table_of(one), table_of(other)]), table_of(other + one)
    assert contents(there) == contents(back) == expected(one + other)


@given(events(), events())
def test_novelty_splits_rows_by_what_is_stored(
    new: list[PriceEvent], old: list[PriceEvent]
) -> None:
    known, offered = expected(old), expected(new)
    news = novelty(table_of(new), table_of(old))
    assert contents(news.fresh) == {
        key: price for key, price in offered.items() if key not in known
    }
    assert contents(news.higher) == {
        key: p for key, p in offered.items() if key in known and p > known[key]
    }
    assert news.known == sum(known.get(key) == price for key, price in offered.items())
    assert news.lower == sum(key in known and price < known[key] for key, price in offered.items())


def test_an_empty_table_is_a_table() -> None:
    assert contents(NO_ROWS) == contents(PriceTable.merged([])) == {}


def test_markets_that_were_watched_after_their_last_event_repeat_its_price() -> None:
    names = [Market("aws", "us-east-1", f"us-east-1{letter}", "m5.large") for letter in "abc"]
    rows = [
        PriceEvent(name, 10 * at, at + place)
        for place, name in enumerate(names, 1)
        for at in (1, 2)
    ]
    watched = {
        names[0]: WatchRecord(complete=(Span(10, 15), Span(18, 30))),
        names[1]: WatchRecord(recorded=(Span(10, 20),)),
        names[2]: WatchRecord(complete=(Span(0, 12),), recorded=(Span(10, 25),)),
    }
    seen = replace(table_of(rows), watched=watched).with_last_seen()
    repeated = [PriceEvent(names[0], 30, 3), PriceEvent(names[2], 25, 5)]
    assert contents(replace(seen, watched={})) == expected([*rows, *repeated])
    assert seen.watched == watched
    assert len(NO_ROWS.with_last_seen()) == 0
