"""A sample of `python -m tests.spotctl.run.cloud_kills`: `make kills` tries all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_killed_runner_on_a_cloud_buys_nothing_twice_and_leaves_nothing() -> None:
    # In a process of its own: the runners are its forks.
    words = ("-m", "tests.spotctl.run.cloud_kills", "--cloud", "azure", "--every", "100")
    found = subprocess.run(
        [sys.executable, *words], check=False, cwd=CODE, capture_output=True, text=True
    )
    assert (found.returncode, found.stdout.splitlines()[-1:]) == (
        0,
        ["2 fates tried, 2 met, 0 failed"],
    ), found
