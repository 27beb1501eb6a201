"""Checkpoints in a blob store, and the queue in front of a slow disk."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from agileml.params.layout import PartitionState
from agileml.protocol.actions import Save
from agileml.protocol.messages import Tally, Version
from agileml.runtime.blob_store import FileBlobStore, UnreadableBlob
from agileml.runtime.checkpoints import (
    CheckpointCleaner,
    CheckpointQueue,
    DamagedCheckpoint,
    ModelCheckpoints,
)

STATE: PartitionState = [
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.zeros((0, 4)),
    np.array([7, 8], np.int64),
]


@pytest.fixture
def checkpoints(tmp_path: Path) -> ModelCheckpoints:
    return ModelCheckpoints(FileBlobStore(tmp_path))


def version(clock: int) -> Version:
    return Version(clock, Tally(40, 1234567890123456789), STATE)


def test_a_version_comes_back_as_it_was(checkpoints: ModelCheckpoints) -> None:
    checkpoints.save(3, version(5))
    loaded = checkpoints.load(3, 5)
    assert (loaded.clock, loaded.tally) == (5, Tally(40, 1234567890123456789))
    for array, written in zip(loaded.state, STATE, strict=True):
        assert array.dtype == written.dtype
        np.testing.assert_array_equal(array, written, strict=True)
        assert array.flags.writeable


def test_a_missing_or_damaged_checkpoint_is_refused(
    checkpoints: ModelCheckpoints, tmp_path: Path
) -> None:
    with pytest.raises(UnreadableBlob, match="cannot be read"):
        checkpoints.load(0, 1)
    checkpoints.save(0, version(1))
    path = tmp_path / "checkpoints" / "p0-c1.checkpoint"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UnreadableBlob, match=r"p0-c1\.checkpoint is damaged"):
        checkpoints.load(0, 1)


def test_a_checkpoint_under_the_name_of_another_clock_is_refused(
    checkpoints: ModelCheckpoints, tmp_path: Path
) -> None:
    checkpoints.save(0, version(1))
    (tmp_path / "checkpoints" / "p0-c1.checkpoint").rename(
        tmp_path / "checkpoints" / "p0-c2.checkpoint"
    )
    with pytest.raises(DamagedCheckpoint, match="holds clock 1, not 2"):
        checkpoints.load(0, 2)


def test_only_earlier_checkpoints_are_deleted(
    checkpoints: ModelCheckpoints, tmp_path: Path
) -> None:
    for clock in (2, 9, 10):
        checkpoints.save(1, version(clock))
    (tmp_path / "checkpoints" / "notes.txt").write_text("not a checkpoint")
    checkpoints.delete_before(9)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["notes.txt", "p1-c10.checkpoint", "p1-c9.checkpoint"]


def test_a_clock_is_complete_once_every_partition_has_it(checkpoints: ModelCheckpoints) -> None:
    assert checkpoints.complete(2) == []
    for partition, clock in ((0, 2), (0, 4), (0, 6), (1, 2), (1, 4), (7, 6)):
        checkpoints.save(partition, version(clock))
    assert checkpoints.complete(2) == [4, 2]


def save(partition: int, clock: int) -> Save:
    return Save(1, partition, Version(clock, Tally(1, 1), []))


def test_a_slow_disk_finishes_the_clock_it_began_and_skips_to_the_latest() -> None:
    queue = CheckpointQueue(writers=1)
    assert queue.next() is None
    written = list[tuple[int, int]]()
    for clock in range(1, 31):
        for partition in range(3):
            queue.add(save(partition, clock))
        # The disk writes one partition while the job does two clocks.
        if clock % 2 == 0:
            one = queue.next()
            assert one is not None
            queue.finish(one)
            written.append((one.version.clock, one.partition))
    assert [partition for _, partition in written] == [0, 1, 2] * 5
    assert [clock for clock, partition in written if partition == 0] == [
        clock for clock, p in written if p == 2
    ]
    assert [clock for clock, partition in written if partition == 0] == [2, 8, 14, 20, 26]


@pytest.mark.parametrize("seed", range(20))
def test_a_fast_disk_writes_every_version(seed: int) -> None:
    rng, queue, added, written = random.Random(seed), CheckpointQueue(), list[Save](), list[Save]()
    for clock in range(1, 8):
        for partition in rng.sample(range(4), 4):
            added.append(save(partition, clock))
            queue.add(added[-1])
        while (one := queue.next()) is not None:
            written.append(one)
            queue.finish(one)
    assert written == added


def test_a_few_partitions_are_written_at_the_same_time() -> None:
    queue = CheckpointQueue(writers=2)
    for clock in (1, 2, 3):
        for partition in range(3):
            queue.add(save(partition, clock))
        if clock == 1:
            first, second = queue.next(), queue.next()
    assert first is not None
    assert second is not None
    assert [(one.version.clock, one.partition) for one in (first, second)] == [(1, 0), (1, 1)]
    assert queue.next() is None
    left = []
    queue.finish(first)
    queue.finish(second)
    while (one := queue.next()) is not None:
        left.append((one.version.clock, one.partition))
        queue.finish(one)
    # The clock that was started is completed, and only the latest of the others is written.
    assert left == [(1, 2), (3, 0), (3, 1), (3, 2)]


def test_old_checkpoints_are_deleted_once_the_latest_is_on_record(
    checkpoints: ModelCheckpoints,
) -> None:
    synced: list[list[int]] = []
    cleaner = CheckpointCleaner(checkpoints, lambda: synced.append(checkpoints.complete(1)))
    for clock in range(1, 7):
        checkpoints.save(0, version(clock))
        cleaner.keep_from(clock)
        assert cleaner.finished is not None
        cleaner.finished.result()
    assert checkpoints.complete(1) == [6, 5]
    # The record was made durable before the deletion.
    assert synced[-1] == [6, 5, 4]


def test_a_store_that_cannot_delete_does_not_end_the_controller(
    checkpoints: ModelCheckpoints,
) -> None:
    def fails() -> None:
        raise OSError("the disk is gone")

    cleaner = CheckpointCleaner(checkpoints, fails)
    cleaner.keep_from(3)
    assert cleaner.finished is not None
    assert cleaner.finished.exception() is None
