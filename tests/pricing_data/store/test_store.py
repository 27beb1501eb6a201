from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from pricing_data.availability import Interruption
from pricing_data.catalog import InstanceType, OnDemandPrice
from pricing_data.errors import StoreError
from pricing_data.fetched_rows import FetchedRows, PriceBatch, PriceEvent
from pricing_data.query import QueryResult, query
from pricing_data.store import Committed, PriceStore
from pricing_data.store.facts import INTERRUPTIONS
from pricing_data.store.table import CorrectedPrices
from pricing_data.units import SECOND, Span
from tests.pricing_data.histories import START, events, market, random_batch, segment_paths, stored
from tests.pricing_data.store.test_table import contents, expected


def prices(*rows: PriceEvent) -> FetchedRows:
    return FetchedRows(prices=PriceBatch.of(rows))


@settings(max_examples=40)
@given(st.lists(events(), max_size=6), st.booleans())
def test_the_content_does_not_depend_on_order_or_repetition(
    batches: list[list[PriceEvent]], compacted: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = PriceStore(Path(folder))
        for batch in [*batches, *reversed(batches)]:
            store.commit(prices(*batch))
            if compacted:
                store.compact()
        rows = [row for batch in batches for row in batch]
        assert contents(store.table()) == expected(rows)
        assert store.size()[0] == len(expected(rows))
        assert store.markets() == sorted({row.market for row in rows}, key=str)


def test_new_known_and_conflicting_rows_are_counted(store: PriceStore) -> None:
    first, later = PriceEvent(market(), START, 50), PriceEvent(market(), START + 1, 60)
    assert store.commit(prices(first, first)) == Committed(added=1, known=1)
    assert store.commit(prices(first, later)) == Committed(added=1, known=1)
    assert store.commit(prices(first._replace(price=40))) == Committed(conflicts=1)
    assert store.commit(prices(first._replace(price=70))) == Committed(conflicts=1)
    assert stored(store, market()).prices.tolist() == [70, 60]


def test_many_commits_leave_few_segments(store: PriceStore) -> None:
    for step in range(60):
        store.commit(prices(PriceEvent(market(), START + step, step + 1)))
    assert len(segment_paths(store)) <= 25
    store.compact()
    assert len(segment_paths(store)) <= 6
    assert stored(store, market()).prices.tolist() == list(range(1, 61))
    assert {path.name for path in store.root.glob("*.parquet")} == {
        path.name for path in segment_paths(store)
    }


def test_a_newer_fact_replaces_one_with_the_same_key(store: PriceStore) -> None:
    small, large = (
        InstanceType("aws", "c4.xlarge", 4, 7.5),
        InstanceType("aws", "c4.xlarge", 8, 7.5),
    )
    price = OnDemandPrice("aws", "us-east-1", "c4.xlarge", "linux", START, 199_000_000, "list")
    band = Interruption(market(), "monthly-bucket", START, 0.05, 0.1, "advisor")
    store.commit(FetchedRows(types=(small,), on_demand=(price,), interruptions=(band,)))
    store.commit(FetchedRows(types=(large,), on_demand=(price,), interruptions=(band,)))
    catalog = store.catalog()
    assert catalog.types == (large,)
    assert catalog.prices == (price,)
    assert store.facts(INTERRUPTIONS, "aws") == [band]
    assert store.catalog("gcp").types == ()


def test_touching_covered_spans_are_joined(store: PriceStore) -> None:
    for span in (Span(10, 20), Span(20, 30), Span(5, 12)):
        store.commit(FetchedRows(covered={"aws/us-east-1": span}))
    assert store.covered == {"aws/us-east-1": Span(5, 30)}
    store.commit(FetchedRows(covered={"aws/us-east-1": Span(50, 60)}))
    assert store.covered == {"aws/us-east-1": Span(50, 60)}


def test_reading_an_empty_store_creates_no_folder(store: PriceStore) -> None:
    assert store.size() == (0, 0)
    assert (store.markets(), contents(store.table()), store.catalog().types) == ([], {}, ())
    assert not store.root.exists()


def test_a_manifest_of_a_later_version_is_reported(store: PriceStore) -> None:
    store.commit(prices(PriceEvent(market(), START, 1)))
    (store.root / "manifest.json").write_text('{"format": 4}')
    with pytest.raises(StoreError, match=r"format 4.*upgrade spotctl"):
        store.markets()
    with pytest.raises(StoreError, match=r"format 4.*upgrade spotctl"):
        store.commit(prices(PriceEvent(market(), START + 1, 1)))
    assert (store.root / "manifest.json").read_text() == '{"format": 4}'


def test_a_damaged_segment_is_reported(store: PriceStore) -> None:
    store.commit(prices(PriceEvent(market(), START, 1)))
    path = segment_paths(store)[0]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(
        StoreError, match=r"prices-.*parquet is damaged .*backup.* or move .* away and import again"
    ):
        store.markets()


def test_a_missing_segment_is_reported(store: PriceStore) -> None:
    store.commit(prices(PriceEvent(market(), START, 1)))
    segment_paths(store)[0].unlink()
    with pytest.raises(StoreError, match="a file is missing"):
        store.markets()


def test_a_home_that_is_not_writable_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot write .*file/prices: Not a directory"):
        PriceStore(tmp_path / "file" / "prices").commit(prices(PriceEvent(market(), START, 1)))


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine does not allow mounting a small disk")
    try:
        store = PriceStore(disk / "prices")
        store.commit(prices(PriceEvent(market(), START, 1)))
        with pytest.raises(StoreError, match="is full; free some space"):
            store.commit(FetchedRows(prices=random_batch(seed=2, markets=5, rows=200_000)))
        assert stored(store, market()).prices.tolist() == [1]
        assert store.commit(prices(PriceEvent(market(), START + 1, 2))) == Committed(added=1)
        assert len(list(store.root.glob("*.parquet"))) == 2
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_file_size_limit_leaves_the_store_as_it_was(store: PriceStore) -> None:
    """The same with a file size limit of the process, which needs no privilege."""
    store.commit(prices(PriceEvent(market(), START, 1)))
    script = f"""
import resource, signal
from pathlib import Path
from pricing_data.fetched_rows import FetchedRows
from pricing_data.store import PriceStore
from tests.pricing_data.histories import random_batch
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
PriceStore(Path({str(store.root)!r})).commit(FetchedRows(prices=random_batch(seed=2, markets=5, rows=200_000)))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True
    )
    assert "StoreError: price store: cannot write" in ended.stderr
    assert stored(store, market()).prices.tolist() == [1]
    assert len(list(store.root.glob("*"))) == 3


def test_other_files_in_the_folder_are_kept(store: PriceStore) -> None:
    store.commit(prices(PriceEvent(market(), START + 9, 1)))
    (store.root / "notes.txt").write_text("mine")
    (store.root / "folder").mkdir()
    (store.root / f"prices-{'0' * 32}.parquet").write_text("of an unknown writer")
    (store.root / f"prices-{'1' * 32}.parquet.partial").write_text("left by a writer that died")
    for step in range(3):
        store.commit(prices(PriceEvent(market(), START + step, 1)))
    store.compact()
    names = {path.name for path in store.root.iterdir() if path not in segment_paths(store)}
    assert names == {"notes.txt", "folder", "lock", "manifest.json", f"prices-{'0' * 32}.parquet"}


def test_a_segment_with_flipped_bits_is_reported(store: PriceStore) -> None:
    store.commit(FetchedRows(prices=random_batch(seed=4, markets=3, rows=3000)))
    path = segment_paths(store)[0]
    whole = path.read_bytes()
    good = contents(store.table())
    for at in range(100, len(whole) - 100, len(whole) // 25):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        assert content_of(store) in (good, "damaged")
    path.write_bytes(whole)
    assert contents(store.table()) == good


def content_of(store: PriceStore) -> object:
    """The store's content, or that it is damaged."""
    try:
        return contents(store.table())
    except StoreError as error:
        return "damaged" if "is damaged" in str(error) else error


def test_contradictory_rows_of_one_batch_are_counted(store: PriceStore) -> None:
    moment = PriceEvent(market(), START, 10)
    done = store.commit(
        prices(
            moment, moment._replace(price=20), moment._replace(price=15), moment._replace(price=20)
        )
    )
    assert done == Committed(added=1, known=1, conflicts=2)


def test_a_writer_reports_a_missing_file(store: PriceStore) -> None:
    store.commit(prices(PriceEvent(market(), START, 1)))
    segment_paths(store)[0].unlink()
    with pytest.raises(StoreError, match=r"a file is missing .*restore it .*, or move .* away"):
        store.commit(prices(PriceEvent(market(), START, 2)))


def _counted(paths: list[Path], corrected: CorrectedPrices) -> QueryResult:
    return query(paths, corrected, "select count(*), sum(round(usd_per_hour * 1e9)) from prices")


def test_a_correction_takes_one_small_segment_and_every_reader_sees_it(store: PriceStore) -> None:
    rows = [
        PriceEvent(market(f"t{n}"), START + step * SECOND, 100_000)
        for n in range(9)
        for step in range(50)
    ]
    store.commit(FetchedRows(prices=PriceBatch.of(rows)))
    (before,) = segment_paths(store)
    wrong = rows[123]
    done = store.commit(FetchedRows(prices=PriceBatch.of([wrong._replace(price=123_457)])))
    assert done.conflicts == 1
    segments = segment_paths(store)
    assert before in segments
    assert len(segments) == 2
    expected = {(str(row.market), row.time): row.price for row in rows} | {
        (str(wrong.market), wrong.time): 123_457
    }
    for _ in range(2):
        assert contents(store.table()) == expected
        assert store.size()[0] == len(rows)
        assert store.over_segments(_counted).rows == [(len(rows), sum(expected.values()))]
        while len(segment_paths(store)) > 1:
            more = [PriceEvent(market("z"), START + step * SECOND, 7) for step in range(500)]
            expected |= {(str(row.market), row.time): row.price for row in more}
            rows += more
            store.commit(FetchedRows(prices=PriceBatch.of(more)))
            store.compact()
