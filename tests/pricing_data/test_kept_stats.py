"""Kept statistics say what the prices say, after every kind of change."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.catalog import Catalog, OnDemandPrice
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.observed import WatchRecord
from pricing_data.stats import describe
from pricing_data.store import PriceStore
from pricing_data.units import HOUR, SECOND, Span
from tests.pricing_data.histories import START, market, random_batch

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
    return OnDemandPrice(CHANGED.cloud, CHANGED.region, CHANGED.instance_type, CHANGED.os, START, price, "a list")


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
def test_statistics_follow_a_change(kept: PriceStore, change: FetchedRows, *, kept_again: bool) -> None:
    kept.commit(change)
    if kept_again:
        Library(kept).keep_statistics()
    assert_agrees(kept)


def test_statistics_follow_a_correction_and_a_merge(kept: PriceStore) -> None:
    series = kept.series(CHANGED)
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
    assert one == describe(kept.series(CHANGED), library.catalog)


def test_a_store_without_room_keeps_no_statistics(kept: PriceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.commit(FetchedRows(prices=PriceBatch.of([NEXT])))

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("pricing_data.store.manifest.sync", full)
    Library(kept).keep_statistics()
    monkeypatch.undo()
    assert_agrees(kept)
