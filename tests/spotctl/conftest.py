"""Fixtures for the tests of spotctl."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spotctl.approvals import Approved


@pytest.fixture
def approved(request: pytest.FixtureRequest, tmp_path: Path) -> Approved:
    """Compares refusals with the approved texts."""
    return Approved(request.node.nodeid.removeprefix("tests/spotctl/"), tmp_path)
