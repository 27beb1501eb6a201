"""Homes are closed to others."""

from __future__ import annotations

import stat
from pathlib import Path

from spotctl.log.jobs import JobLock
from spotctl.log.store import EventLog
from tests.spotctl.test_other_users import umask


def is_closed(path: Path) -> bool:
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


def test_a_new_home_is_closed_to_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with umask(0), JobLock(home / "locks", "job"), EventLog(home / "log.sqlite"):
        files = [home, home / "locks", *home.glob("log.sqlite*")]
        assert len(files) > 3
        assert all(map(is_closed, files))


def test_a_home_of_an_earlier_version_is_closed_to_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with EventLog(home / "log.sqlite"):
        home.chmod(0o755)
        for file in home.glob("log.sqlite*"):
            file.chmod(0o644)
        with EventLog(home / "log.sqlite"):
            assert all(map(is_closed, [home, *home.glob("log.sqlite*")]))


def test_a_shared_place_stays_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with EventLog(tmp_path / "log.sqlite"):
        assert is_closed(tmp_path / "log.sqlite")
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1777
