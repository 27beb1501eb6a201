"""Processes that write to the store are killed at random times."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pricing_data.fetched_rows import FetchedRows, PriceBatch
from pricing_data.store import PriceStore
from pricing_data.store.table import PriceTable
from tests.pricing_data.histories import random_batch, segment_paths

BATCHES, ROWS, MARKETS = 8, 40_000, 20

WRITER = """
import sys
from pathlib import Path
from tests.pricing_data.store.test_crash import batches
from pricing_data.fetched_rows import FetchedRows
from pricing_data.store import PriceStore
store = PriceStore(Path(sys.argv[1]))
order = list(batches())
print("ready", flush=True)
for batch in order if sys.argv[2] == "forward" else reversed(order):
    store.commit(FetchedRows(prices=batch))
    print("committed", flush=True)
store.compact()
"""


def batches() -> list[PriceBatch]:
    """The same batches in every process; no two share a market."""
    return [
        PriceBatch(
            tuple(type(m)(m.cloud, m.region, f"zone{number}", m.instance_type) for m in b.markets),
            b.codes,
            b.times,
            b.prices,
        )
        for number in range(BATCHES)
        for b in [random_batch(seed=number, markets=MARKETS, rows=ROWS)]
    ]


def start_writer(root: Path, direction: str = "forward") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, root, direction], stdout=subprocess.PIPE, text=True
    )


def whole_batches(store: PriceStore) -> int:
    """The number of batches in the store; each must be complete or absent."""
    stored = {one.market: one for one in store.table()}
    present = 0
    for batch in batches():
        expected = list(PriceTable.of(batch))
        held = [stored.pop(one.market) for one in expected if one.market in stored]
        assert held in ([], expected)
        present += bool(held)
    assert not stored
    return present


@pytest.mark.slow
def test_after_a_kill_it_has_all_or_none_of_each_batch(tmp_path: Path) -> None:
    """Ten stores, so that each kill hits a busy writer; then one of them is completed."""
    chance = random.Random(20160224)
    held = []
    for number in range(10):
        store = PriceStore(tmp_path / f"prices{number}")
        with start_writer(store.root) as writer:
            assert writer.stdout is not None
            for _ in range(1 + number % 3):
                # On a busy machine a writer may start late: some kills come after it has stored
                # something.
                writer.stdout.readline()
            time.sleep(chance.random() * 0.3)
            writer.send_signal(signal.SIGKILL)
        held.append(whole_batches(store))
    assert 0 < sum(held) < 10 * BATCHES, held
    with start_writer(store.root) as writer:
        writer.communicate()
        assert writer.returncode == 0
    assert whole_batches(store) == BATCHES
    assert {path.name for path in store.root.glob("*.parquet")} == {
        path.name for path in segment_paths(store)
    }


def test_two_concurrent_writers_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices")
    with start_writer(store.root) as one, start_writer(store.root, "backward") as other:
        while one.poll() is None or other.poll() is None:
            store.table()  # a reader beside two writers always sees a whole store
        assert (one.returncode, other.returncode) == (0, 0)
    assert whole_batches(store) == BATCHES
    assert store.size()[0] == sum(len(PriceTable.of(batch)) for batch in batches())


def test_a_commit_that_returned_survives_a_kill(tmp_path: Path) -> None:
    store = PriceStore(tmp_path / "prices")
    with start_writer(store.root) as writer:
        assert writer.stdout is not None
        seen = 0
        while seen < 3:
            seen += writer.stdout.readline() == "committed\n"
        writer.send_signal(signal.SIGKILL)
    assert whole_batches(store) >= 3
    store.commit(FetchedRows())
