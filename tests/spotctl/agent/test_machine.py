"""The process of a machine, each time a real one: what it tells, what it kills, and that it ends."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from spotctl.agent.clock import MarketClock
from spotctl.agent.files import replace_json
from spotctl.agent.lease import LeaseHolder
from spotctl.agent.planned_ending import PlannedEnding
from spotctl.agent.processes import MARK, kill, marked

CODE = Path(__file__).parents[3]
SECOND = 1_000_000
FOREVER = 10**6 * SECOND
PATIENCE_SECONDS = 60.0

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("asked to end", flush=True))
print("here", flush=True)
while True: time.sleep(0.05)
"""
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), sys.exit(0)))
print("here", flush=True)
while True: time.sleep(0.05)
"""
# A child in the same group, and a grandchild that has left it as daemons do.
FAMILY = """
import os, time
if os.fork() == 0: time.sleep(1000)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(1000)
    os._exit(0)
os.wait()
print("here", flush=True)
time.sleep(1000)
"""
# One that has lost its mark, and is known by its group only.
NAMELESS = """
import os, time
child = os.fork()
if child == 0: os.execve("/bin/sleep", ["sleep", "1000"], {})
print(child, flush=True)
time.sleep(1000)
"""
SHOW = """
import os
print(os.environ["SPOTCTL_INDEX"], os.environ["COLOUR"], os.environ["SECRET"], os.path.basename(os.getcwd()))
"""


def eventually(happened: Callable[[], object]) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < give_up, "it never happened"
        time.sleep(0.01)


class Rig:
    """A machine's folder, and the provider's side of it. Market time passes as on the wall, from 0."""

    def __init__(self, root: Path) -> None:
        self.folder, self.clock = root / "machines" / "m" / "0", MarketClock(root / "clock.json")
        self.folder.mkdir(parents=True)
        self.clock.start(0, 1.0)
        self.write("fate.json", asdict(PlannedEnding(0)))
        self.write("lease.json", {"until": FOREVER})

    def write(self, name: str, values: dict[str, Any]) -> None:
        replace_json(self.folder / name, values)

    def read(self, name: str) -> Any:  # noqa: ANN401 - JSON
        path = self.folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def run(self, code: str, name: str = "work", **options: object) -> None:
        command = [sys.executable, "-S", "-c", code]
        self.write("work.json", {"name": name, "command": command, "index": 7, **options})

    def start(self) -> None:
        lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with (self.folder.parent / "agent.log").open("wb") as log:
            subprocess.run(
                [
                    *(sys.executable, "-E", "-S", "-m", "spotctl.agent.machine", str(self.clock.path)),
                    f"{lock}:{self.folder}",
                ],
                cwd=CODE,
                env={**os.environ, MARK: str(self.folder.parent), "SECRET": "hush"},
                pass_fds=[lock],
                start_new_session=True,
                stderr=log,
                check=True,
            )
        os.close(lock)

    @property
    def pid(self) -> int:
        return int(self.read("state.json")["pid"])

    @property
    def output(self) -> str:
        return (self.folder / "output").read_text()

    @property
    def alive(self) -> bool:
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
        """What was started for the machine, itself left out."""
        return [pid for pid, mark in marked() if mark == self.folder]

    def ended(self) -> tuple[int, str]:
        """How it ended. When that is told, nothing of it runs any more."""
        eventually(lambda: self.read("end.json"))
        assert self.running == []
        eventually(lambda: not self.alive)
        end = self.read("end.json")
        return end["at"], end["reason"]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    for pid, mark in marked():
        if mark.is_relative_to(tmp_path):
            kill(pid)


def test_it_lives_without_work_and_ends_with_its_lease(rig: Rig) -> None:
    rig.start()
    assert rig.alive
    assert os.getsid(rig.pid) == rig.pid
    until = rig.clock.now() + SECOND // 2
    rig.write("lease.json", {"until": until})
    assert rig.ended() == (until, "lease ended")


def test_what_it_runs_is_told_where_it_is_and_gets_its_secrets(rig: Rig) -> None:
    rig.run(SHOW, environment={"COLOUR": "red"})
    rig.start()
    eventually(lambda: rig.read("result.json"))
    assert rig.read("result.json") == {"name": "work", "code": 0}
    assert rig.output == "7 red hush work\n"
    assert rig.alive, "it waits for other work"
    everything = b"".join(path.read_bytes() for path in rig.folder.rglob("*.json"))
    assert b"hush" not in everything


@pytest.mark.parametrize(
    ("code", "result"), [("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9), (None, 127)]
)
def test_the_result_says_how_it_ended(rig: Rig, code: str | None, result: int) -> None:
    rig.run(code or "")
    if code is None:
        rig.write("work.json", {"name": "work", "command": ["/no/such/program"], "index": 0})
    rig.start()
    eventually(lambda: rig.read("result.json"))
    assert rig.read("result.json") == {"name": "work", "code": result}
    if code is None:
        assert "/no/such/program: cannot be started: " in rig.output


def test_new_work_takes_the_place_of_old(rig: Rig) -> None:
    rig.run(POLITE, "first", grace_seconds=60.0)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    rig.run("print('second')", "second")
    eventually(lambda: rig.read("result.json") == {"name": "second", "code": 0})
    assert rig.output == "here\nsaved\nsecond\n"
    rig.run("print('second again')", "second")
    rig.run("print('third')", "third")
    eventually(lambda: rig.read("result.json") == {"name": "third", "code": 0})
    assert rig.output.endswith("second\nthird\n")


@pytest.mark.parametrize("code", [STUBBORN, FAMILY])
def test_an_eviction_kills_all_without_asking(rig: Rig, code: str) -> None:
    rig.run(code, grace_seconds=60.0)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    assert len(rig.running) == (1 if code == STUBBORN else 3)
    taken_at = rig.clock.now() + SECOND // 2
    rig.write("fate.json", asdict(PlannedEnding(0, taken_at)))
    assert rig.ended() == (taken_at, "evicted")
    assert rig.read("notice.json") is None
    assert rig.output == "here\n"


def test_what_has_lost_its_mark_is_killed_with_its_group(rig: Rig) -> None:
    rig.run(NAMELESS)
    rig.start()
    eventually(lambda: rig.output.endswith("\n"))
    child = Path(f"/proc/{rig.output.strip()}")
    eventually(lambda: (child / "comm").read_text() == "sleep\n")
    rig.write("leave.json", {"at": rig.clock.now()})
    assert rig.ended()[1] == "returned"
    eventually(lambda: not child.exists())


@pytest.mark.parametrize("term", [True, False])
def test_a_notice_is_handed_on(rig: Rig, term: bool) -> None:
    rig.run(STUBBORN, term_at_notice=term)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    now = rig.clock.now()
    rig.write("fate.json", asdict(PlannedEnding(0, now + 2 * SECOND, now)))
    eventually(lambda: rig.read("notice.json"))
    assert rig.read("notice.json") == {"until": now + 2 * SECOND}
    holder = LeaseHolder(rig.folder / "job")
    eventually(holder.notice)
    notice = holder.notice()
    assert notice is not None
    assert (notice.kind, notice.source) == ("evict", "local")
    assert rig.ended() == (now + 2 * SECOND, "evicted")
    assert rig.output == ("here\nasked to end\n" if term else "here\n")


def test_the_jobs_lease_is_the_machines(rig: Rig) -> None:
    rig.run(STUBBORN)
    rig.start()
    holder = LeaseHolder(rig.folder / "job")
    first = holder.lease()
    rig.write("lease.json", {"until": rig.clock.now() + 100 * SECOND})
    eventually(lambda: holder.lease().number > first.number)
    assert holder.lease().ends < first.ends
    assert 90 < holder.lease().ends - time.monotonic() <= 100


def test_given_back_it_asks_its_work_to_end_first(rig: Rig) -> None:
    rig.run(POLITE, grace_seconds=60.0)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    at = rig.clock.now()
    rig.write("leave.json", {"at": at})
    assert rig.ended() == (at, "returned")
    assert rig.output == "here\nsaved\n"


def test_who_does_not_end_in_time_is_killed(rig: Rig) -> None:
    rig.run(STUBBORN, grace_seconds=0.2)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    rig.write("leave.json", {"at": rig.clock.now()})
    assert rig.ended()[1] == "returned"
    assert rig.output == "here\nasked to end\n"


def test_an_end_that_was_slept_through_counts_from_its_moment(rig: Rig) -> None:
    """The computer was suspended, or the process stopped, over a warning, an eviction and the end of the lease."""
    rig.run(STUBBORN, grace_seconds=60.0)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    os.kill(rig.pid, signal.SIGSTOP)
    now = rig.clock.now()
    rig.write("fate.json", asdict(PlannedEnding(0, now + 2000, now + 1000)))
    rig.write("lease.json", {"until": now + 3000})
    eventually(lambda: rig.clock.now() > now + 4000)
    os.kill(rig.pid, signal.SIGCONT)
    assert rig.ended() == (now + 2000, "evicted")
    assert rig.read("notice.json") is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_asked_to_end_by_a_signal_it_has_failed(rig: Rig, number: signal.Signals) -> None:
    rig.run(FAMILY)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    os.kill(rig.pid, number)
    assert rig.ended()[1] == "failed"


def test_killed_it_takes_its_work_along(rig: Rig) -> None:
    rig.run(STUBBORN)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    os.kill(rig.pid, signal.SIGKILL)
    eventually(lambda: not rig.alive and not rig.running)
    assert rig.read("end.json") is None


def test_without_its_folder_it_ends(rig: Rig) -> None:
    rig.run(FAMILY)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    pid = rig.pid
    shutil.rmtree(rig.folder)
    eventually(lambda: not rig.running and all(pid != one for one, _ in marked()))
    assert not rig.folder.exists()


@pytest.mark.parametrize("name", ["fate.json", "lease.json"])
def test_without_a_lease_or_a_fate_it_has_failed(rig: Rig, name: str) -> None:
    rig.start()
    (rig.folder / name).unlink()
    assert rig.ended()[1] == "failed"


@pytest.mark.parametrize("name", ["fate.json", "lease.json", "work.json"])
def test_a_file_that_is_not_understood_is_a_failure_and_not_a_machine_for_ever(rig: Rig, name: str) -> None:
    rig.run(FAMILY)
    rig.start()
    eventually(lambda: rig.output == "here\n")
    rig.write(name, {"nonsense": 1})
    assert rig.ended()[1] == "failed"
    assert name in (rig.folder.parent / "agent.log").read_text()


def test_an_end_before_the_beginning_runs_nothing(rig: Rig) -> None:
    rig.run("print('ran')")
    rig.write("lease.json", {"until": 0})
    rig.start()
    assert rig.ended() == (0, "lease ended")
    assert rig.read("state.json") is None
    assert not (rig.folder / "output").exists()


def test_it_loads_the_standard_library_and_its_own_package_only() -> None:
    shown = subprocess.run(
        [sys.executable, "-E", "-S", "-c", "import spotctl.agent.machine, sys; print(*sys.modules)"],
        cwd=CODE,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    strangers = {name.partition(".")[0] for name in shown} - sys.stdlib_module_names - {"spotctl", "__main__"}
    assert strangers == set()
