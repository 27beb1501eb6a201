"""Fixtures of the tests in this folder."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def scratch(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trials of this test make their copies."""
    place = tmp_path_factory.mktemp("scratch")
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place
