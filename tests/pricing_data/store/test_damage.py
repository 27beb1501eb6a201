"""A damaged store: an error, a remark, or the right answer, and never another number.

`SPOTCTL_STORE_DAMAGE=all` changes every byte of the store; else a sample of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pricing_data.availability import Interruption
from pricing_data.catalog import InstanceType
from pricing_data.errors import StoreError
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.library import Library
from pricing_data.series import WatchRecord
from pricing_data.store import PriceStore, upkeep
from pricing_data.store.facts import INTERRUPTIONS
from pricing_data.store.segments import write_segment
from pricing_data.store.table import PriceTable
from pricing_data.units import HOUR, Span
from tests.pricing_data.histories import START, market, random_batch, segment_paths, stored
from tests.pricing_data.store.test_table import contents

SAMPLE = 150


def filled(root: Path) -> PriceStore:
    """A small store with every kind of file: segments, facts, observed time, statistics, and a
    replaced price.
    """
    store = PriceStore(root)
    band = Interruption(market("t0.large"), "monthly-bucket", START, 0.05, 0.1, "advisor")
    for seed in range(3):
        batch = random_batch(seed, markets=3, rows=300)
        store.commit(
            FetchedRows(prices=batch, covered={"aws/us-east-1": Span(START, START + seed * HOUR)})
        )
    watched = {market("t0.large"): WatchRecord(complete=(Span(START, START + 900 * HOUR),))}
    machine = InstanceType("aws", "t0.large", 4, 7.5)
    store.commit(FetchedRows(types=(machine,), interruptions=(band,), watched=watched))
    first = stored(store, market("t1.large"))
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(first.market, first.first, 10**9)])))
    Library(store).keep_statistics()
    return store


def answers(store: PriceStore) -> tuple[Any, ...]:
    """Everything that a store says."""
    library = Library(store)
    markets = store.markets()
    return (
        [str(name) for name in markets],
        contents(store.table()),
        [list(series.watched or ()) for series in store.table()],
        library.statistics(markets),
        store.catalog().types,
        store.facts(INTERRUPTIONS),
        store.covered,
        store.size()[0],
    )


def same_or_error(store: PriceStore, expected: object, what: str) -> bool:
    """Whether the store answers; fails if it answers anything but this."""
    try:
        result = answers(store)
    except StoreError:
        return False
    assert result == expected, what
    return True


def copy_of(store: PriceStore, to: Path) -> PriceStore:
    shutil.copytree(store.root, to)
    return PriceStore(to)


@pytest.fixture
def store(tmp_path: Path) -> PriceStore:
    return filled(tmp_path / "prices")


def places(store: PriceStore) -> Iterator[tuple[Path, int]]:
    every = [
        (path, at) for path in sorted(store.root.iterdir()) for at in range(path.stat().st_size)
    ]
    assert len(every) <= 40_000
    chance = random.Random(7)
    yield from (
        every if os.environ.get("SPOTCTL_STORE_DAMAGE") == "all" else chance.sample(every, SAMPLE)
    )


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_changed_byte_changes_a_number(store: PriceStore) -> None:
    expected = answers(store)
    unnoticed = 0
    chance = random.Random(8)
    for path, at in places(store):
        whole = path.read_bytes()
        path.write_bytes(
            whole[:at] + bytes([whole[at] ^ chance.randrange(1, 256)]) + whole[at + 1 :]
        )
        unnoticed += same_or_error(store, expected, f"{path.name}, byte {at}")
        path.write_bytes(whole)
    assert answers(store) == expected
    assert unnoticed, "statistics and the manifest can be made again"


def test_no_missing_file_changes_a_number(store: PriceStore) -> None:
    expected = answers(store)
    answered = set()
    for path in store.root.iterdir():
        whole = path.read_bytes()
        path.unlink()
        if same_or_error(store, expected, path.name):
            answered.add(path.name.partition("-")[0])
        path.write_bytes(whole)
    assert answered == {"lock", "manifest.json", "stats"}


def test_no_cut_file_changes_a_number(store: PriceStore) -> None:
    expected = answers(store)
    for path in store.root.iterdir():
        whole = path.read_bytes()
        for size in (0, 4, len(whole) // 2, max(len(whole) - 1, 0)):
            path.write_bytes(whole[:size])
            same_or_error(store, expected, f"{path.name}, {size} bytes")
        path.write_bytes(whole)


@pytest.mark.parametrize("damage", ["missing", "empty", "half", "old"])
def test_a_lost_manifest_is_made_again_by_the_next_writer(store: PriceStore, damage: str) -> None:
    expected = answers(store)
    path = store.root / "manifest.json"
    text = path.read_text()
    if damage == "missing":
        path.unlink()
    else:
        path.write_text(
            {"empty": "", "half": text[: len(text) // 2], "old": '{"format": 1, "segments": []'}[
                damage
            ]
        )
    remarks: list[str] = []
    damaged = PriceStore(store.root, on_repair=remarks.append)
    assert answers(damaged) == expected
    assert "taken from the 8 files" in remarks[0]
    added = PriceEvent(market("new.large"), START, 5)
    damaged.commit(FetchedRows(prices=PriceBatch.of([added])))
    remarks.clear()
    assert contents(damaged.table()) == {**expected[1], (str(added.market), START): 5}
    assert remarks == []


def test_nothing_is_removed_when_the_manifest_and_a_file_are_lost(store: PriceStore) -> None:
    (store.root / "manifest.json").unlink()
    (lost, *_) = store.root.glob("types-*")
    lost.unlink()
    before = sorted(path.name for path in store.root.iterdir())
    with pytest.raises(StoreError, match=r"a file is missing .*types-"):
        store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market(), START, 5)])))
    assert sorted(path.name for path in store.root.iterdir()) == before
    with pytest.raises(StoreError, match=r"a file is missing .*types-"):
        answers(store)


def test_without_the_manifest_a_damaged_segment_is_not_left_out(store: PriceStore) -> None:
    path = segment_paths(store)[0]
    path.write_bytes(path.read_bytes()[:-1])
    (store.root / "manifest.json").unlink()
    with pytest.raises(StoreError, match="is damaged"):
        store.size()
    with pytest.raises(StoreError, match="is damaged"):
        store.commit(FetchedRows())
    assert {flaw.file for flaw in store.inspect().flaws} == {path.name, "manifest.json"}


def test_a_manifest_from_before_removes_nothing(store: PriceStore) -> None:
    """As when somebody puts an old copy of it back."""
    old = (store.root / "manifest.json").read_text()
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("a.large"), START, 5)])))
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("b.large"), START, 5)])))
    newer = set(segment_paths(store))
    (store.root / "manifest.json").write_text(old)
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("c.large"), START, 5)])))
    assert newer <= set(store.root.iterdir())


def earlier_version(root: Path) -> None:
    """A store as earlier versions wrote it: no number, no checksum, and names without a digest."""
    root.mkdir()
    entries = []
    for seed in range(2):
        table = PriceTable.of(random_batch(seed, markets=3, rows=300))
        path = root / f"prices-{seed:032x}.parquet"
        write_segment(path, table)
        span = int(table.times.min()), int(table.times.max())
        entry = {
            "name": path.name,
            "rows": len(table),
            "bytes": path.stat().st_size,
            "first": span[0],
            "last": span[1],
        }
        entries.append({**entry, "corrections": 0})
    content = {"format": 2, "segments": entries, "facts": {}, "covered": {"aws/us-east-1": [1, 2]}}
    (root / "manifest.json").write_text(json.dumps(content, indent=1))


def test_a_store_of_an_earlier_version_describes_itself_after_the_next_commit(
    tmp_path: Path,
) -> None:
    earlier_version(tmp_path / "prices")
    store = PriceStore(tmp_path / "prices")
    before = contents(store.table())
    assert len(before) > 500
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("new.large"), START, 5)])))
    assert len(segment_paths(store)) == 3
    assert set(store.root.glob("*.parquet")) == set(segment_paths(store))
    (store.root / "manifest.json").unlink()
    assert contents(store.table()) == {**before, (str(market("new.large")), START): 5}
    assert store.covered == {"aws/us-east-1": Span(1, 2)}
    assert upkeep.rebuilt(store.root).number > 0


def test_a_store_of_an_earlier_version_without_its_manifest_keeps_its_prices(
    tmp_path: Path,
) -> None:
    earlier_version(tmp_path / "prices")
    store = PriceStore(tmp_path / "prices")
    before = contents(store.table())
    (store.root / "manifest.json").unlink()
    assert contents(store.table()) == before
    store.commit(FetchedRows(prices=PriceBatch.of([PriceEvent(market("new.large"), START, 5)])))
    assert contents(store.table()) == {**before, (str(market("new.large")), START): 5}


def test_files_of_a_commit_that_was_not_completed_are_removed(
    store: PriceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, before = answers(store), set(store.root.iterdir())

    def dying(source: Path, target: Path) -> Path:
        if target.name == "manifest.json":
            raise KeyboardInterrupt
        return source.rename(target)

    event = FetchedRows(prices=PriceBatch.of([PriceEvent(market("a.large"), START, 5)]))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", dying)
        patch.setattr("pricing_data.store.manifest.remove_strays", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            store.commit(event)
    assert len(set(store.root.iterdir()) - before) == 2
    assert answers(store) == expected
    store.commit(FetchedRows())
    assert set(store.root.iterdir()) == before
