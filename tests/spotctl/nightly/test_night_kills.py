"""A sample of `python -m tests.spotctl.nightly.night_kills`: `make kills` tries all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CODE = Path(__file__).parents[3]


@pytest.mark.slow
def test_a_night_that_is_killed_anywhere_is_not_silent() -> None:
    # In a process of its own: the nights are its forks.
    words = ("-m", "tests.spotctl.nightly.night_kills", "--every", "150")
    ended = subprocess.run(
        [sys.executable, *words], check=False, cwd=CODE, capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout.splitlines()[-1:]) == (0, ["0 surprises"]), ended
