from __future__ import annotations

from pathlib import Path

import pytest

from pricing_data.export import export
from pricing_data.ingest import ingest
from pricing_data.sources.files import reader
from pricing_data.store import PriceStore
from pricing_data.store.table import PriceTable
from tests.pricing_data.histories import random_batch
from tests.pricing_data.sources.test_files import GOOD, HEADER, written
from tests.pricing_data.store.test_table import contents


@pytest.fixture
def store(tmp_path: Path) -> PriceStore:
    return PriceStore(tmp_path / "prices")


def test_imports_are_idempotent(store: PriceStore, tmp_path: Path) -> None:
    table = PriceTable.of(random_batch(seed=3, markets=5, rows=5000))
    export(table, tmp_path / "history.csv.gz")
    once = ingest(store, tmp_path / "history.csv.gz")
    after_once = contents(store.table())
    twice = ingest(store, tmp_path / "history.csv.gz")
    assert contents(store.table()) == after_once == contents(table)
    assert (once.committed.added, once.committed.known) == (5000, 0)
    assert (twice.committed.added, twice.committed.known) == (0, 5000)


def test_all_bad_rows_are_counted_and_named(store: PriceStore, tmp_path: Path) -> None:
    path = written(tmp_path / "f.csv", HEADER, *["nonsense"] * 50, GOOD)
    report = ingest(store, path)
    assert (report.rows, report.skipped, len(report.bad), report.failure) == (51, 50, 50, None)
    assert len(store.table()) == 1


def test_strict_rejects_the_whole_file(store: PriceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_CHUNK", 100)
    monkeypatch.setattr(reader, "_BLOCK", 200)
    rows = [GOOD.replace("00:35:34", f"00:00:{n:02}") for n in range(50)]
    report = ingest(store, written(tmp_path / "f.csv", HEADER, *rows, "nonsense"), strict=True)
    assert report.failure == "was rejected: 1 bad row, the first in line 52: 1 cells where the header has 7"
    assert not store.root.exists()
    assert ingest(store, written(tmp_path / "g.csv", HEADER, *rows), strict=True).committed.added == 50


def test_a_truncated_file_keeps_its_good_rows_unless_strict(store: PriceStore, tmp_path: Path) -> None:
    table = PriceTable.of(random_batch(seed=3, markets=5, rows=20_000))
    path = tmp_path / "history.csv.gz"
    export(table, path)
    path.write_bytes(path.read_bytes()[:-1000])
    assert ingest(store, path, strict=True).committed.added == 0
    report = ingest(store, path)
    assert report.failure is not None
    assert "breaks off" in report.failure
    held = contents(store.table())
    assert 0 < len(held) < 20_000
    assert held.items() <= contents(table).items()


def test_a_table_of_another_kind_is_rejected(store: PriceStore, tmp_path: Path) -> None:
    report = ingest(store, written(tmp_path / "f.csv", HEADER, GOOD), layout="on-demand prices")
    assert report.failure == "contains price changes, not on-demand prices"
    assert store.markets() == []
