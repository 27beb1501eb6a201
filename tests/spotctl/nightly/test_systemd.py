from __future__ import annotations

import os
import shutil
import subprocess
from datetime import time
from pathlib import Path

import pytest

from spotctl.errors import BadRequest
from spotctl.nightly.systemd import Units, UserManager, service, timer

COMMAND = ["/bin/echo", "-P", 'a "b" c', "100%", "$HOME", "back\\slash", "it's; #5"]


def test_the_units_are_what_systemd_accepts(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze here")
    units = Units("small")
    (tmp_path / units.service).write_text(service("small", COMMAND))
    (tmp_path / units.timer).write_text(timer("small", [time(2, 30), time(3)]))
    paths = [str(tmp_path / units.service), str(tmp_path / units.timer)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ran = subprocess.run(
        [analyze, "verify", "--user", *paths], capture_output=True, text=True, check=False, env=environment
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_nothing_in_a_command_means_anything_to_systemd() -> None:
    (line,) = (line for line in service("small", COMMAND).splitlines() if line.startswith("ExecStart="))
    assert line == ('ExecStart="/bin/echo" "-P" "a \\"b\\" c" "100%%" "$$HOME" "back\\\\slash" "it\'s; #5"')
    with pytest.raises(BadRequest, match="line break"):
        service("small", ["/a\nb"])


def test_a_timer_catches_up_and_looks_at_each_time() -> None:
    lines = timer("small", [time(2, 30), time(3)]).splitlines()
    assert "Persistent=true" in lines
    assert [line for line in lines if line.startswith("OnCalendar")] == [
        "OnCalendar=*-*-* 02:30:00",
        "OnCalendar=*-*-* 03:00:00",
    ]


STAND_IN = """\
#!/bin/sh
echo "$*" >> "$CALLED"
[ "$2" != show-environment ] || exit ${ANSWERS:-0}
"""


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserManager:
    """A `systemctl` that notes what it is asked."""
    program = tmp_path / "bin" / "systemctl"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    return UserManager(tmp_path / "units")


def asked(folder: Path) -> list[str]:
    return [line for line in (folder / "called").read_text().splitlines() if "show-environment" not in line]


def test_units_are_written_and_removed_alone(manager: UserManager, tmp_path: Path) -> None:
    theirs = tmp_path / "units" / "theirs.timer"
    theirs.parent.mkdir()
    theirs.write_text("theirs")
    manager.install(Units("small"), "s", "t")
    assert manager.has(Units("small"))
    manager.remove(Units("small"))
    assert [path.name for path in theirs.parent.iterdir()] == ["theirs.timer"]
    unit = "spotctl-nightly-small.timer"
    assert asked(tmp_path) == [
        "--user daemon-reload",
        f"--user enable {unit}",
        f"--user restart {unit}",
        f"--user disable --now {unit}",
        "--user daemon-reload",
    ]


def test_without_a_manager_nothing_is_written(
    manager: UserManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANSWERS", "1")
    with pytest.raises(BadRequest, match="--scheduler cron"):
        manager.install(Units("small"), "s", "t")
    assert not (tmp_path / "units").exists()
