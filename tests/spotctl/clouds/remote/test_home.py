"""What a home keeps for rented machines, and for whose eyes."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from spotctl.clouds.errors import ProviderError
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.remote import home as homes
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.clouds.remote.home import RemoteHome, private_key, public_key
from spotctl.home.errors import BadRequest
from tests.spotctl.clouds.remote.rented import CLOCK


def test_the_key_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    path = private_key(tmp_path / "remote")
    content = path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert private_key(tmp_path / "remote").read_bytes() == content
    said = subprocess.run(
        ["ssh-keygen", "-y", "-f", str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert said.split()[:2] == public_key(tmp_path / "remote").split()[:2]


def test_a_damaged_key_is_named(tmp_path: Path) -> None:
    (tmp_path / "ssh.key").write_text("garbage")
    with pytest.raises(ProviderError, match=r"ssh\.key: not an ssh key"):
        public_key(tmp_path)


def test_sockets_of_a_process_that_was_killed_are_removed_and_others_kept() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short) / "r"
        first = RemoteHome(folder)
        left = first.sockets.parent / "left"
        left.mkdir()
        (left / "lock").touch()
        (left.parent / "being-made").mkdir()
        second = RemoteHome(folder)
        assert not left.exists()
        assert {one.name for one in left.parent.iterdir()} == {
            "being-made",
            first.sockets.name,
            second.sockets.name,
        }
        first.close()
        second.close()


def test_a_home_with_a_long_path_has_its_sockets_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        long = tmp_path / ("x" * 80)
        first = RemoteHome(long)
        assert first.sockets.parent == Path(short) / f"spotctl-{os.getuid()}"
        assert stat.S_IMODE(first.sockets.parent.stat().st_mode) == 0o700
        first.close()
        first.sockets.parent.chmod(0o777)
        with pytest.raises(ProviderError, match="other users may write there"):
            RemoteHome(long)


def test_what_was_not_used_for_long_is_removed() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short) / "r"
        for name, age in (("old", homes.KEPT_SECONDS + 60), ("new", 60)):
            path = folder / "known_hosts" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (time.time() - age, time.time() - age))
        RemoteHome(folder).close()
        assert [one.name for one in (folder / "known_hosts").iterdir()] == ["new"]


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    agents = RemoteAgents(tmp_path / "remote", CLOCK)
    agents.close()
    assert not (tmp_path / "remote").exists()


def test_a_folder_that_cannot_be_copied_is_refused_at_once(tmp_path: Path) -> None:
    agents = RemoteAgents(tmp_path / "remote", CLOCK)
    machine = RemoteMachine("aws:us-east-1:i-1", 0, "127.0.0.1", 1, lambda: "", lambda: False)
    with pytest.raises(BadRequest, match="no such folder"):
        agents.prepare(machine, MachineSupplies(folder=tmp_path / "nowhere"))
    agents.close()
