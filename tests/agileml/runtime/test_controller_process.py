"""The controller's memory: what a restarted controller finds."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from agileml.core.events import Iteration
from agileml.core.members import heartbeat_name
from agileml.job import Observation
from agileml.policies.stage import ClockSums
from agileml.runtime import controller_process
from agileml.runtime.controller_process import Memory
from agileml.transport import Identity
from agileml.transport.handshake import Reason


def test_a_restarted_controller_reads_the_latest_record(tmp_path: Path) -> None:
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


def test_a_complete_checkpoint_is_added_to_the_record(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    memory = Memory(path)
    memory.remember({"epoch": 1, "checkpoint": -1})
    memory.remember_checkpoint(3)
    memory.remember_checkpoint(4)
    memory.sync()
    memory.close()
    for _ in range(2):
        again = Memory(path)
        assert again.record == {"epoch": 1, "checkpoint": 4}
        again.close()


def test_a_name_belongs_to_its_process_also_after_restarts(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    owner, other = Identity("t1", "first"), Identity("t1", "second")
    memory = Memory(path)
    assert memory.refusal(other) is None
    memory.give(owner)
    memory.close()
    for _ in range(2):
        again = Memory(path)
        assert again.refusal(other) is Reason.TAKEN
        assert again.refusal(replace(other, name=heartbeat_name("t1"))) is Reason.TAKEN
        assert again.refusal(owner) is None
        again.close()


@pytest.mark.parametrize("torn", [b"{", b'{"record": {"epoch": 9}}', b"\xff"])
def test_a_torn_last_line_is_ignored(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "memory"
    memory = Memory(path)
    memory.remember({"epoch": 1})
    memory.close()
    with path.open("ab") as file:
        file.write(torn)
    again = Memory(path)
    assert again.record == {"epoch": 1}
    again.remember({"epoch": 2})
    again.close()
    last = Memory(path)
    assert last.record == {"epoch": 2}
    last.close()


def iteration(clock: int) -> Iteration:
    sums = ClockSums(4, 0.5, 6, 7, 8, 0.9, 10)
    return Iteration(
        clock, 0.25, 2, 1, 3, sums, 11, ("t1 ready", "t2 lost"), ((0, 0, 2), (1, 0, 2))
    )


def test_an_iteration_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    entry = asdict(iteration(1))
    del entry["accepted"]
    path.write_text(json.dumps({"iteration": entry}) + "\n")
    memory = Memory(path)
    assert list(memory.iterations) == [replace(iteration(1), accepted=())]
    memory.close()


def test_every_unacknowledged_iteration_is_kept(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "memory")
    for clock in range(1, 501):
        memory.log(iteration(clock))
    memory.acknowledge(80)
    memory.remember({"epoch": 2})
    memory.close()
    for _ in range(2):
        again = Memory(tmp_path / "memory")
        assert list(again.iterations) == [iteration(clock) for clock in range(81, 501)]
        assert again.record == {"epoch": 2}
        again.close()


def test_the_file_is_compacted_when_most_of_it_is_obsolete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_process, "REWRITE_BYTES", 2000)
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
