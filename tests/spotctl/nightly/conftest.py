"""Fixtures of the tests in this folder."""

from __future__ import annotations

import os
from datetime import UTC, datetime, time
from pathlib import Path

import pytest

from pricing_data.units import to_micros
from spotctl.nightly.hours import Hours
from spotctl.nightly.state_dir import Installed, StateDir

NIGHT = to_micros(datetime(2026, 6, 1, 2, tzinfo=UTC))


WITH_DEADLINE, WITHOUT = Hours(time(2), time(6)), Hours(time(2))


@pytest.fixture
def job(tmp_path: Path) -> StateDir:
    state_dir = StateDir(tmp_path, "small")
    state_dir.install(Installed("small", tmp_path / "job.yaml", WITH_DEADLINE, "cron", ""))
    os.utime(state_dir.folder / "installed.json", (NIGHT / 1e6 - 9e6, NIGHT / 1e6 - 9e6))
    state_dir.starts.create()
    return state_dir
