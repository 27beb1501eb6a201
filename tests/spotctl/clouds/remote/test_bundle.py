"""What is brought to machines: the same content gives the same archive, and it runs alone."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from spotctl.clouds.errors import ProviderError
from spotctl.clouds.remote.bundle import code_wheel, packages_archive


def test_the_wheel_is_the_same_each_time(tmp_path: Path) -> None:
    first, second = code_wheel(tmp_path / "a"), code_wheel(tmp_path / "b")
    assert first.digest == second.digest
    assert hashlib.sha256(first.path.read_bytes()).hexdigest() == first.digest
    assert code_wheel(tmp_path / "a") == first


def test_the_wheel_runs_with_nothing_but_the_standard_library(tmp_path: Path) -> None:
    with zipfile.ZipFile(code_wheel(tmp_path).path) as archive:
        archive.extractall(tmp_path / "unpacked")
    (info,) = (tmp_path / "unpacked").glob("spotctl-*.dist-info")
    assert {path.name for path in info.iterdir()} == {
        "METADATA",
        "RECORD",
        "WHEEL",
        "entry_points.txt",
    }
    modules = ("spotctl.agent.rented", "spotctl.agent.node", "spotctl.agent.lease.job_lease")
    # A machine of one cloud may keep its checkpoints in the object store of another.
    clouds = (
        "assert spotctl.agent.lease.notices.poller_of('gcp', {}) and "
        "len(spotctl.agent.cloud_parts.forms()) == 3"
    )
    code = (
        f"import {', '.join(modules)}, spotctl.agent.data.locations; {clouds}; "
        "print(spotctl.__file__)"
    )
    words = [sys.executable, "-E", "-s", "-S", "-c", code]
    done = subprocess.run(
        words, cwd=tmp_path / "unpacked", capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


def test_packages_come_with_all_that_they_need(tmp_path: Path) -> None:
    archive = packages_archive(tmp_path, ["cloudpickle", "cryptography"])
    with zipfile.ZipFile(archive.path) as opened:
        tops = {name.partition("/")[0] for name in opened.namelist()}
        assert not [
            name
            for name in opened.namelist()
            if name.startswith(("..", "/")) or name.endswith(".pyc")
        ]
        opened.extractall(tmp_path / "unpacked")
    assert {"cloudpickle", "cryptography", "cffi"} <= tops
    code = (
        "import cloudpickle; from cryptography.hazmat.primitives.asymmetric import ed25519 as e; "
        "print(e.__file__)"
    )
    words = [sys.executable, "-E", "-s", "-S", "-c", code]
    done = subprocess.run(
        words, cwd=tmp_path / "unpacked", capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


def test_packages_are_packed_once_for_the_same_versions(tmp_path: Path) -> None:
    first = packages_archive(tmp_path, ["cloudpickle"])
    changed = first.path.stat().st_mtime_ns
    assert packages_archive(tmp_path, ["cloudpickle"]) == first
    assert first.path.stat().st_mtime_ns == changed
    first.path.unlink()
    assert packages_archive(tmp_path, ["Cloudpickle"]) == first
    assert first.path.exists()


def test_a_package_that_is_not_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="pip install no-such-package"):
        packages_archive(tmp_path, ["no_such_package"])
