"""A correction is in force for every reader, whatever was imported before and after."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.errors import StoreError, UnknownPrice
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.query import query
from pricing_data.stats import describe
from pricing_data.store import PriceStore
from pricing_data.store.table import PriceCorrection
from pricing_data.units import HOUR
from tests.pricing_data.histories import START, market, random_batch, segment_paths, stored
from tests.pricing_data.store.test_table import contents

WRONG = PriceEvent(market(), START, 9_000_000_000)
LATER = PriceEvent(market(), START + HOUR, 30_000_000)
RIGHT = 20_000_000


def rows(*events: PriceEvent) -> FetchedRows:
    return FetchedRows(prices=PriceBatch.of(events))


def corrected(price: int | None, made: int = 1, time: int = START) -> PriceCorrection:
    return PriceCorrection(market(), time, price, "a typo", made)


@pytest.fixture
def store(tmp_path: Path) -> PriceStore:
    store = PriceStore(tmp_path / "prices")
    store.commit(rows(WRONG, LATER))
    store.commit(FetchedRows(prices=random_batch(1, markets=2, rows=40)))
    Library(store).keep_statistics()
    return store


def by_sql(store: PriceStore) -> list[tuple[object, ...]]:
    sql = (
        f"select round(usd_per_hour * 1e9)::bigint from prices where market = '{market()}' order "
        "by time"
    )
    return store.over_segments(lambda paths, known: query(paths, known, sql)).rows


def assert_everywhere(store: PriceStore, *prices: int) -> None:
    """Series, tables, statistics and SQL have these prices of the market."""
    assert stored(store, market()).prices.tolist() == list(prices)
    library = Library(store)
    (stats,) = library.statistics([market()])
    assert stats == describe(stored(store, market()), library.catalog)
    assert stats.highest == max(prices)
    assert by_sql(store) == [(price,) for price in prices]
    assert len(store.table()) == store.size()[0]


def test_a_price_that_is_too_high_can_be_corrected(store: PriceStore) -> None:
    assert_everywhere(store, WRONG.price, LATER.price)
    store.correct(corrected(RIGHT))
    assert_everywhere(store, RIGHT, LATER.price)


def test_a_correction_wins_over_later_imports_and_merges(store: PriceStore) -> None:
    store.correct(corrected(RIGHT))
    for price in (WRONG.price, WRONG.price * 2, 5):
        store.commit(rows(WRONG._replace(price=price)))
    store.compact()
    Library(store).keep_statistics()
    assert_everywhere(store, RIGHT, LATER.price)
    assert len(segment_paths(store)) < 4


def test_the_newest_correction_is_in_force_and_all_are_kept(store: PriceStore) -> None:
    store.correct(corrected(RIGHT, made=10))
    last = store.correct(corrected(RIGHT + 1, made=3))
    assert last.made == 11, "the clock went back"
    assert_everywhere(store, RIGHT + 1, LATER.price)
    assert [known.price for known in store.corrections()] == [RIGHT, RIGHT + 1]
    assert {known.reason for known in store.corrections()} == {"a typo"}


def test_a_withdrawn_price_change_is_gone_and_can_come_back(store: PriceStore) -> None:
    store.correct(corrected(None))
    assert_everywhere(store, LATER.price)
    store.correct(corrected(None, time=LATER.time))
    assert market() not in store.markets()
    assert len(store.markets()) == 2
    assert store.size()[0] == len(store.table()) == 40
    store.correct(corrected(RIGHT))
    assert_everywhere(store, RIGHT)


def test_only_a_stored_price_change_can_be_corrected(store: PriceStore) -> None:
    with pytest.raises(
        UnknownPrice, match=r"nearest: 2026-01-01T00:00:00Z and 2026-01-01T01:00:00Z"
    ):
        store.correct(corrected(RIGHT, time=START + 1))
    with pytest.raises(UnknownPrice, match="no price history of"):
        store.correct(PriceCorrection(market("x.large"), START, RIGHT, "a typo", 1))
    assert store.corrections() == []


def test_corrections_survive_the_loss_of_the_manifest(store: PriceStore) -> None:
    store.correct(corrected(RIGHT))
    (store.root / "manifest.json").unlink()
    assert_everywhere(store, RIGHT, LATER.price)


def test_a_lost_correction_is_an_error_and_never_the_old_price(store: PriceStore) -> None:
    store.correct(corrected(RIGHT))
    (path,) = store.root.glob("corrections-*")
    path.unlink()
    with pytest.raises(StoreError, match="a file is missing"):
        contents(store.table())
