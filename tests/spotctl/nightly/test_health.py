"""Nights that fail, are skipped or never start are noticed: by a health check, by monitoring, by
syslog.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path

import pytest

from pricing_data.units import HOUR, MINUTE, to_micros
from spotctl.home.errors import BadRequest
from spotctl.log.jobs import JobLock
from spotctl.nightly.health import problems
from spotctl.nightly.hours import Hours, local_zone
from spotctl.nightly.schedulers import UserManager, block, service, supervised, timer
from spotctl.nightly.state_dir import Installed, NightRecord, StateDir
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.hooks import Hook, hook
from tests.spotctl.nightly.test_install import OTHER_LINES, table

__all__ = ["table"]

NIGHT = to_micros(datetime(2026, 6, 1, 2, tzinfo=UTC))


@pytest.fixture
def receiver() -> Iterator[Hook]:
    with hook() as one:
        yield one


def job(tmp_path: Path, receiver: Hook) -> StateDir:
    """An installed job whose file names a secret that is missing, so that a night ends at once."""
    path = tmp_path / "job.yaml"
    notify = (
        f"notify: {{webhook: '{receiver.url}', heartbeat: '{receiver.url}/beat'}}\nsecrets: "
        "[A_TOKEN]\n"
    )
    path.write_text(COMMAND.format(run="'true'") + notify)
    state_dir = StateDir(tmp_path / "home", "small")
    begun = (datetime.now(local_zone()[0]) - timedelta(hours=12)).time()
    state_dir.install(Installed("small", path, Hours(begun), "cron", os.environ["PATH"]))
    return state_dir


def test_a_health_check_hears_of_the_start_and_the_failure(tmp_path: Path, receiver: Hook) -> None:
    job(tmp_path, receiver)
    assert spotctl("nightly", "run", "small", "--scheduled").code == 5
    assert [path.rpartition("/beat")[2] for path in receiver.beats] == ["/start", "/fail"]


def test_a_night_is_skipped_with_one_message_while_the_job_runs(
    tmp_path: Path, receiver: Hook
) -> None:
    state_dir = job(tmp_path, receiver)
    with JobLock(state_dir.folder, "small"):
        codes = [spotctl("nightly", "run", "small", "--scheduled").code for _ in range(3)]
        assert spotctl("nightly", "run", "small").code == 6
        assert spotctl("nightly", "ls", "--json").json["nightly"][0]["last_night"] is None
    assert codes == [6, 6, 6]
    (message,) = receiver.got
    assert message["facts"]["outcome"] == "skipped"
    assert "skipped: the job was still running" in message["text"]


def test_ls_tells_an_interrupted_night_from_a_running_one(tmp_path: Path, receiver: Hook) -> None:
    state_dir = job(tmp_path, receiver)
    state_dir.record(NightRecord(datetime(2026, 6, 1, tzinfo=UTC).date(), NIGHT, NIGHT))

    def outcome() -> str:
        return str(spotctl("nightly", "ls", "--json").json["nightly"][0]["last_night"]["outcome"])

    assert outcome() == "interrupted"
    with JobLock(state_dir.folder, "small"):
        assert outcome() == "running"


def test_monitoring_sees_nights_that_failed_or_never_started(
    tmp_path: Path, receiver: Hook
) -> None:
    state_dir, hours = job(tmp_path, receiver), Hours(time(2), time(6))
    os.utime(state_dir.folder / "installed.json", (NIGHT / 1e6 - 9, NIGHT / 1e6 - 9))

    def now(at: int) -> str:
        return "; ".join(problems(state_dir, hours, NIGHT + at, UTC))

    assert now(5 * MINUTE) == ""
    assert "did not start" in now(HOUR)
    day = datetime(2026, 6, 1, tzinfo=UTC).date()
    for reported, outcome, said in (
        (True, "done", ""),
        (True, "failed", "ended with: failed"),
        (False, "", "resumes"),
    ):
        state_dir.record(NightRecord(day, NIGHT, NIGHT, reported, outcome))
        assert said in now(HOUR)
        assert bool(said) == bool(now(HOUR))
    checked = spotctl("nightly", "ls", "--check")
    assert (checked.code, checked.err) == (1, "")
    assert checked.out.startswith("small: ")


def test_monitoring_sees_why_all_is_well() -> None:
    assert spotctl("nightly", "ls", "--check").out == "no nightly jobs\n"


def test_the_line_of_the_timer_says_so_if_its_script_is_gone(tmp_path: Path) -> None:
    """Without the home, only the line itself is left to say so."""
    (tmp_path / "logger").write_text('#!/bin/sh\necho "$*" > said\n')
    (tmp_path / "logger").chmod(0o755)
    script = tmp_path / "it's 100%" / "supervise"
    line = (
        block("small", time(2), supervised("small", script, ["/bin/echo", "100%"]))
        .decode()
        .splitlines()[1]
    )
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    words = ["/bin/sh", "-c", line.split(" ", 5)[5].replace(r"\%", "%")]

    def ran() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment
        )

    lost = ran()
    assert (lost.returncode, lost.stdout) == (
        127,
        f"spotctl nightly small did not start: {script} is gone\n",
    )
    assert "did not start" in (tmp_path / "said").read_text()
    script.parent.mkdir()
    script.write_text('echo "$@"; exit 3\n')
    assert (ran().returncode, ran().stdout) == (3, "/bin/echo 100%\n")


def test_two_homes_have_a_block_each(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND.format(run="'true'"))
    homes = [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        assert spotctl("--home", home, "nightly", "install", path, "--at", "02:00").code == 0
    assert table.read_bytes().count(b">>>") == 2
    assert spotctl("--home", homes[0], "nightly", "rm", "small").code == 0
    assert str(homes[0]).encode() not in table.read_bytes()
    assert (
        spotctl("--home", homes[1], "nightly", "ls", "--json").json["nightly"][0]["trouble"] == ""
    )
    assert spotctl("--home", homes[1], "nightly", "rm", "small").code == 0
    assert table.read_bytes() == OTHER_LINES


def test_a_unit_of_another_home_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    manager, units = UserManager(tmp_path / "units"), "small"

    def install(home: str) -> None:
        manager.install(
            units, service("small", [sys.executable, "--home", home]), timer("small", [time(2)])
        )

    install("/one")
    install("/one")
    with pytest.raises(BadRequest, match=r'another home, "/one"'):
        install("/two")


def test_variables_of_notify_are_checked_at_install(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        COMMAND.format(run="'true'") + "notify: {webhook: $A_HOOK, heartbeat: $A_BEAT}\n"
    )
    added = spotctl("nightly", "install", path, "--at", "02:00", "--json").json
    assert added["missing"] == ["A_HOOK", "A_BEAT"]
    assert "A_HOOK, A_BEAT not set" in added["trouble"]
    assert table.read_bytes() != OTHER_LINES


def test_a_night_without_length_is_refused(tmp_path: Path, approved: Approved) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND.format(run="'true'"))
    refused = spotctl("nightly", "install", path, "--at", "2:00", "--deadline", "02:00")
    approved(refused)
