"""Segments of a store."""

from __future__ import annotations

import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.store import PriceStore, segments as segments_module
from pricing_data.store.segments import _ROW_GROUP
from pricing_data.store.table import PriceTable
from tests.pricing_data.histories import random_batch, segment_paths, stored
from tests.pricing_data.store.test_table import contents


def test_one_market_is_read_across_row_groups(store: PriceStore) -> None:
    batch = random_batch(seed=1, markets=7, rows=3 * _ROW_GROUP)
    store.commit(FetchedRows(prices=batch))
    whole = {one.market: one for one in PriceTable.of(batch)}
    assert {named: stored(store, named) for named in batch.markets} == whole
    some = batch.markets[1::3]
    assert list(store.table(some)) == [whole[named] for named in sorted(some, key=str)]


def test_a_merge_in_portions_keeps_every_row(
    store: PriceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments_module, "MERGED_ROWS", 700)
    monkeypatch.setattr(segments_module, "_ROW_GROUP", 256)
    batches = [random_batch(seed=seed, markets=7, rows=2100) for seed in range(4)]
    for batch in batches:
        store.commit(FetchedRows(prices=batch))
    store.compact()
    assert len(segment_paths(store)) == 1
    assert contents(store.table()) == contents(PriceTable.of(PriceBatch.joined(batches)))
    for series in store.table():
        assert stored(store, series.market) == series
    assert store.size()[0] == len(store.table())
