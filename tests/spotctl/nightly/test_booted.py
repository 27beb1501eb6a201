"""Nights under a systemd that really runs: its timer starts them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.samples import NIGHT
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.booted import Booted, booted, why_not
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

TIMER = "spotctl-nightly-small.timer"


@pytest.fixture
def computer(tmp_path: Path) -> Iterator[Booted]:
    (tmp_path / "computer").mkdir()
    with booted(tmp_path / "computer") as computer:
        if computer is None:
            pytest.skip("systemd does not start in namespaces of this computer")
        yield computer


def night(computer: Booted) -> dict[str, Any]:
    listed = computer.spotctl("nightly", "ls", "--json")
    assert listed.returncode == 0, listed.stderr
    (job,) = json.loads(listed.stdout)["nightly"]
    known: dict[str, Any] = job
    return known


def clock(minutes: int) -> str:
    """A time of day on that computer, which has this one's clock and time zone."""
    return (datetime.now().astimezone() + timedelta(minutes=minutes)).strftime("%H:%M")


def timers(computer: Booted) -> str:
    return computer.run("systemctl", "--user", "list-timers", "--all", "--no-pager").stdout


def install(computer: Booted, folder: Path, run: str, at: str) -> None:
    job = folder / "job.yaml"
    job.write_text(COMMAND.format(run=run))
    installed = computer.spotctl(
        "nightly", "install", job, "--at", at, "--deadline", clock(90), "--json"
    )
    assert installed.returncode == 0, installed.stderr
    assert json.loads(installed.stdout)["scheduler"] == "systemd"


def outcome(computer: Booted) -> str:
    last = night(computer)["last_night"]
    return "" if last is None else str(last["outcome"])


@NIGHT
def test_a_timer_starts_the_night_at_its_time(computer: Booted, tmp_path: Path) -> None:
    install(computer, tmp_path, "echo trained", clock(2))
    assert TIMER in timers(computer)
    assert outcome(computer) == ""
    eventually(lambda: outcome(computer) not in ("", "running"))
    assert outcome(computer) == "done"
    assert computer.spotctl("nightly", "ls", "--check").returncode == 0
    removed = computer.spotctl("nightly", "rm", "small")
    assert removed.returncode == 0, removed.stderr
    assert TIMER not in timers(computer)
