"""Nights with real processes: overlapping starts, kills, missed deadlines and missing secrets."""

from __future__ import annotations

import json
import os
import re
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

import msgspec
import pytest

from pricing_data.units import HOUR, SECOND
from spotctl.clouds.errors import NotPermitted
from spotctl.clouds.local.provider import LocalProvider
from spotctl.files.job.reader import written
from spotctl.files.job.spec import JobSpec
from spotctl.home.config import load
from spotctl.log.events import RunBegan, RunEnded, StopRequested
from spotctl.log.folding import fold
from spotctl.log.jobs import JobLock
from spotctl.log.outcomes import DONE, NO_CAPACITY
from spotctl.log.state import RunState
from spotctl.log.store import EventLog
from spotctl.nightly.hours import CANNOT_RESUME, Hours, Night, local_zone
from spotctl.nightly.install import CRON_ENVIRONMENT
from spotctl.nightly.night_runner import NightRunner
from spotctl.nightly.state_dir import Installed, StateDir
from spotctl.run.start import runs
from tests.samples import LONG_RUN, NIGHT
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import COMMAND, processes
from tests.spotctl.nightly.hooks import Hook, hook
from tests.spotctl.nightly.timers import program

pytestmark = pytest.mark.usefixtures("few_windows")

UNTIL_RELEASED = (
    "echo began >> began; while [ ! -f release ]; do sleep 0.05; done; echo made >> made"
)
LONG_AT_FIRST = "[ -f began ] || { echo began > began; sleep 60; }; echo made >> made"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The home of nightly jobs; fails if a process survives the test."""
    yield tmp_path / "home"
    assert not processes(tmp_path)


@pytest.fixture
def webhook() -> Iterator[Hook]:
    with hook() as receiver:
        yield receiver


def installed(home: Path, run: str, hooked: Hook, more: str = "", metrics: str = "") -> StateDir:
    """An installed nightly job without a timer."""
    path = home.parent / "job.yaml"
    path.write_text(
        COMMAND.format(run=json.dumps(run)) + f"notify: {{webhook: '{hooked.url}'}}\n{more}"
    )
    state_dir = StateDir(home, "small")
    half_a_day_ago = (datetime.now(local_zone()[0]) - timedelta(hours=12)).time()
    kept = Installed(
        "small", path, Hours(half_a_day_ago), "cron", os.environ["PATH"], metrics=metrics
    )
    state_dir.install(kept)
    return state_dir


def start(home: Path, *words: str) -> subprocess.Popen[bytes]:
    """Starts a night in the environment of cron."""
    line = [
        sys.executable,
        "-P",
        "-m",
        "spotctl",
        "--home",
        str(home),
        "nightly",
        "run",
        "small",
        *words,
    ]
    return subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CRON_ENVIRONMENT, cwd="/"
    )


def wait_for(path: Path) -> None:
    until = clock.monotonic() + 300
    while not path.exists():
        assert clock.monotonic() < until, f"{path} was not written"
        clock.sleep(0.05)


def events(home: Path, kind: type) -> list[object]:
    with EventLog(home / "log.sqlite") as log:
        return [
            row.event
            for one in log.beginnings()
            for row in log.of_run(one.run)
            if isinstance(row.event, kind)
        ]


def kill_everything(folder: Path) -> None:
    """Sends SIGKILL to all processes that mention a folder, including machines."""
    for _ in range(3):
        for process in Path("/proc").glob("[0-9]*"):
            if process.name == str(os.getpid()):
                continue
            with suppress(OSError):
                about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if str(folder).encode() in about:
                    os.kill(int(process.name), signal.SIGKILL)


@NIGHT
def test_overlapping_and_repeated_starts_are_one_run_and_one_message(
    tmp_path: Path, home: Path, webhook: Hook, approved: Approved
) -> None:
    # On a busy computer the night takes market hours, and an evicted command would be run again.
    state_dir = installed(home, UNTIL_RELEASED, webhook, "strategy: on-demand\n")
    with start(home) as first:
        wait_for(tmp_path / "began")
        second = spotctl("nightly", "run", "small", "--scheduled")
        (tmp_path / "release").touch()
        assert first.wait(300) == 0
    approved(second)
    assert (tmp_path / "made").read_text() == "made\n", events(home, object)
    assert len(events(home, RunBegan)) == 1
    (sent,) = webhook.got
    assert sent["facts"]["outcome"] == "done"
    assert sent["facts"]["cost_report"]["total_usd"] == pytest.approx(
        sent["facts"]["cost_usd"], abs=1e-6
    )
    assert Path(sent["facts"]["report"]).read_text().startswith("<!doctype html>")
    third = spotctl("nightly", "run", "small", "--scheduled", "--json")
    assert (third.code, len(events(home, RunBegan)), len(webhook.got)) == (0, 1, 1)
    # As if the start had been killed between the end of the run and the message.
    assert state_dir.last is not None
    state_dir.record(msgspec.structs.replace(state_dir.last, reported=False))
    assert spotctl("nightly", "run", "small").code == 0
    assert len(events(home, RunBegan)) == 1
    assert [one["id"] for one in webhook.got] == [sent["id"]] * 2


@NIGHT
def test_a_night_publishes_metrics_where_it_was_installed_to_or_where_its_start_says(
    tmp_path: Path, home: Path, webhook: Hook
) -> None:
    usual, other = tmp_path / "usual.prom", tmp_path / "other.prom"
    installed(home, "true", webhook, metrics=str(usual))
    assert spotctl("nightly", "run", "small").code == 0
    assert re.search(
        r'^spotctl_running\{job="small",run="small-\w+"\} 0$', usual.read_text(), re.MULTILINE
    )
    before = usual.read_text()
    assert spotctl("nightly", "run", "small", "--metrics", other).code == 0
    assert usual.read_text() == before
    assert 'spotctl_running{job="small"' in other.read_text()


@NIGHT
def test_the_last_result_stays_in_the_metrics_while_the_next_night_runs(
    tmp_path: Path, home: Path, webhook: Hook
) -> None:
    path = tmp_path / "small.prom"
    installed(home, "true", webhook, metrics=str(path))
    path.write_text("of an earlier command\n")
    with JobLock(home / "nightly" / "small", "small"):
        assert spotctl("nightly", "run", "small").code == 6
    assert path.read_text() == "of an earlier command\n"
    assert spotctl("nightly", "run", "small").code == 0
    first = night_metrics(path)
    assert (first["running"], first["done"]) == (0, 1)
    assert first["end_timestamp_seconds"] == first["success_timestamp_seconds"]

    seen = tmp_path / "seen.prom"
    installed(home, f"cp {path} {seen}; false", webhook, metrics=str(path))
    assert spotctl("nightly", "run", "small").code == 1
    assert night_metrics(seen) == {**first, "running": 1}
    failed = night_metrics(path)
    assert (failed["running"], failed["done"]) == (0, 0)
    assert failed["end_timestamp_seconds"] > first["end_timestamp_seconds"]
    assert failed["success_timestamp_seconds"] == first["success_timestamp_seconds"]


def night_metrics(path: Path) -> dict[str, float]:
    found = re.findall(r'^spotctl_night_(\w+)\{job="small"\} (.+)$', path.read_text(), re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_a_place_for_metrics_that_cannot_be_used_is_refused_by_hand_and_reported_by_a_timer(
    tmp_path: Path, home: Path, webhook: Hook, approved: Approved
) -> None:
    nowhere = tmp_path / "missing" / "small.prom"
    installed(home, "echo made > made", webhook, metrics=str(nowhere))
    refused = spotctl("nightly", "run", "small", "--metrics", nowhere)
    approved(refused)
    assert not (tmp_path / "made").exists()
    night = spotctl("nightly", "run", "small", "--scheduled")
    assert night.code == 0
    assert "the run continues without metrics" in night.err
    assert (tmp_path / "made").exists()


@NIGHT
@pytest.mark.slow
def test_a_start_after_a_kill_resumes_the_run(tmp_path: Path, home: Path, webhook: Hook) -> None:
    installed(home, LONG_AT_FIRST, webhook)
    with start(home) as first:
        wait_for(tmp_path / "began")
        kill_everything(tmp_path)
        assert first.wait(300) == -signal.SIGKILL
    assert not processes(tmp_path)
    with start(home) as again:
        out, err = again.communicate(timeout=300)
    assert (again.returncode, err) == (0, b"")
    assert b"Still running: nothing" in out
    assert (tmp_path / "made").read_text() == "made\n"
    assert len(events(home, RunBegan)) == len(events(home, RunEnded)) == 1
    (sent,) = webhook.got
    assert len(sent["facts"]["runs"]) == 1


def test_a_deadline_stops_the_run_and_returns_its_machines(
    tmp_path: Path, home: Path, webhook: Hook
) -> None:
    state_dir = installed(
        home, "trap 'echo asked > asked; exit 0' TERM; echo > began; sleep 60 & wait", webhook
    )
    nightly = state_dir.installed
    assert nightly is not None
    now = clock.time_ns() // 1000

    def tonight() -> int:
        """The deadline passes once the command runs, however long the computer takes to start
        it."""
        return now + 2 * HOUR if (tmp_path / "began").exists() else now

    runner = NightRunner(
        nightly, state_dir, load(os.environ, home), UTC, scheduled=False, clock=tonight
    )
    report = runner.run(Night(date(2026, 5, 1), now, now + HOUR))
    assert (report.result.outcome, (tmp_path / "asked").exists()) == ("not in time", True)
    assert webhook.got[0]["facts"]["left_running"] == 0
    assert "not done by the deadline" in webhook.got[0]["text"]
    assert "later --deadline" in json.dumps(webhook.got[0])


def test_a_missing_secret_is_reported_before_anything_is_rented(
    home: Path, webhook: Hook, approved: Approved
) -> None:
    state_dir = installed(home, "true", webhook, "secrets: [A_TOKEN, OTHER]\n")
    ended = spotctl("nightly", "run", "small", OTHER="x")
    approved(ended)
    assert f"add a line NAME=value to {state_dir.environment}" in ended.out
    assert "Cost: nothing; no machines were rented" in ended.out
    assert not (home / "log.sqlite").exists()
    assert "A_TOKEN" in webhook.got[0]["text"] + json.dumps(webhook.got[0])


def test_an_expired_credential_is_reported_with_advice(
    home: Path, webhook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def expired(*_: object) -> None:
        raise NotPermitted(
            "ExpiredToken: the security token included in the request (s3cr3t) is expired"
        )

    state_dir = installed(home, "true", webhook, "secrets: [A_TOKEN]\n")
    monkeypatch.setattr(LocalProvider, "create", expired)
    ended = spotctl("nightly", "run", "small", A_TOKEN="s3cr3t")
    assert ended.code == 5
    for line in (
        "What happened: ExpiredToken: the security token included in the request (***) is expired",
        "Cost: $0.00",
        "Still running: nothing",
        f"What to do: log in again, or put valid credentials into {state_dir.environment}; then "
        "run:",
    ):
        assert line in ended.out
    assert len(webhook.got) == 1
    assert "s3cr3t" not in json.dumps(webhook.got) + "".join(
        path.read_text() for path in state_dir.logs.iterdir()
    )


def test_a_missed_night_is_reported_once(home: Path, webhook: Hook) -> None:
    state_dir = installed(home, "true", webhook)
    nightly = state_dir.installed
    assert nightly is not None
    over_an_hour_ago = (datetime.now(local_zone()[0]) - timedelta(hours=11)).time()
    state_dir.install(replace(nightly, hours=replace(nightly.hours, deadline=over_an_hour_ago)))
    missed = spotctl("nightly", "run", "small", "--scheduled")
    assert missed.code == 3
    assert "nothing was started before the deadline" in missed.out
    assert "What to do: nothing; run it now with: spotctl nightly run small" in missed.out
    again = spotctl("nightly", "run", "small", "--scheduled")
    assert (again.code, again.out, len(webhook.got)) == (0, "", 1)
    assert not (home / "log.sqlite").exists()


def test_a_locked_night_is_not_started_twice(home: Path, webhook: Hook) -> None:
    state_dir = installed(home, "true", webhook)
    with JobLock(state_dir.folder, "small"):
        assert spotctl("nightly", "run", "small").code == 6
    assert not (home / "log.sqlite").exists()


def test_an_unreadable_job_file_is_reported_to_the_webhook_of_its_installation(
    home: Path, webhook: Hook, approved: Approved
) -> None:
    state_dir = installed(home, "true", webhook)
    nightly = state_dir.installed
    assert nightly is not None
    state_dir.install(
        Installed(nightly.name, nightly.file, nightly.hours, "cron", nightly.path, webhook.url)
    )
    nightly.file.write_text("name: small\nkind: nothing\n")
    ended = spotctl("nightly", "run", "small")
    assert (ended.code, len(webhook.got)) == (2, 1)
    approved(ended)


@NIGHT
def test_a_run_that_cannot_be_resumed_is_closed_and_launched_again(
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
    assert events(home, StopRequested)[0] == CANNOT_RESUME


class FakeWait:
    """Replaces the wait between attempts: the clock jumps."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.waited: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waited.append(seconds)
        self.now += round(seconds * SECOND)
        return False

    def is_set(self) -> bool:
        return False


@NIGHT
def test_a_night_finds_programs_of_the_shell_and_what_was_changed_since_it_was_installed(
    tmp_path: Path, home: Path, webhook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job file and code are not copied. Cron has neither the folder of the program in its PATH nor
    the job's secret.
    """
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    state_dir = installed(home, "only-here", webhook, "secrets: [WORD]\n")
    state_dir.environment.touch(0o600)
    path = state_dir.home.parent / "job.yaml"
    for word in ("first", "second", "third"):
        state_dir.environment.write_text(f"WORD={word}\n")
        program(tmp_path / "bin" / "only-here", f"echo {word} is $WORD >> made")
        if word == "third":
            path.write_text(path.read_text().replace("only-here", "only-here; echo more >> made"))
        with start(home) as night:
            night.communicate(timeout=300)
        assert night.returncode == 0
    made = "first is first\nsecond is second\nthird is third\nmore\n"
    assert (tmp_path / "made").read_text() == made


@pytest.mark.parametrize(
    ("refusals", "hours", "waited", "outcome"),
    [(3, 4, [60, 120, 240], "done"), (99, 1, [60, 120, 240, 480, 960], "no capacity")],
)
def test_without_capacity_it_is_tried_again(
    home: Path,
    webhook: Hook,
    monkeypatch: pytest.MonkeyPatch,
    refusals: int,
    hours: int,
    waited: list[float],
    outcome: str,
) -> None:
    state_dir = installed(home, "true", webhook)
    nightly = state_dir.installed
    assert nightly is not None
    waits = FakeWait(clock.time_ns() // 1000)

    def launched(spec: JobSpec, *_: object) -> tuple[RunState, RunEnded]:
        with EventLog(home / "log.sqlite") as log:
            run = f"small-{len(log.beginnings())}"
            word = NO_CAPACITY if len(log.beginnings()) < refusals else DONE
            ended = RunEnded(
                word, "", waits.now, {"spent": 3600 * 10**9, "on_demand": 2 * 3600 * 10**9}
            )
            log.append(run, 0, RunBegan(spec.name, "local", written(spec), "", waits.now))
            log.append(run, 1, ended)
            return fold(log.of_run(run)), ended

    monkeypatch.setattr(runs, "launch", launched)
    runner = NightRunner(
        nightly, state_dir, load(os.environ, home), UTC, scheduled=False, clock=lambda: waits.now
    )
    monkeypatch.setattr(runner, "stopped", waits)
    report = runner.run(Night(date(2026, 5, 1), waits.now, waits.now + hours * HOUR))
    assert (report.result.outcome, waits.waited) == (outcome, waited)
    (sent,) = webhook.got
    assert sent["facts"]["cost_usd"] == len(waited) + 1
    assert f"({len(waited) + 1} attempts)" in json.dumps(sent)


@LONG_RUN
def test_a_night_whose_budget_is_too_low_leaves_no_run_to_resume(home: Path, webhook: Hook) -> None:
    state_dir = installed(
        home, "true", webhook, "hours: 30m\nbudget: 0.01 USD\nstrategy: proteus\n"
    )
    refused = spotctl("nightly", "run", "small")
    assert (refused.code, webhook.got[0]["facts"]["outcome"]) == (4, "budget reached"), refused.out
    assert "it would be accepted with a budget of" in refused.out
    assert spotctl("status", "--json").json["jobs"][0]["state"] == "budget reached"
    # What the message advises.
    assert state_dir.installed is not None
    path = state_dir.installed.file
    path.write_text(path.read_text().replace("0.01 USD", "5 USD"))
    again = spotctl("nightly", "run", "small")
    assert (again.code, webhook.got[1]["facts"]["outcome"]) == (0, "done"), again.out
