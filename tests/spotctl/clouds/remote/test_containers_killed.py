"""Callers killed by SIGKILL: a sample of the points that `python -m
tests.spotctl.clouds.containers_killed` tries all of.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["vast", "runpod"])
def test_what_a_killed_caller_did_can_be_repeated(cloud: str) -> None:
    # In a process of its own: the callers are its forks.
    found = subprocess.run(
        [sys.executable, "-m", "tests.spotctl.clouds.containers_killed", cloud, "7"],
        check=False,
        cwd=CODE,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert int(found.stdout.splitlines()[-1].split()[0]) > 5
