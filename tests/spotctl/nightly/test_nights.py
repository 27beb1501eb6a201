"""Nights that are really run: processes that overlap, are killed, come too late, or lack what they need."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time as clock
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, time
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.config import load
from spotctl.nightly.conduct import Starter
from spotctl.nightly.hours import Hours, Night
from spotctl.nightly.install import BARE
from spotctl.nightly.room import Installed, Kept, Room
from spotctl.orchestrator.events import RunBegan, RunEnded, StopRequested
from spotctl.orchestrator.log import EventLog
from spotctl.providers.base import NotPermitted
from spotctl.providers.local import LocalProvider
from tests.spotctl.cli import spotctl
from tests.spotctl.nightly.hooks import Hook, hook
from tests.spotctl.test_launch import COMMAND, processes

LONG = "echo began >> began; sleep 2.5; echo made >> made"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home of nightly jobs; whatever a test does, nothing of them is left."""
    yield tmp_path / "home"
    assert not processes(tmp_path)


@pytest.fixture
def webhook() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


def installed(home: Path, run: str, hooked: Hook, more: str = "") -> Room:
    """A nightly job as `install` leaves it, without a timer."""
    path = home.parent / "job.yaml"
    path.write_text(COMMAND.format(run=json.dumps(run)) + f"notify: {{webhook: '{hooked.url}'}}\n{more}")
    room = Room(home, "small")
    room.install(Installed("small", path, Hours(time(2)), "cron", os.environ["PATH"]))
    return room


def start(home: Path, *words: str) -> subprocess.Popen[bytes]:
    """Started with no more of an environment than cron gives, from cron's shell."""
    line = [sys.executable, "-P", "-m", "spotctl", "--home", str(home), "nightly", "run", "small", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=BARE, cwd="/")


def wait_for(path: Path) -> None:
    until = clock.monotonic() + 60
    while not path.exists():
        assert clock.monotonic() < until, f"{path} does not come"
        clock.sleep(0.05)


def events(home: Path, kind: type) -> list[object]:
    with EventLog(home / "log.sqlite") as log:
        return [row.event for one in log.beginnings() for row in log.of_run(one.run) if isinstance(row.event, kind)]


def kill_everything(folder: Path) -> None:
    """SIGKILL to all that has to do with a folder, machines included."""
    for _ in range(3):
        for process in Path("/proc").glob("[0-9]*"):
            if process.name == str(os.getpid()):
                continue
            with suppress(OSError):
                about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if str(folder).encode() in about:
                    os.kill(int(process.name), signal.SIGKILL)


def test_two_starts_are_one_run_and_one_report(tmp_path: Path, home: Path, webhook: Hook) -> None:
    room = installed(home, LONG, webhook)
    with start(home) as first:
        wait_for(tmp_path / "began")
        second = spotctl("nightly", "run", "small", "--scheduled")
        assert first.wait(60) == 0
    assert second.code == 6
    assert f"job small runs already, as process {first.pid}" in second.error
    assert (tmp_path / "made").read_text() == "made\n"
    assert len(events(home, RunBegan)) == 1
    (told,) = webhook.got
    assert told["facts"]["outcome"] == "done"
    third = spotctl("nightly", "run", "small", "--scheduled", "--json")
    assert (third.code, len(events(home, RunBegan)), len(webhook.got)) in {(0, 1, 1), (0, 2, 2)}
    assert room.last is not None
    assert room.last.told


@pytest.mark.timeout(120)
def test_killed_with_all_its_machines_and_started_again_it_is_one_run(
    tmp_path: Path, home: Path, webhook: Hook
) -> None:
    installed(home, LONG, webhook)
    with start(home) as first:
        wait_for(tmp_path / "began")
        kill_everything(tmp_path)
        assert first.wait(60) == -signal.SIGKILL
    assert not processes(tmp_path)
    with start(home) as again:
        out, err = again.communicate(timeout=60)
    assert (again.returncode, err) == (0, b"")
    assert b"Left running: nothing" in out
    assert (tmp_path / "made").read_text() == "made\n"
    assert len(events(home, RunBegan)) == len(events(home, RunEnded)) == 1
    (told,) = webhook.got
    assert told["facts"]["runs"] == [one.run for one in _beginnings(home)]


def _beginnings(home: Path) -> list[object]:
    with EventLog(home / "log.sqlite") as log:
        return list(log.beginnings())


def test_killed_before_it_could_tell_it_tells_and_runs_nothing(tmp_path: Path, home: Path, webhook: Hook) -> None:
    room = installed(home, "echo made >> made", webhook)
    assert spotctl("nightly", "run", "small").code == 0
    kept = room.last
    assert kept is not None
    room.keep(Kept(kept.day, kept.begin, kept.since))
    again = spotctl("nightly", "run", "small")
    assert again.code == 0
    assert (tmp_path / "made").read_text() == "made\n"
    assert len(webhook.got) == 2
    assert webhook.got[0]["id"] == webhook.got[1]["id"]


def test_a_deadline_ends_a_run_and_gives_everything_back(tmp_path: Path, home: Path, webhook: Hook) -> None:
    room = installed(home, "trap 'echo asked > asked; exit 0' TERM; echo > began; sleep 60 & wait", webhook)
    nightly = room.installed
    assert nightly is not None
    now = clock.time_ns() // 1000
    starter = Starter(nightly, room, load(os.environ, home), UTC, scheduled=False)
    told = starter.run(Night(date(2026, 5, 1), now, now + 4 * SECOND))
    assert (told.verdict.outcome, (tmp_path / "asked").exists()) == ("not in time", True)
    assert webhook.got[0]["facts"]["left_running"] == 0
    assert "not done in time" in webhook.got[0]["text"]
    assert "later --deadline" in json.dumps(webhook.got[0])


def test_a_missing_secret_is_told_before_anything_is_rented(home: Path, webhook: Hook) -> None:
    room = installed(home, "true", webhook, "secrets: [A_TOKEN, OTHER]\n")
    ended = spotctl("nightly", "run", "small", OTHER="x")
    assert ended.code == 5
    assert "A_TOKEN is not in the environment of the night" in ended.error
    assert f"write it into {room.environment}" in ended.out
    assert "Cost: nothing; no machine was rented" in ended.out
    assert not (home / "log.sqlite").exists()
    assert "A_TOKEN" in webhook.got[0]["text"] + json.dumps(webhook.got[0])


def test_an_expired_credential_is_told_with_what_to_do(
    home: Path, webhook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(*_: object) -> None:
        raise NotPermitted("ExpiredToken: the security token included in the request is expired")

    room = installed(home, "true", webhook)
    monkeypatch.setattr(LocalProvider, "rent", expired)
    ended = spotctl("nightly", "run", "small")
    assert ended.code == 5
    for line in (
        "What happened: ExpiredToken: the security token included in the request is expired",
        "Cost: $0.00",
        "Left running: nothing",
        f"What to do: renew the login, or put valid credentials into {room.environment}; then:",
    ):
        assert line in ended.out
    assert len(webhook.got) == 1


def test_a_job_file_that_cannot_be_read_is_told_to_whom_it_named(home: Path, webhook: Hook) -> None:
    room = installed(home, "true", webhook)
    nightly = room.installed
    assert nightly is not None
    room.install(Installed(nightly.name, nightly.file, nightly.hours, "cron", nightly.path, webhook.url))
    nightly.file.write_text("name: small\nkind: nothing\n")
    ended = spotctl("nightly", "run", "small")
    assert (ended.code, len(webhook.got)) == (2, 1)
    assert "job.yaml:2: kind" in ended.error


def test_a_run_that_nobody_can_go_on_with_is_closed_and_another_begun(
    tmp_path: Path, home: Path, webhook: Hook
) -> None:
    installed(home, LONG, webhook)
    with start(home) as first:
        wait_for(tmp_path / "began")
        kill_everything(tmp_path)
        first.wait(60)
    (began,) = events(home, RunBegan)
    assert isinstance(began, RunBegan)
    shutil.rmtree(began.folder)
    ended = spotctl("nightly", "run", "small", "--json")
    assert (ended.code, len(ended.json["runs"]), len(webhook.got)) == (0, 2, 1)
    assert [stop.outcome for stop in events(home, StopRequested) if isinstance(stop, StopRequested)][0] == "stopped"
