"""Commits that were not completed, and readers beside a writer."""

from __future__ import annotations

import pytest

from pricing_data.fetched_rows import PriceEvent
from pricing_data.store import PriceStore
from tests.pricing_data.histories import START, market, stored
from tests.pricing_data.store.test_store import prices


def test_a_reader_continues_while_a_writer_replaces_the_files(
    store: PriceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pricing_data.store import manifest as manifests

    store.commit(prices(PriceEvent(market(), START, 1)))
    old = manifests.load(store.root)
    store.commit(prices(PriceEvent(market(), START + 1, 2)))
    store.compact()
    answers = iter([old, old, manifests.load(store.root)])
    monkeypatch.setattr(manifests, "load", lambda _: next(answers))
    assert stored(store, market()).prices.tolist() == [1, 2]
