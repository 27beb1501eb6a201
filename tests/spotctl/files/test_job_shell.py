"""Mistakes in a job's commands, found before anything is rented."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.files.job.reader import load
from spotctl.files.job.shell import script_problem
from spotctl.home.errors import BadRequest
from tests.spotctl.command_line import spotctl

JOB = "name: a\nkind: command\nrun: {run}\nresources: {{clouds: [local], types: [c4.2xlarge]}}\n{more}"
MISSING = (
    "python train.py",
    "python3 -u train.py --fast",
    "./train.sh",
    "exec python3.12 a/b.py",
    "bash go.sh 1",
)
NO_SCRIPT = (
    "python -m train",
    "python -c 'print(1)'",
    "train.py",
    "/opt/train.sh",
    "cd src && python train.py",
    "echo",
)


def job(folder: Path, run: str, more: str = "") -> Path:
    path = folder / "job.yaml"
    path.write_text(JOB.format(run=run, more=more))
    return path


@pytest.mark.parametrize("run", MISSING)
def test_a_script_that_is_not_there_is_refused(tmp_path: Path, run: str) -> None:
    path = job(tmp_path, run)
    with pytest.raises(BadRequest, match=rf"^{path}:3: run: there is no file .* in {tmp_path}; correct"):
        load(path, to_launch=True)
    assert load(path), "a plan needs no script"
    assert load(job(tmp_path, run, "setup: git clone x\n"), to_launch=True), "a setup may make it"


@pytest.mark.parametrize("run", NO_SCRIPT)
def test_other_commands_are_not_judged(tmp_path: Path, run: str) -> None:
    assert script_problem(run, tmp_path) is None


def test_a_script_that_is_there_is_launched(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert load(job(tmp_path, "python train.py"), to_launch=True)


def test_launch_says_so_and_creates_nothing(tmp_path: Path) -> None:
    ended = spotctl("--home", tmp_path / "home", "launch", job(tmp_path, "python train.py"), "--yes")
    assert ended.code == 2
    assert ended.error.endswith(
        f"job.yaml:3: run: there is no file train.py in {tmp_path}; correct the name, or write workdir\n"
    )
    assert not (tmp_path / "home").exists()
