from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spotctl.clouds.gcp.world import World, world


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as one:
        yield one


@pytest.fixture
def logged_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A computer outside Google Cloud without a Google Cloud login."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
