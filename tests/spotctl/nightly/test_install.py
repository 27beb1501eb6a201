from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from spotctl.errors import BadRequest
from spotctl.nightly.crontab import without_block
from spotctl.nightly.environment import missing, only_here, provided
from spotctl.nightly.install import BARE
from tests.spotctl.cli import spotctl
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.test_crontab import STAND_IN

THEIRS = b'MAILTO=""\n5 4 * * * /bin/true \xff \\%x\n'


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A crontab of the test's, with somebody's line in it, behind the command `crontab`."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("crontab", STAND_IN), ("systemctl", "#!/bin/sh\nexit 1\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("TABLE", str(tmp_path / "table"))
    (tmp_path / "table").write_bytes(THEIRS)
    return tmp_path / "table"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND.format(run="'true'") + "secrets: [A_TOKEN]\n")
    return path


def test_installing_twice_changes_nothing_and_removing_leaves_what_was(table: Path, job: Path, tmp_path: Path) -> None:
    first = spotctl("nightly", "install", job, "--at", "02:00", "--deadline", "06:00", "--json").json
    once = table.read_bytes()
    second = spotctl("nightly", "install", job, "--at", "2:00", "--deadline", "6:00", "--json").json
    assert (first["done"], second["done"], table.read_bytes()) == ("installed", "unchanged", once)
    assert once.startswith(THEIRS)
    assert b"\n0 2 * * * " in once
    assert (first["scheduler"], first["missing"], first["at"], first["deadline"]) == (
        "cron",
        ["A_TOKEN"],
        "02:00",
        "06:00",
    )
    third = spotctl("nightly", "install", job, "--at", "03:30", "--json").json
    assert (third["done"], third["deadline"], table.read_bytes().count(b">>>")) == ("changed", None, 1)
    (listed,) = spotctl("nightly", "ls", "--json").json["nightly"]
    assert listed["next"].endswith("03:30")
    assert "A_TOKEN not set" in listed["trouble"]
    assert spotctl("nightly", "rm", "small").code == 0
    assert table.read_bytes() == THEIRS
    assert spotctl("nightly", "ls", "--json").json == {"nightly": []}
    assert "no nightly job named 'small'" in spotctl("nightly", "run", "small").error
    environment = tmp_path / "home" / "nightly" / "small" / "environment"
    assert environment.stat().st_mode & 0o777 == 0o600


def test_the_line_works_in_the_environment_that_cron_gives(table: Path, job: Path, tmp_path: Path) -> None:
    assert spotctl("nightly", "install", job, "--at", "02:00").code == 0
    (line,) = (line for line in table.read_text("latin1").splitlines() if " nightly run small" in line)
    command = line.split(" ", 5)[5]
    ran = subprocess.run(["/bin/sh", "-c", command], env=BARE, cwd="/", capture_output=True, text=True, check=False)
    assert ran.returncode == 5
    assert "write A_TOKEN=... into" in ran.stderr
    assert Path(shlex.split(command)[0]).is_absolute()
    assert (tmp_path / "home" / "nightly" / "small" / "logs").is_dir()


def test_what_keeps_a_night_from_running_is_seen_the_evening_before(table: Path, job: Path, tmp_path: Path) -> None:
    spotctl("nightly", "install", job, "--at", "02:00")
    environment = tmp_path / "home" / "nightly" / "small" / "environment"
    environment.write_text("A_TOKEN=x\n")

    def trouble() -> str:
        (listed,) = spotctl("nightly", "ls", "--json").json["nightly"]
        return str(listed["trouble"])

    assert trouble() == ""
    environment.chmod(0o644)
    assert "chmod 600" in trouble()
    environment.chmod(0o600)
    table.write_bytes(without_block(table.read_bytes(), "small"))
    assert "cron timer is gone" in trouble()


def test_what_cannot_be_installed_leaves_no_trace(
    table: Path, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "job.yaml"
    other.parent.mkdir()
    other.write_text(job.read_text())
    for words, told in (
        ((job, "--at", "26:00"), "is no time of day"),
        ((job, "--at", "02:00", "--scheduler", "at"), "not one of systemd, cron, auto"),
        ((job, "--at", "02:00", "--scheduler", "systemd"), "no systemd of this user answers"),
        ((tmp_path / "none.yaml", "--at", "02:00"), "cannot be read"),
    ):
        refused = spotctl("nightly", "install", *words)
        assert refused.code == 2
        assert told in refused.error
    monkeypatch.setenv("REFUSED", "1")
    assert "bad minute" in spotctl("nightly", "install", job, "--at", "02:00").error
    monkeypatch.delenv("REFUSED")
    assert spotctl("nightly", "ls", "--json").json == {"nightly": []}
    assert table.read_bytes() == THEIRS
    assert spotctl("nightly", "install", job, "--at", "02:00").code == 0
    assert f"installed already, from {job}" in spotctl("nightly", "install", other, "--at", "02:00").error


def test_an_environment_file(tmp_path: Path) -> None:
    path = tmp_path / "environment"
    assert provided(path) == {}
    path.touch(0o600)
    path.write_text("# said\n\nA=1 = 2\n export B='x y'\nC=\"\nD=\n#E=5\n")
    given = provided(path)
    assert given == {"A": "1 = 2", "B": "x y", "C": '"', "D": ""}
    assert missing(["A", "D", "E"], given) == ["D", "E"]
    assert only_here({"AWS_PROFILE": "p", "A": "1", "SPOTCTL_HOME": "/h", "AZURE_X": ""}, given) == ["AWS_PROFILE"]
    path.write_text("A=1\nsecret value\n")
    with pytest.raises(BadRequest) as refused:
        provided(path)
    assert "environment:2:" in str(refused.value)
    assert "secret value" not in str(refused.value)


def test_answers_are_json(table: Path, job: Path) -> None:
    assert table.exists()
    assert json.loads(spotctl("nightly", "install", job, "--at", "02:00", "--json").out)["name"] == "small"
    assert spotctl("nightly", "rm", "small", "--json").json["done"] == "removed"
