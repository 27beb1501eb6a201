"""The very line of the crontab, run as cron runs it, with a Python that works, breaks, or is
killed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import time

import pytest

from spotctl.nightly.install import CRON_ENVIRONMENT
from spotctl.nightly.state_dir import NightStart, StateDir
from tests.samples import NIGHT
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import COMMAND, processes
from tests.spotctl.nightly.hooks import Hook, hook
from tests.spotctl.nightly.test_install import table
from tests.spotctl.nightly.test_schedulers_crontab import as_cron_reads
from tests.spotctl.nightly.test_silence import no_room, small_disk
from tests.spotctl.nightly.timers import program, python
from tests.waiting import eventually

__all__ = ["small_disk", "table"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl"),
]


@dataclass
class CronNight:
    """A job that was installed with `spotctl nightly install`, and the line that cron has for
    it."""

    state_dir: StateDir
    python: Path
    receiver: Hook
    line: str

    def popen(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        words = ["/bin/sh", "-c", self.line]
        return subprocess.Popen(
            words,
            env=CRON_ENVIRONMENT,
            stdout=pipe,
            stderr=pipe,
            text=True,
            cwd="/",
            start_new_session=True,
        )

    def run(self) -> int:
        with self.popen() as started:
            started.communicate(timeout=300)
            return started.returncode

    @property
    def latest(self) -> NightStart:
        return self.state_dir.starts.read()[0][-1]

    def check(self) -> str:
        """What monitoring says; empty if all is well."""
        checked = spotctl("--home", self.state_dir.home, "nightly", "ls", "--check")
        assert checked.err == ""
        return checked.out if checked.code else ""


def cron_night(
    home: Path, folder: Path, table: Path, receiver: Hook, monkeypatch: pytest.MonkeyPatch
) -> CronNight:
    own = python(folder / "venv" / "bin" / "python")
    monkeypatch.setattr(sys, "executable", str(own))
    job = folder / "job.yaml"
    notify = "notify: {webhook: $A_HOOK, heartbeat: $A_BEAT}\n"
    job.write_text(COMMAND.format(run="'[ ! -f hang ] || sleep 60; [ ! -f fail ]'") + notify)
    installed = spotctl(
        "--home", home, "nightly", "install", job, "--at", "02:00", "--scheduler", "cron"
    )
    assert installed.code == 0, installed.err
    state_dir = StateDir(home.resolve(), "small")
    state_dir.environment.write_text(f"A_HOOK={receiver.url}\nA_BEAT='{receiver.url}/beat'\n")
    (line,) = (line for line in table.read_bytes().splitlines() if b"nightly run small" in line)
    return CronNight(state_dir, own, receiver, as_cron_reads(line))


@pytest.fixture
def night(tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CronNight]:
    with hook() as receiver:
        yield cron_night(tmp_path / "home", tmp_path, table, receiver, monkeypatch)
    assert not processes(tmp_path)


@NIGHT
def test_a_night_of_cron_is_recorded_from_begin_to_end(night: CronNight, tmp_path: Path) -> None:
    assert night.run() == 0
    assert (night.latest.status, night.latest.reported) == (0, True)
    assert [message["facts"]["outcome"] for message in night.receiver.got] == ["done"]
    assert [path.rpartition("/beat")[2] for path in night.receiver.beats] == ["/start", ""]
    assert night.check() == ""
    (listed,) = spotctl("nightly", "ls", "--json").json["nightly"]
    assert listed["last_night"]["replayed"] is True
    assert "replayed" in spotctl("nightly", "ls").out
    (tmp_path / "fail").touch()
    (night.state_dir.folder / "night.json").unlink()
    assert night.run() == 1
    # The night has reported the failure, so the script does not.
    assert [message["facts"]["outcome"] for message in night.receiver.got] == ["done", "failed"]
    assert "ended with: failed" in night.check()


def broken_package(night: CronNight) -> str:
    package = night.python.parent / "broken" / "spotctl"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import no_such_dependency\n")
    program(
        night.python,
        f'PYTHONPATH={package.parent} exec {shlex.quote(os.path.realpath("/proc/self/exe"))} "$@"',
    )
    return "ModuleNotFoundError: No module named no_such_dependency"


def no_environment(night: CronNight) -> str:
    shutil.rmtree(night.python.parents[1])
    return "does not exist or cannot be run"


def no_interpreter(night: CronNight) -> str:
    night.python.write_bytes(b"\x7fELF")
    return "does not exist or cannot be run"


def readable_by_others(night: CronNight) -> str:
    night.state_dir.environment.chmod(0o644)
    return "readable by other users"


def damaged_log(night: CronNight) -> str:
    (night.state_dir.home / "log.sqlite").write_bytes(b"SQLite format 3\0" + b"\x07" * 8000)
    return "log.sqlite"


def damaged_installation(night: CronNight) -> str:
    (night.state_dir.folder / "installed.json").write_text("{")
    return "installed.json"


def damaged_record(night: CronNight) -> str:
    (night.state_dir.folder / "night.json").write_text("{")
    return "night.json"


FAULTS = (
    broken_package,
    no_environment,
    no_interpreter,
    readable_by_others,
    damaged_log,
    damaged_installation,
    damaged_record,
)


@NIGHT
@pytest.mark.parametrize("plant", FAULTS)
def test_each_fault_has_one_message_and_is_seen_by_monitoring(
    night: CronNight, plant: object
) -> None:
    assert callable(plant)
    cause = plant(night)
    assert night.run() != 0
    (message,) = night.receiver.got
    assert cause in str(message)
    assert message["facts"]["event"] == "night failed"
    assert [path.rpartition("/beat")[2] for path in night.receiver.beats] == ["/fail"]
    assert night.latest.reported
    assert cause in night.check()


@NIGHT
@pytest.mark.parametrize("whole", [False, True])
def test_a_killed_night_is_reported_at_once_and_then_resumed(
    night: CronNight, tmp_path: Path, *, whole: bool
) -> None:
    """If the script is killed as well, by a power cut perhaps, monitoring sees it, and the next
    start reports it.
    """
    (tmp_path / "hang").touch()
    with night.popen() as started:
        eventually((night.state_dir.home / "log.sqlite").exists)
        eventually((night.state_dir.folder / "small.lock").read_text)
        eventually((night.state_dir.folder / "night.json").exists)
        runner = int((night.state_dir.folder / "small.lock").read_text())
        if whole:
            os.kill(started.pid, signal.SIGKILL)
        os.kill(runner, signal.SIGKILL)
        assert started.wait(300) == (-signal.SIGKILL if whole else 137)
    if whole:
        assert night.receiver.got == []
        # A killed process needs a moment to end, and to release its lock.
        eventually(lambda: "its process" in night.check())
    else:
        assert "killed by signal 9" in night.receiver.got[0]["text"]
        assert "killed by signal 9" in night.check()
    (tmp_path / "hang").unlink()
    spotctl("stop", "small")
    assert night.run() == 0
    assert night.receiver.got[-1]["facts"]["event"] == "night ended"
    assert ("did not end: its process" in str(night.receiver.got[-1])) == whole
    assert night.check() == ""


def test_a_night_of_cron_on_a_full_disk_is_reported(
    tmp_path: Path, table: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hook() as receiver:
        night = cron_night(small_disk / "home", tmp_path, table, receiver, monkeypatch)
        assert no_room(small_disk)
        assert night.run() == 1
    (message,) = receiver.got
    assert "No space left on device" in str(message)
    assert (night.latest.status, night.latest.reported) == (1, True)
    assert "No space left on device" in night.check()


def test_a_real_cron_starts_the_night(night: CronNight, tmp_path: Path) -> None:
    """Busybox' cron takes its folder of crontabs as an argument, so that it needs no change to this
    computer.
    """
    crond = shutil.which("crond") or shutil.which("busybox")
    if crond is None:
        pytest.skip("no cron here that takes its tables from a folder of the test")
    tables = tmp_path / "tables"
    tables.mkdir()
    (tables / "root").write_text(f"* * * * * {night.line}\n")
    words = [crond, *(["crond"] if crond.endswith("busybox") else []), "-f", "-c", str(tables)]
    until = time() + 200
    with subprocess.Popen(words) as daemon:
        try:
            eventually(lambda: time() > until or night.receiver.got)
        finally:
            daemon.kill()
    assert night.latest.status == 0
