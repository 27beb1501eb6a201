from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import time
from pathlib import Path

import pytest

from spotctl.nightly.install import CRON_ENVIRONMENT
from spotctl.nightly.schedulers import block, with_block, without_block
from spotctl.nightly.state_dir import StateDir
from tests.spotctl.approvals import Approved
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import COMMAND
from tests.spotctl.nightly.test_schedulers_crontab import CRONTAB_SUBSTITUTE

OTHER_LINES = b'MAILTO=""\n5 4 * * * /bin/true \xff \\%x\n'


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A crontab in a temporary folder, with lines of other programs, behind a substitute for
    `crontab`.
    """
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("crontab", CRONTAB_SUBSTITUTE), ("systemctl", "#!/bin/sh\nexit 1\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("TABLE", str(tmp_path / "table"))
    (tmp_path / "table").write_bytes(OTHER_LINES)
    return tmp_path / "table"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(COMMAND.format(run="'true'") + "secrets: [A_TOKEN]\n")
    return path


@pytest.mark.usefixtures("table")
def test_the_place_for_metrics_is_kept_with_its_whole_path(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.chdir(tmp_path)
    added = spotctl(
        "nightly", "install", job, "--at", "02:00", "--metrics", "small.prom", "--json"
    ).json
    assert added["metrics"] == str(tmp_path / "small.prom")
    changed = spotctl("nightly", "install", job, "--at", "02:00", "--json").json
    assert (changed["metrics"], changed["done"]) == ("", "changed")
    refused = spotctl("nightly", "install", job, "--at", "04:00", "--metrics", "70000")
    approved(refused)
    (listed,) = spotctl("nightly", "ls", "--json").json["nightly"]
    assert listed["at"] == "02:00"


def test_install_and_remove_are_idempotent(
    table: Path, job: Path, tmp_path: Path, approved: Approved
) -> None:
    first = spotctl(
        "nightly", "install", job, "--at", "02:00", "--deadline", "06:00", "--json"
    ).json
    once = table.read_bytes()
    second = spotctl("nightly", "install", job, "--at", "2:00", "--deadline", "6:00", "--json").json
    assert (first["done"], second["done"], table.read_bytes()) == ("installed", "unchanged", once)
    assert once.startswith(OTHER_LINES)
    assert b"\n0 2 * * * " in once
    assert (first["scheduler"], first["missing"], first["at"], first["deadline"]) == (
        "cron",
        ["A_TOKEN"],
        "02:00",
        "06:00",
    )
    third = spotctl("nightly", "install", job, "--at", "03:30", "--json").json
    assert (third["done"], third["deadline"], table.read_bytes().count(b">>>")) == (
        "changed",
        None,
        1,
    )
    (listed,) = spotctl("nightly", "ls", "--json").json["nightly"]
    assert listed["next"].endswith("03:30")
    assert "A_TOKEN not set" in listed["trouble"]
    assert spotctl("nightly", "rm", "small").code == 0
    assert table.read_bytes() == OTHER_LINES
    assert spotctl("nightly", "ls", "--json").json == {"nightly": []}
    approved(spotctl("nightly", "run", "small"))
    environment = tmp_path / "home" / "nightly" / "small" / "environment"
    assert environment.stat().st_mode & 0o777 == 0o600


def test_the_crontab_line_works_in_the_environment_of_cron(
    table: Path, job: Path, tmp_path: Path
) -> None:
    assert spotctl("nightly", "install", job, "--at", "02:00").code == 0
    (line,) = (
        line for line in table.read_text("latin1").splitlines() if " nightly run small" in line
    )
    command = line.split(" ", 5)[5]
    ran = subprocess.run(
        ["/bin/sh", "-c", command],
        env=CRON_ENVIRONMENT,
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 5
    assert "add A_TOKEN=... to" in ran.stderr
    words = shlex.split(command)
    assert Path(words[words.index("/bin/sh") + 2]).is_absolute()
    assert StateDir(tmp_path / "home", "small").starts.read()[0][0].number == 1
    assert (tmp_path / "home" / "nightly" / "small" / "logs").is_dir()


def test_ls_shows_what_would_prevent_a_run(table: Path, job: Path, tmp_path: Path) -> None:
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
    table.write_bytes(without_block(table.read_bytes(), f"small of {tmp_path / 'home'}"))
    assert "cron timer is gone" in trouble()


def older(home: Path) -> bytes:
    """The crontab line of a version that did not supervise its nights."""
    command = shlex.join(
        [sys.executable, "-P", "-m", "spotctl", "--home", str(home), "nightly", "run", "small"]
    )
    return block(f"small of {home}", time(2), f"{command} --scheduled || {{ s=$?; exit $s; }}")


def test_ls_and_doctor_say_how_to_renew_what_an_older_version_installed(
    table: Path, job: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    words = [
        "nightly",
        "install",
        str(job),
        "--at",
        "02:00",
        "--deadline",
        "06:00",
        "--scheduler",
        "cron",
    ]
    assert spotctl(*words).code == 0
    state_dir = StateDir(home, "small")
    state_dir.environment.write_text("A_TOKEN=x\n")

    def renew() -> str:
        (listed,) = spotctl("nightly", "ls", "--json").json["nightly"]
        assert listed["problem"] == ""
        return str(listed["renew"])

    assert renew() == ""
    current = state_dir.supervisor.read_bytes()
    state_dir.supervisor.write_text("exit 0\n")
    assert f"spotctl nightly install {job} --at 02:00 --deadline 06:00 --scheduler cron" in renew()
    state_dir.supervisor.write_bytes(current)
    assert renew() == ""
    label = f"small of {home}"
    table.write_bytes(with_block(table.read_bytes(), label, older(home)))
    assert "installed by an older version" in renew()
    assert "installed by an older version" in spotctl("nightly", "ls").out
    (night,) = (
        each
        for each in spotctl("doctor", "--json").json["findings"]
        if each["what"] == "nightly small"
    )
    assert "spotctl nightly install" in night["cure"]
    assert spotctl("nightly", "ls", "--check").code == 0
    assert spotctl(*words).code == 0
    assert renew() == ""
    assert table.read_bytes().count(b">>>") == 1


def test_a_failed_installation_leaves_no_trace(
    table: Path, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    other = tmp_path / "other" / "job.yaml"
    other.parent.mkdir()
    other.write_text(job.read_text())
    for words, message in (
        ((job, "--at", "26:00"), "is not a time of day"),
        ((job, "--at", "02:00", "--scheduler", "at"), "not one of systemd, cron, auto"),
        ((job, "--at", "02:00", "--scheduler", "systemd"), "systemctl --user does not answer"),
        ((tmp_path / "none.yaml", "--at", "02:00"), "cannot be read"),
    ):
        refused = spotctl("nightly", "install", *words)
        assert refused.code == 2
        assert message in refused.error
    monkeypatch.setenv("REFUSED", "1")
    approved(spotctl("nightly", "install", job, "--at", "02:00"))
    monkeypatch.delenv("REFUSED")
    assert spotctl("nightly", "ls", "--json").json == {"nightly": []}
    assert table.read_bytes() == OTHER_LINES
    assert spotctl("nightly", "install", job, "--at", "02:00").code == 0
    approved(spotctl("nightly", "install", other, "--at", "02:00"))
    monkeypatch.setenv("REFUSED", "1")
    approved(spotctl("nightly", "install", job, "--at", "04:00"))
    (kept,) = spotctl("nightly", "ls", "--json").json["nightly"]
    assert kept["at"] == "02:00"


def test_json_answers(table: Path, job: Path) -> None:
    assert table.exists()
    assert (
        json.loads(spotctl("nightly", "install", job, "--at", "02:00", "--json").out)["name"]
        == "small"
    )
    assert spotctl("nightly", "rm", "small", "--json").json["done"] == "removed"
