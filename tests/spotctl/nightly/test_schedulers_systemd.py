from __future__ import annotations

import os
import shutil
import subprocess
from datetime import time
from pathlib import Path

import pytest

from spotctl.home.errors import BadRequest
from spotctl.nightly.install import Scheduler, Timers
from spotctl.nightly.schedulers import (
    Crontab,
    UserManager,
    linger,
    service,
    service_unit,
    timer,
    timer_unit,
)

COMMAND = ["/bin/echo", "-P", 'a "b" c', "100%", "$HOME", "back\\slash", "it's; #5"]


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    units = "small"
    (tmp_path / service_unit(units)).write_text(service("small", COMMAND))
    (tmp_path / timer_unit(units)).write_text(timer("small", [time(2, 30), time(3)]))
    paths = [str(tmp_path / service_unit(units)), str(tmp_path / timer_unit(units))]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ran = subprocess.run(
        [analyze, "verify", "--user", *paths],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_special_characters_are_escaped() -> None:
    (line,) = (
        line for line in service("small", COMMAND).splitlines() if line.startswith("ExecStart=")
    )
    assert line == (
        'ExecStart="/bin/echo" "-P" "a \\"b\\" c" "100%%" "$$HOME" "back\\\\slash" "it\'s; #5"'
    )
    with pytest.raises(BadRequest, match="line break"):
        service("small", ["/a\nb"])


def test_a_timer_is_persistent_and_has_all_times() -> None:
    lines = timer("small", [time(2, 30), time(3)]).splitlines()
    assert "Persistent=true" in lines
    assert [line for line in lines if line.startswith("OnCalendar")] == [
        "OnCalendar=*-*-* 02:30:00",
        "OnCalendar=*-*-* 03:00:00",
    ]


SYSTEMCTL_SUBSTITUTE = """\
#!/bin/sh
echo "$*" >> "$CALLED"
[ "$2" != show-environment ] || exit ${RUNNING:-0}
"""


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserManager:
    """A substitute for `systemctl` that records its arguments."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(SYSTEMCTL_SUBSTITUTE)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    return UserManager(tmp_path / "units")


def calls(folder: Path) -> list[str]:
    return [
        line
        for line in (folder / "called").read_text().splitlines()
        if "show-environment" not in line
    ]


def test_only_own_units_are_written_and_removed(manager: UserManager, tmp_path: Path) -> None:
    other = tmp_path / "units" / "other.timer"
    other.parent.mkdir()
    other.write_text("other")
    manager.install("small", "s", "t")
    assert manager.has("small")
    manager.remove("small")
    assert [path.name for path in other.parent.iterdir()] == ["other.timer"]
    unit = "spotctl-nightly-small.timer"
    assert calls(tmp_path) == [
        "--user daemon-reload",
        f"--user enable {unit}",
        f"--user restart {unit}",
        f"--user disable --now {unit}",
        "--user daemon-reload",
    ]


def test_without_systemd_nothing_is_written(
    manager: UserManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNNING", "1")
    with pytest.raises(BadRequest, match="--scheduler cron"):
        manager.install("small", "s", "t")
    assert not (tmp_path / "units").exists()


@pytest.mark.parametrize(("running", "expected"), [("0", Scheduler.SYSTEMD), ("1", Scheduler.CRON)])
def test_systemd_is_chosen_if_it_answers_and_otherwise_the_crontab(
    manager: UserManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    running: str,
    expected: Scheduler,
) -> None:
    program = tmp_path / "bin" / "crontab"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("RUNNING", running)
    timers = Timers(Crontab(), manager)
    assert timers.chosen(Scheduler.AUTO) is expected
    assert timers.chosen(Scheduler.CRON) is Scheduler.CRON


@pytest.mark.parametrize("status", [0, 1])
def test_timers_run_without_a_login_or_the_command_for_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    program = tmp_path / "loginctl"
    program.write_text(f'#!/bin/sh\necho "$*" > "{tmp_path}/called"\nexit {status}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("getpass.getuser", lambda: "nobody-lingers-here")
    said = linger()
    assert (tmp_path / "called").read_text() == "enable-linger\n"
    assert (
        said.endswith("run once: sudo loginctl enable-linger nobody-lingers-here")
        if status
        else not said
    )
