"""What the local engine is made of: checkpoints, the controller's memory, the count of updates."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from agileml.core.events import Iteration
from agileml.core.work import Plan
from agileml.job import Counters
from agileml.params.layout import State
from agileml.policies.report import Clocked
from agileml.protocol.actions import Save
from agileml.protocol.messages import Tally, Version
from agileml.runtime import controller_process
from agileml.runtime.blob_store import Backlog, Checkpoints, DamagedCheckpoint
from agileml.runtime.controller_process import Memory
from agileml.runtime.results import counted
from agileml.stopping import Observation

STATE: State = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((0, 4)), np.array([7, 8], np.int64)]


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def files(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "checkpoints").iterdir())


def test_a_version_comes_back_as_it_was(checkpoints: Checkpoints) -> None:
    checkpoints.save(3, Version(5, Tally(40, 1234567890123456789), STATE))
    version = checkpoints.load(3, 5)
    assert (version.clock, version.tally) == (5, Tally(40, 1234567890123456789))
    for array, written in zip(version.state, STATE, strict=True):
        assert array.dtype == written.dtype
        np.testing.assert_array_equal(array, written, strict=True)
        assert array.flags.writeable


def test_any_changed_bit_is_refused(checkpoints: Checkpoints, tmp_path: Path) -> None:
    checkpoints.save(0, Version(1, Tally(1, 1), STATE))
    path = tmp_path / "checkpoints" / "p0-c1.checkpoint"
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(DamagedCheckpoint, match=r"p0-c1\.checkpoint is damaged"):
            checkpoints.load(0, 1)


@pytest.mark.parametrize("kept", [0, 10, 150, -1])
def test_a_truncated_file_is_refused(checkpoints: Checkpoints, tmp_path: Path, kept: int) -> None:
    checkpoints.save(0, Version(1, Tally(1, 1), STATE))
    path = tmp_path / "checkpoints" / "p0-c1.checkpoint"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedCheckpoint):
        checkpoints.load(0, 1)


def test_a_missing_file_is_refused(checkpoints: Checkpoints) -> None:
    with pytest.raises(DamagedCheckpoint, match="cannot be read"):
        checkpoints.load(0, 1)


def test_another_clock_under_this_name_is_refused(checkpoints: Checkpoints, tmp_path: Path) -> None:
    checkpoints.save(0, Version(1, Tally(1, 1), STATE))
    (tmp_path / "checkpoints" / "p0-c1.checkpoint").rename(tmp_path / "checkpoints" / "p0-c2.checkpoint")
    with pytest.raises(DamagedCheckpoint):
        checkpoints.load(0, 2)


def test_old_ones_go_and_nothing_else(checkpoints: Checkpoints, tmp_path: Path) -> None:
    for clock in (2, 9, 10):
        checkpoints.save(1, Version(clock, Tally(1, 1), STATE))
    checkpoints.forget_before(9)
    assert files(tmp_path) == ["p1-c10.checkpoint", "p1-c9.checkpoint"]


def save(partition: int, clock: int) -> Save:
    return Save(1, partition, Version(clock, Tally(1, 1), []))


def test_of_clocks_that_wait_only_the_latest_is_written_and_one_begun_is_written_to_its_end() -> None:
    backlog = Backlog()
    assert backlog.next() is None
    written = list[tuple[int, int]]()
    for clock in range(1, 31):
        for partition in range(3):
            backlog.add(save(partition, clock))
        # The disk writes one partition while the job does two clocks.
        if clock % 2 == 0:
            one = backlog.next()
            assert one is not None
            written.append((one.version.clock, one.partition))
    assert [partition for _, partition in written] == [0, 1, 2] * 5
    assert [clock for clock, partition in written if partition == 0] == [clock for clock, p in written if p == 2]
    assert [clock for clock, partition in written if partition == 0] == [2, 8, 14, 20, 26]


@pytest.mark.parametrize("seed", range(20))
def test_a_disk_that_is_quick_enough_writes_everything(seed: int) -> None:
    chance, backlog, given, written = random.Random(seed), Backlog(), list[Save](), list[Save]()
    for clock in range(1, 8):
        for partition in chance.sample(range(4), 4):
            given.append(save(partition, clock))
            backlog.add(given[-1])
        while (one := backlog.next()) is not None:
            written.append(one)
    assert written == given


def test_memory_gives_back_the_latest(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    memory = Memory(path)
    assert (memory.record, memory.history) == (None, [])
    memory.remember({"epoch": 1})
    memory.observe(Observation(1, 0.5, 2.0))
    memory.remember({"epoch": 2})
    memory.close()
    again = Memory(path)
    assert (again.record, again.history) == ({"epoch": 2}, [Observation(1, 0.5, 2.0)])
    again.close()


@pytest.mark.parametrize("unfinished", [b"{", b'{"record": {"epoch": 9}}', b"\xff"])
def test_memory_passes_over_a_line_without_an_end(tmp_path: Path, unfinished: bytes) -> None:
    path = tmp_path / "memory"
    memory = Memory(path)
    memory.remember({"epoch": 1})
    memory.close()
    with path.open("ab") as file:
        file.write(unfinished)
    again = Memory(path)
    assert again.record == {"epoch": 1}
    again.remember({"epoch": 2})
    again.close()
    last = Memory(path)
    assert last.record == {"epoch": 2}
    last.close()


def iteration(clock: int) -> Iteration:
    return Iteration(clock, 0.25, 2, 1, 3, Clocked(4, 0.5, 6, 7, 8, 0.9, 10), 11, ("t1 ready", "t2 lost"))


def test_memory_keeps_all_iterations_that_were_not_heard(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    for clock in range(1, 501):
        memory.log(iteration(clock))
    memory.heard(80)
    memory.remember({"epoch": 2})
    memory.close()
    for _ in range(2):
        again = Memory(tmp_path / "memory")
        assert list(again.iterations) == [iteration(clock) for clock in range(81, 501)]
        assert again.record == {"epoch": 2}
        again.close()


def test_memory_is_as_large_as_what_is_of_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_process, "MOST_WRITTEN", 2000)
    path = tmp_path / "memory"
    memory = Memory(path)
    for number in range(200):
        memory.remember({"epoch": number, "members": ["x" * 100]})
        if number % 20 == 0:
            memory.observe(Observation(number, 0.5, 2.0))
        assert path.stat().st_size < 2000 + 10 * 100 + 2 * 200
        assert f'"epoch": {number},'.encode() in path.read_bytes()
    memory.close()
    again = Memory(path)
    assert (again.record or {})["epoch"] == 199
    assert [one.clock for one in again.history] == list(range(0, 200, 20))
    again.close()
    assert [one.name for one in tmp_path.iterdir()] == ["memory"]


PLAN = Plan((4, 4), batch=0, chunk_items=2)


def version(chunks: int, fingerprint: int) -> Version:
    return Version(2, Tally(chunks, fingerprint), [])


def test_updates_are_counted() -> None:
    right = PLAN.expected_fingerprint([1, 2])
    assert counted(PLAN, 2, (version(8, right),) * 2) == Counters(16, 16, 0, 0)
    assert counted(PLAN, 2, (version(8, right), version(7, right - 1))) == Counters(16, 15, 1, 0)
    assert counted(PLAN, 2, (version(8, right), version(10, right + 1))) == Counters(16, 18, 0, 2)
    assert counted(PLAN, 2, (version(8, right), version(8, right + 1))) == Counters(16, 16, 1, 1)
