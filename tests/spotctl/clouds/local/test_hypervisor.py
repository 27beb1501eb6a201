"""The hypervisor of a local machine, each time in a real process: it warns, evicts, terminates and
records the end.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotctl.agent.container.payload import Payload
from spotctl.agent.container.processes import MARK, kill, marked
from spotctl.agent.files import replace_json
from spotctl.agent.lease.lease_files import LeaseHolder
from spotctl.agent.link.wire import LinkClient
from spotctl.clouds.local.clock import MarketClock
from spotctl.clouds.local.machine_file import HOST, MachineFile, PlannedEnd
from tests.spotctl.agent.agents import CODE, SECRET, python
from tests.spotctl.agent.test_machine import FAMILY, IGNORES_SIGTERM, SAVES_ON_SIGTERM
from tests.waiting import eventually

SECOND = 1_000_000
FOREVER = 10**6 * SECOND


class LocalMachine:
    """A machine's folder, and the provider's side of it. Market time passes as on the wall, from
    0."""

    def __init__(self, root: Path) -> None:
        self.folder, self.clock = root / "machines" / "m" / "0", MarketClock(root / "clock.json")
        self.folder.mkdir(parents=True)
        self.clock.start(0, 1.0)
        self.file = MachineFile("m-0", 7, PlannedEnd(0), FOREVER, FOREVER, None)

    def plan(self, taken_at: int | None = None, warned_at: int | None = None) -> None:
        self.file = replace(self.file, plan=PlannedEnd(0, taken_at, warned_at))

    def read(self, name: str) -> Any:  # noqa: ANN401 - JSON
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def start(self, payload: Payload | None = None) -> None:
        self.file = replace(self.file, payload=payload)
        replace_json(self.folder / "machine.json", self.file.to_json())
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        given = {
            "clock": str(self.clock.path),
            "machines": [(lock, str(self.folder), SECRET.hex())],
        }
        with (self.folder.parent / "agent.log").open("wb") as log:
            subprocess.run(
                [sys.executable, "-E", "-S", "-m", "spotctl.clouds.local.hypervisor"],
                cwd=CODE,
                env={**os.environ, MARK: str(self.folder.parent)},
                pass_fds=[lock],
                input=json.dumps(given).encode(),
                start_new_session=True,
                stderr=log,
                check=True,
            )
        os.close(lock)

    def terminate(self) -> int:
        at = self.clock.now()
        replace_json(self.folder / "terminate.json", {"at": at})
        return at

    def call(self, operation: str, **arguments: object) -> dict[str, Any]:
        client = LinkClient((HOST, self.read("state.json")["port"]), "m-0", SECRET, 30.0)
        try:
            return client.call(operation, **arguments)
        finally:
            client.close()

    @property
    def hypervisor(self) -> int:
        return int(self.read("state.json")["pid"])

    @property
    def output(self) -> str:
        path = self.folder / "output"
        return path.read_text() if path.exists() else ""

    @property
    def holds_its_lock(self) -> bool:
        lock = os.open(self.folder / "lock", os.O_RDWR)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    @property
    def running(self) -> list[int]:
        """The processes that were started on the machine, without hypervisor and agent."""
        return [pid for pid, mark in marked() if mark == self.folder]

    def ended(self) -> tuple[int, str]:
        """How it ended. Once that is recorded, nothing of it runs any more."""
        eventually(lambda: self.read("end.json"))
        assert self.running == []
        eventually(lambda: not self.holds_its_lock)
        end = self.read("end.json")
        return end["at"], end["reason"]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[LocalMachine]:
    yield LocalMachine(tmp_path)
    for pid, mark in marked():
        if mark.is_relative_to(tmp_path):
            kill(pid)


def test_it_survives_its_starter_and_ends_with_the_lease(machine: LocalMachine) -> None:
    machine.start()
    assert machine.holds_its_lock
    assert os.getsid(machine.hypervisor) == machine.hypervisor
    until = machine.clock.now() + SECOND // 2
    machine.call("renew", until=until, seconds=0.5)
    assert machine.ended() == (until, "lease ended")


def test_no_lease_goes_beyond_the_history_of_prices(machine: LocalMachine) -> None:
    closes_at = (
        machine.clock.now() + 10 * SECOND
    )  # its start alone takes seconds on a busy computer
    machine.file = replace(machine.file, closes_at=closes_at)
    machine.start()
    machine.call("renew", until=FOREVER, seconds=1000.0)
    assert machine.ended() == (closes_at, "lease ended")


@pytest.mark.parametrize("code", [IGNORES_SIGTERM, FAMILY])
def test_an_unwarned_eviction_kills_everything_at_its_moment(
    machine: LocalMachine, code: str
) -> None:
    taken_at = machine.clock.now() + 3 * SECOND
    machine.plan(taken_at)
    machine.start(python(code, grace_seconds=60.0))
    eventually(lambda: machine.output == "here\n")
    assert machine.ended() == (taken_at, "evicted")
    assert machine.output == "here\n"
    assert not (machine.folder / "job" / "notice.json").exists()


@pytest.mark.slow
def test_a_warned_eviction_is_announced_over_the_link(machine: LocalMachine) -> None:
    taken_at = machine.clock.now() + 5 * SECOND
    machine.plan(taken_at, machine.clock.now() + SECOND)
    machine.start(python(IGNORES_SIGTERM, term_at_notice=True))
    eventually(lambda: machine.call("notices")["notices"])
    assert machine.call("notices")["notices"] == [
        {"kind": "evict", "until": taken_at, "source": "local"}
    ]
    notice = LeaseHolder(machine.folder / "job").notice()
    assert notice is not None
    assert notice.kind == "evict"
    assert machine.ended() == (taken_at, "evicted")


def test_a_terminated_machine_gives_its_payload_grace(machine: LocalMachine) -> None:
    machine.start(python(SAVES_ON_SIGTERM, grace_seconds=60.0))
    eventually(lambda: machine.output == "here\n")
    at = machine.terminate()
    assert machine.ended() == (at, "returned")
    assert machine.output == "here\nsaved\n"


def test_a_hung_agent_is_evicted_all_the_same(machine: LocalMachine) -> None:
    taken_at = machine.clock.now() + 2 * SECOND
    machine.plan(taken_at)
    machine.start(python(FAMILY))
    os.kill(machine.read("state.json")["agent"], signal.SIGSTOP)
    assert machine.ended() == (taken_at, "evicted")


def test_an_end_that_was_slept_through_is_dated_at_its_moment(machine: LocalMachine) -> None:
    """As when the computer is suspended over a warning, an eviction and the end of the lease."""
    taken_at = machine.clock.now() + 3 * SECOND
    machine.plan(taken_at, taken_at - 1000)
    machine.start(python(IGNORES_SIGTERM, grace_seconds=60.0))
    eventually(lambda: machine.output == "here\n")
    os.kill(machine.hypervisor, signal.SIGSTOP)
    eventually(lambda: machine.clock.now() > taken_at + SECOND // 10)
    os.kill(machine.hypervisor, signal.SIGCONT)
    assert machine.ended() == (taken_at, "evicted")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_hypervisor_that_is_told_to_end_reports_a_failure(
    machine: LocalMachine, number: signal.Signals
) -> None:
    machine.start(python(FAMILY, grace_seconds=0.1))
    eventually(lambda: machine.output == "here\n")
    os.kill(machine.hypervisor, number)
    assert machine.ended()[1] == "failed"


def test_a_killed_agent_is_a_failure_of_the_machine(machine: LocalMachine) -> None:
    machine.start(python(FAMILY))
    eventually(lambda: machine.output == "here\n")
    os.kill(machine.read("state.json")["agent"], signal.SIGKILL)
    assert machine.ended()[1] == "failed"


def test_a_killed_hypervisor_takes_agent_and_payload_along(machine: LocalMachine) -> None:
    machine.start(python(IGNORES_SIGTERM))
    eventually(lambda: machine.output == "here\n")
    os.kill(machine.hypervisor, signal.SIGKILL)
    eventually(lambda: not machine.holds_its_lock and not machine.running)
    assert machine.read("end.json") is None


def test_a_machine_without_its_folder_ends(machine: LocalMachine) -> None:
    machine.start(python(FAMILY))
    eventually(lambda: machine.output == "here\n")
    pid, agent = machine.hypervisor, machine.read("state.json")["agent"]
    shutil.rmtree(machine.folder)
    eventually(lambda: not machine.running and all(one not in (pid, agent) for one, _ in marked()))
    assert not machine.folder.exists()


@pytest.mark.parametrize("name", ["machine.json", "lease.json", "terminate.json"])
def test_an_unreadable_file_is_a_failure_and_not_a_machine_for_ever(
    machine: LocalMachine, name: str
) -> None:
    machine.start(python(FAMILY, grace_seconds=0.0))
    eventually(lambda: machine.output == "here\n")
    if name == "machine.json":
        (machine.folder / name).unlink()
    else:
        replace_json(machine.folder / name, {"nonsense": 1})
        eventually(lambda: name in (machine.folder.parent / "agent.log").read_text())
    assert machine.ended()[1] == "failed"


def test_an_end_before_the_beginning_runs_nothing(machine: LocalMachine) -> None:
    machine.file = replace(machine.file, lease_until=0)
    machine.start(python("print('ran')"))
    assert machine.ended() == (0, "lease ended")
    assert machine.read("state.json") is None
    assert machine.output == ""
