"""A check names every flaw and its cure; a backup is a sound copy."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from pricing_data.errors import BadInput, StoreError
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.store import PriceStore
from pricing_data.store.facts import LOST
from tests.pricing_data.histories import START, market, segment_paths, stored
from tests.pricing_data.store.test_damage import answers, filled


@pytest.fixture
def store(tmp_path: Path) -> PriceStore:
    return filled(tmp_path / "prices")


def test_a_sound_store_has_no_flaws(store: PriceStore, tmp_path: Path) -> None:
    inspection = store.inspect()
    assert (inspection.flaws, inspection.files) == ((), 8)
    assert inspection.events == store.size()[0]
    assert PriceStore(tmp_path / "none").inspect().files == 0


@pytest.mark.parametrize("damage", ["changed", "cut", "missing"])
def test_every_flaw_has_its_file_and_a_cure(store: PriceStore, damage: str) -> None:
    cures = {
        "manifest": "the next import or fetch makes it again",
        "stats": "the next import or fetch makes it again",
    }
    for path in (path for path in store.root.iterdir() if path.name != "lock"):
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(
            whole[:middle]
            + (bytes([whole[middle] ^ 1]) + whole[middle + 1 :]) * (damage == "changed")
        )
        if damage == "missing":
            path.unlink()
        (flaw,) = store.inspect().flaws
        assert flaw.file == path.name
        assert flaw.problem.startswith("is missing" if damage == "missing" else "is damaged ("), (
            flaw
        )
        assert flaw.cure.startswith(
            cures.get(path.name.split("-")[0].split(".")[0], "restore it from a backup")
        ), flaw
        path.write_bytes(whole)
    assert store.inspect().flaws == ()


def test_the_cure_of_statistics_and_of_the_manifest_works(store: PriceStore) -> None:
    (path,) = store.root.glob("stats-*")
    path.write_bytes(b"")
    (store.root / "manifest.json").write_bytes(b"")
    assert len(store.inspect().flaws) == 2
    Library(store).keep_statistics()
    assert store.inspect().flaws == ()


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_segment_is_set_aside_and_the_rest_can_be_read(
    store: PriceStore, damage: str
) -> None:
    before = {str(series.market): list(series.times) for series in store.table()}
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("new.large"), START, 5)])))
    damaged = max(segment_paths(store), key=lambda path: path.stat().st_size)
    whole = bytearray(damaged.read_bytes())
    whole[len(whole) // 3] ^= 1
    damaged.write_bytes(whole)
    if damage == "missing":
        damaged.unlink()
    with pytest.raises(StoreError, match="spotctl lab prices ls --check"):
        store.table()
    assert "prices ls --check --set-aside" in store.inspect().flaws[0].cure
    (lost,) = store.set_aside()
    assert lost.file == damaged.name
    assert store.inspect().flaws == ()
    rest = {str(series.market): list(series.times) for series in store.table()}
    assert str(market("new.large")) in rest
    gone = [
        time for name, times in before.items() for time in times if time not in rest.get(name, [])
    ]
    assert lost.rows >= len(gone) > 0
    assert all(lost.first <= time <= lost.last for time in gone)
    assert store.facts(LOST) == [lost]
    assert store.covered == {}, "a fetch brings again what the cloud still offers"
    assert (store.root / "set-aside" / damaged.name).exists() == (damage == "changed")
    (store.root / "manifest.json").unlink()
    again = PriceStore(store.root)
    assert {str(series.market): list(series.times) for series in again.table()} == rest
    assert again.facts(LOST) == [lost]
    assert again.set_aside() == ()
    again.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("newer.large"), START, 5)])))
    assert again.facts(LOST) == [lost]


def test_a_file_that_the_manifest_does_not_name_is_listed(store: PriceStore) -> None:
    old, before = (store.root / "manifest.json").read_text(), segment_paths(store)
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("new.large"), START, 5)])))
    newest = [path.name for path in segment_paths(store) if path not in before]
    (store.root / "manifest.json").write_text(old)
    (flaw,) = store.inspect().flaws
    assert flaw.problem == "is not in manifest.json"
    assert [flaw.file] == newest


def test_a_backup_answers_as_the_store_did_and_can_be_copied_back(
    store: PriceStore, tmp_path: Path
) -> None:
    expected = answers(store)
    copied = store.back_up(tmp_path / "backup" / "prices")
    assert copied.files == 8
    assert answers(PriceStore(tmp_path / "backup" / "prices")) == expected
    shutil.rmtree(store.root)
    shutil.copytree(tmp_path / "backup" / "prices", store.root)
    assert answers(store) == expected
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("new.large"), START, 5)])))


def test_a_backup_beside_a_writer_is_one_state_of_the_store(
    store: PriceStore, tmp_path: Path
) -> None:
    before = store.size()[0]

    def write() -> None:
        for step in range(30):
            store.commit(
                FetchedRows(
                    prices=PriceBatch.of([PriceEvent(market("w.large"), START + step, step + 1)])
                )
            )

    writer = threading.Thread(target=write)
    writer.start()
    sizes = [store.back_up(tmp_path / f"backup{number}").events for number in range(5)]
    writer.join()
    assert sizes == sorted(sizes)
    for number, size in enumerate(sizes):
        copy = PriceStore(tmp_path / f"backup{number}")
        added = stored(copy, market("w.large")).prices.tolist() if size > before else []
        assert added == list(range(1, size - before + 1))


def test_no_backup_of_a_damaged_store_and_none_over_other_files(
    store: PriceStore, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="exists already"):
        store.back_up(tmp_path)
    with pytest.raises(BadInput, match="no prices are stored"):
        PriceStore(tmp_path / "none").back_up(tmp_path / "backup")
    path = segment_paths(store)[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(StoreError, match="no backup was made: prices-"):
        store.back_up(tmp_path / "backup")
    assert [path.name for path in tmp_path.iterdir()] == ["prices"]
