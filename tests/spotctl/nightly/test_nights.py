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
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from pricing_data.units import HOUR, SECOND
from spotctl.config import load
from spotctl.files.job.reader import written
from spotctl.files.job.spec import JobSpec
from spotctl.machines.base import NotPermitted
from spotctl.machines.local import LocalProvider
from spotctl.nightly.hours import Hours, Night, clocks_of_this_computer
from spotctl.nightly.install import BARE
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.nightly.steps import CANNOT_GO_ON
from spotctl.nightly.tonight import Starter
from spotctl.run import runs
from spotctl.runlog.events import RunBegan, RunEnded, StopRequested
from spotctl.runlog.outcomes import DONE, NO_CAPACITY
from spotctl.runlog.state import RunState, fold
from spotctl.runlog.store import EventLog, JobLock
from tests.spotctl.cli import spotctl
from tests.spotctl.launches import COMMAND, processes
from tests.spotctl.nightly.hooks import Hook, hook

LONG = "echo began >> began; sleep 1; echo made >> made"
LONG_AT_FIRST = "[ -f began ] || { echo began > began; sleep 60; }; echo made >> made"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home of nightly jobs; whatever a test does, nothing of them is left."""
    yield tmp_path / "home"
    assert not processes(tmp_path)


@pytest.fixture
def webhook() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


def installed(home: Path, run: str, hooked: Hook, more: str = "") -> StateDir:
    """A nightly job as `install` leaves it, without a timer."""
    path = home.parent / "job.yaml"
    path.write_text(COMMAND.format(run=json.dumps(run)) + f"notify: {{webhook: '{hooked.url}'}}\n{more}")
    room = StateDir(home, "small")
    half_a_day_ago = (datetime.now(clocks_of_this_computer()[0]) - timedelta(hours=12)).time()
    room.install(Installed("small", path, Hours(half_a_day_ago), "cron", os.environ["PATH"]))
    return room


def start(home: Path, *words: str) -> subprocess.Popen[bytes]:
    """Started with no more of an environment than cron gives, from cron's shell."""
    line = [sys.executable, "-P", "-m", "spotctl", "--home", str(home), "nightly", "run", "small", *words]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=BARE, cwd="/")


def wait_for(path: Path) -> None:
    until = clock.monotonic() + 300
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


def test_starts_that_overlap_or_repeat_are_one_run_and_one_report(tmp_path: Path, home: Path, webhook: Hook) -> None:
    room = installed(home, LONG, webhook)
    with start(home) as first:
        wait_for(tmp_path / "began")
        second = spotctl("nightly", "run", "small", "--scheduled")
        assert first.wait(300) == 0
    assert second.code == 6
    assert f"job small is already running as process {first.pid}" in second.error
    assert (tmp_path / "made").read_text() == "made\n"
    assert len(events(home, RunBegan)) == 1
    (told,) = webhook.got
    assert told["facts"]["outcome"] == "done"
    assert told["facts"]["cost_report"]["total_usd"] == pytest.approx(told["facts"]["cost_usd"], abs=1e-6)
    assert Path(told["facts"]["report"]).read_text().startswith("<!doctype html>")
    third = spotctl("nightly", "run", "small", "--scheduled", "--json")
    assert (third.code, len(events(home, RunBegan)), len(webhook.got)) == (0, 1, 1)
    # As if it had been killed between the end of the run and the report.
    assert room.last is not None
    room.keep(replace(room.last, told=False))
    assert spotctl("nightly", "run", "small").code == 0
    assert len(events(home, RunBegan)) == 1
    assert [one["id"] for one in webhook.got] == [told["id"]] * 2


def test_killed_with_all_its_machines_and_started_again_it_is_one_run(
    tmp_path: Path, home: Path, webhook: Hook
) -> None:
    installed(home, LONG_AT_FIRST, webhook)
    with start(home) as first:
        wait_for(tmp_path / "began")
        kill_everything(tmp_path)
        assert first.wait(300) == -signal.SIGKILL
    assert not processes(tmp_path)
    with start(home) as again:
        out, err = again.communicate(timeout=300)
    assert (again.returncode, err) == (0, b"")
    assert b"Left running: nothing" in out
    assert (tmp_path / "made").read_text() == "made\n"
    assert len(events(home, RunBegan)) == len(events(home, RunEnded)) == 1
    (told,) = webhook.got
    assert len(told["facts"]["runs"]) == 1


def test_a_deadline_ends_a_run_and_gives_everything_back(tmp_path: Path, home: Path, webhook: Hook) -> None:
    room = installed(home, "trap 'echo asked > asked; exit 0' TERM; echo > began; sleep 60 & wait", webhook)
    nightly = room.installed
    assert nightly is not None
    now = clock.time_ns() // 1000

    def tonight() -> int:
        """The deadline passes once the command runs, however long the computer takes to start it."""
        return now + 2 * HOUR if (tmp_path / "began").exists() else now

    starter = Starter(nightly, room, load(os.environ, home), UTC, scheduled=False, clock=tonight)
    told = starter.run(Night(date(2026, 5, 1), now, now + HOUR))
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
        raise NotPermitted("ExpiredToken: the security token included in the request (s3cr3t) is expired")

    room = installed(home, "true", webhook, "secrets: [A_TOKEN]\n")
    monkeypatch.setattr(LocalProvider, "create", expired)
    ended = spotctl("nightly", "run", "small", A_TOKEN="s3cr3t")
    assert ended.code == 5
    for line in (
        "What happened: ExpiredToken: the security token included in the request (***) is expired",
        "Cost: $0.00",
        "Left running: nothing",
        f"What to do: renew the login, or put valid credentials into {room.environment}; then:",
    ):
        assert line in ended.out
    assert len(webhook.got) == 1
    assert "s3cr3t" not in json.dumps(webhook.got) + "".join(path.read_text() for path in room.logs.iterdir())


def test_a_night_that_was_slept_through_is_told_of_once(home: Path, webhook: Hook) -> None:
    room = installed(home, "true", webhook)
    nightly = room.installed
    assert nightly is not None
    over_an_hour_ago = (datetime.now(clocks_of_this_computer()[0]) - timedelta(hours=11)).time()
    room.install(replace(nightly, hours=replace(nightly.hours, deadline=over_an_hour_ago)))
    missed = spotctl("nightly", "run", "small", "--scheduled")
    assert missed.code == 3
    assert "nothing was begun before the deadline" in missed.out
    assert "What to do: nothing, or to run it now: spotctl nightly run small" in missed.out
    again = spotctl("nightly", "run", "small", "--scheduled")
    assert (again.code, again.out, len(webhook.got)) == (0, "", 1)
    assert not (home / "log.sqlite").exists()


def test_between_two_attempts_a_night_is_not_begun_twice(home: Path, webhook: Hook) -> None:
    room = installed(home, "true", webhook)
    with JobLock(room.folder, "small"):
        assert spotctl("nightly", "run", "small").code == 6
    assert not (home / "log.sqlite").exists()


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
    installed(home, LONG_AT_FIRST, webhook)
    with start(home) as first:
        wait_for(tmp_path / "began")
        kill_everything(tmp_path)
        first.wait(300)
    (began,) = events(home, RunBegan)
    assert isinstance(began, RunBegan)
    shutil.rmtree(began.folder)
    ended = spotctl("nightly", "run", "small", "--json")
    assert (ended.code, len(ended.json["runs"]), len(webhook.got)) == (0, 2, 1), ended.out
    assert events(home, StopRequested)[0] == CANNOT_GO_ON


class Waits:
    """Stands for the wait between attempts: the clock jumps."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.now += round(seconds * SECOND)
        return False

    def is_set(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("refusals", "hours", "waited", "outcome"),
    [(3, 4, [60, 120, 240], "done"), (99, 1, [60, 120, 240, 480, 960], "no capacity")],
)
def test_where_no_machine_is_to_be_had_it_is_tried_again(
    home: Path,
    webhook: Hook,
    monkeypatch: pytest.MonkeyPatch,
    refusals: int,
    hours: int,
    waited: list[float],
    outcome: str,
) -> None:
    room = installed(home, "true", webhook)
    nightly = room.installed
    assert nightly is not None
    waits = Waits(clock.time_ns() // 1000)

    def launched(spec: JobSpec, *_: object) -> tuple[RunState, RunEnded]:
        with EventLog(home / "log.sqlite") as log:
            run = f"small-{len(log.beginnings())}"
            word = NO_CAPACITY if len(log.beginnings()) < refusals else DONE
            ended = RunEnded(word, "", waits.now, {"spent": 3600 * 10**9, "on_demand": 2 * 3600 * 10**9})
            log.append(run, 0, RunBegan(spec.name, "local", written(spec), "", waits.now))
            log.append(run, 1, ended)
            return fold(log.of_run(run)), ended

    monkeypatch.setattr(runs, "launch", launched)
    starter = Starter(nightly, room, load(os.environ, home), UTC, scheduled=False, clock=lambda: waits.now)
    monkeypatch.setattr(starter, "stopped", waits)
    told = starter.run(Night(date(2026, 5, 1), waits.now, waits.now + hours * HOUR))
    assert (told.verdict.outcome, waits.waited) == (outcome, waited)
    (notice,) = webhook.got
    assert notice["facts"]["cost_usd"] == len(waited) + 1
    assert f"({len(waited) + 1} attempts)" in json.dumps(notice)
