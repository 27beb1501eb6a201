"""Rows of several steps of a source, joined."""

from __future__ import annotations

from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.market import Market
from pricing_data.units import Span

A, B = (Market.parse(f"aws/us-east-1/us-east-1{zone}/m4.large") for zone in "ab")
EVENTS = [PriceEvent(A, 1, 10), PriceEvent(B, 2, 20), PriceEvent(A, 3, 30)]


def events_of(batch: PriceBatch) -> list[PriceEvent]:
    rows = zip(batch.codes, batch.times, batch.prices, strict=True)
    return [PriceEvent(batch.markets[code], int(at), int(price)) for code, at, price in rows]


def test_events_are_kept_in_columns_and_each_market_once() -> None:
    batch = PriceBatch.of(EVENTS)
    assert batch.markets == (A, B)
    assert events_of(batch) == EVENTS
    assert len(PriceBatch.of(())) == 0


def test_joined_batches_name_their_markets_anew() -> None:
    joined = PriceBatch.joined([PriceBatch.of(EVENTS[1:]), PriceBatch.of(EVENTS[:1])])
    assert joined.markets == (B, A)
    assert events_of(joined) == [*EVENTS[1:], EVENTS[0]]
    assert len(PriceBatch.joined(())) == 0


def test_joined_rows_hold_what_all_their_parts_hold() -> None:
    first = FetchedRows(PriceBatch.of(EVENTS[:1]), covered={"a": Span(0, 1)})
    second = FetchedRows(PriceBatch.of(EVENTS[1:]), covered={"b": Span(0, 2)})
    joined = FetchedRows.joined([first, second])
    assert len(joined) == 3
    assert joined.covered == {"a": Span(0, 1), "b": Span(0, 2)}
