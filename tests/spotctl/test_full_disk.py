"""On a full disk no file of a run can be written any more; its machines are returned all the same,
and seen to be.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.agent.container.processes import marked
from tests.spotctl.clouds.leaving import kill_all
from tests.spotctl.command_line import spotctl
from tests.spotctl.launches import command, processes
from tests.waiting import PATIENCE_SECONDS, eventually


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "home"
    kill_all(tmp_path)


def _fill(home: Path, launcher: int) -> None:
    """From now on, no process of the run can write a byte to a file."""
    machines = {pid for pid, mark in marked() if mark.is_relative_to(home)}
    hypervisors = {
        int(name.name) for name in Path("/proc").glob("[0-9]*") if _is_hypervisor(name, home)
    }
    for pid in {launcher, *machines, *hypervisors}:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


def _is_hypervisor(process: Path, home: Path) -> bool:
    try:
        about = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        return str(home).encode() in about and int(process.name) != os.getpid()
    except OSError:
        return False


def test_machines_are_returned_although_nothing_can_be_written(tmp_path: Path, home: Path) -> None:
    job = command(tmp_path, "echo begun; sleep 1000")
    words = [sys.executable, "-m", "spotctl", "launch", str(job), "--yes", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        try:
            eventually(
                lambda: any(
                    path.stat().st_size for path in (home / "local").glob("machines/*/*/output")
                )
            )
            _fill(home, launcher.pid)
            out, err = launcher.communicate(timeout=PATIENCE_SECONDS)
        finally:
            launcher.kill()
    assert (launcher.returncode, out) == (1, b"")
    assert err.decode().endswith("; all machines were returned\n")
    # On a busy computer the machine says meanwhile that it is starting.
    rented, *_, problem = err.splitlines()
    assert b" rented 1 x " in rented
    assert problem.startswith(b"spotctl: event log ")
    # The message is true when it is printed, not only some time later.
    assert not processes(home)
    assert spotctl("gc", "--json").json["resources"] == []
