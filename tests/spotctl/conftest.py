"""Fixtures for the tests of spotctl."""

from __future__ import annotations

from pathlib import Path

import pytest

from spotctl.agent.data import stores
from spotctl.planning import forecast
from tests.spotctl.approvals import Approved


@pytest.fixture
def approved(request: pytest.FixtureRequest, tmp_path: Path) -> Approved:
    """Compares refusals with the approved texts."""
    return Approved(request.node.nodeid.removeprefix("tests/spotctl/"), tmp_path)


@pytest.fixture
def few_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plays jobs over the fewest windows of the past. Most of a plan's time goes into the width of
    its forecast.
    """
    for name in ("_DECISIONS", "_MIXED", "_ROAMING"):
        monkeypatch.setattr(forecast, name, 60)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "FIRST_PAUSE", 0.001)
