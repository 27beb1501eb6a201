"""A store that has no room."""

from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.library import Library
from pricing_data.store import PriceStore
from tests.pricing_data.test_library import NEXT, assert_agrees


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
