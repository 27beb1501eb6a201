"""Names of jobs that shells complete."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from spotctl.log.events import RunBegan
from spotctl.log.store import EventLog


@pytest.mark.sampled(3)
@pytest.mark.parametrize("command", ["status", "logs", "stop", "resume", "exec", "ssh"])
def test_shells_complete_the_names_of_jobs(tmp_path: Path, command: str) -> None:
    home = tmp_path / "home"
    with EventLog(home / "log.sqlite") as log:
        for job in ("nightly", "night-owl", "other"):
            log.append(f"{job}-1", 0, RunBegan(job, "local", {}, "", 0))
    assert completed(command, "nig") == ["nightly", "night-owl"]


def test_without_a_log_no_job_is_completed(tmp_path: Path) -> None:
    assert completed("status", "") == []
    assert not (tmp_path / "home").exists()


def completed(command: str, begun: str) -> list[str]:
    environment = {
        **os.environ,
        "_SPOTCTL_COMPLETE": "complete_bash",
        "COMP_WORDS": f"spotctl {command} {begun}",
        "COMP_CWORD": "2",
    }
    script = "from spotctl.cli.app import main; main([])"
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stderr == ""
    return ran.stdout.split()
