"""Callers killed by SIGKILL: a sample of the points that `python -m tests.spotctl.clouds.killed`
tries all of.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from spotctl.agent.container.processes import kill
from spotctl.clouds.provider import EndReason, MachineState
from tests.spotctl.clouds.killed import ORDER, begun, provider
from tests.spotctl.clouds.leaving import kill_all, running
from tests.waiting import eventually

CODE = Path(__file__).parents[4]


EVERY = 170


def test_the_call_of_a_killed_caller_can_be_repeated() -> None:
    # In a process of its own: the callers are its forks, and it has no threads that a fork would
    # lose.
    found = subprocess.run(
        [sys.executable, "-m", "tests.spotctl.clouds.killed", str(EVERY)],
        check=False,
        cwd=CODE,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    *acts, last = found.stdout.splitlines()
    killed, tried = sum(int(line.split(", ")[1].split()[0]) for line in acts), int(last.split()[0])
    assert tried > 10
    # How often a call polls varies, so the last points do not always exist.
    assert tried - 2 <= killed <= tried


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_starter_leaves_complete_machines_or_none(tmp_path: Path, seed: int) -> None:
    """The process that forks the hypervisors is killed at a random moment, and the caller with
    it."""
    begun(tmp_path)
    code = (
        "from tests.spotctl.clouds import killed as k; "
        f"k.provider(k.Path({str(tmp_path)!r})).create(k.ORDER)"
    )
    caller = subprocess.Popen([sys.executable, "-c", code], cwd=CODE)
    try:
        for helper in helpers_of(caller, tmp_path):
            time.sleep(random.Random(seed).uniform(0.0, 0.08))
            kill(helper)
    finally:
        caller.kill()
        caller.wait()
    for one in provider(tmp_path).create(ORDER):
        alive = one.state is MachineState.RUNNING
        assert alive or one.end_reason is EndReason.FAILED
        folder = tmp_path / "machines" / Path(one.id.replace("-", "/"))
        eventually(partial(runs, tmp_path, folder, int(alive)))
    assert {one.kind for one in provider(tmp_path).resources({})} <= {"machine"}
    kill_all(tmp_path)


def runs(root: Path, folder: Path, processes: int) -> bool:
    return [mark for _, mark in running(root)].count(folder) == processes


def helpers_of(caller: subprocess.Popen[bytes], root: Path) -> list[int]:
    """The process that a caller has started, once it has; none if it came and went between two
    looks.
    """
    while caller.poll() is None:
        if found := [pid for pid, _ in running(root) if parent_of(pid) == caller.pid]:
            return found
    return []


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except FileNotFoundError:
        return 0
