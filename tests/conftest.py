"""What every test stands on: no network but loopback, a home of its own, and the shared records where they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# readline, where something imports it, tells child processes (the test runner's too) of a terminal of 80 columns.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or writes the settings, credentials or prices of whoever runs it."""
    monkeypatch.setenv("SPOTCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_EC2_METADATA_DISABLED", "NO_GCE_CHECK"):
        monkeypatch.setenv(name, "true")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "AZURE_SUBSCRIPTION_ID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def shared_data() -> Path:
    """Records of real markets; they are not part of the project."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no records of real markets in {SHARED_DATA}")
    return SHARED_DATA
