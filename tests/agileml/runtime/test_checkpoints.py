"""Checkpoints in a blob store, and the queue in front of a slow disk."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from agileml.params.layout import State
from agileml.protocol.actions import Save
from agileml.protocol.messages import Tally, Version
from agileml.runtime.blob_store import FileBlobStore, UnreadableBlob
from agileml.runtime.checkpoints import CheckpointQueue, DamagedCheckpoint, ModelCheckpoints

STATE: State = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 4)), np.array([7, 8], np.int64)]


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


def test_a_missing_or_damaged_checkpoint_is_refused(checkpoints: ModelCheckpoints, tmp_path: Path) -> None:
    with pytest.raises(UnreadableBlob, match="cannot be read"):
        checkpoints.load(0, 1)
    checkpoints.save(0, version(1))
    path = tmp_path / "checkpoints" / "p0-c1.checkpoint"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UnreadableBlob, match=r"p0-c1\.checkpoint is damaged"):
        checkpoints.load(0, 1)


def test_a_checkpoint_under_the_name_of_another_clock_is_refused(checkpoints: ModelCheckpoints, tmp_path: Path) -> None:
    checkpoints.save(0, version(1))
    (tmp_path / "checkpoints" / "p0-c1.checkpoint").rename(tmp_path / "checkpoints" / "p0-c2.checkpoint")
    with pytest.raises(DamagedCheckpoint, match="holds clock 1, not 2"):
        checkpoints.load(0, 2)


def test_only_earlier_checkpoints_are_deleted(checkpoints: ModelCheckpoints, tmp_path: Path) -> None:
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
    queue = CheckpointQueue()
    assert queue.next() is None
    written = list[tuple[int, int]]()
    for clock in range(1, 31):
        for partition in range(3):
            queue.add(save(partition, clock))
        # The disk writes one partition while the job does two clocks.
        if clock % 2 == 0:
            one = queue.next()
            assert one is not None
            written.append((one.version.clock, one.partition))
    assert [partition for _, partition in written] == [0, 1, 2] * 5
    assert [clock for clock, partition in written if partition == 0] == [clock for clock, p in written if p == 2]
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
    assert written == added
