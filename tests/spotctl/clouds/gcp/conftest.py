from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spotctl.clouds.gcp.world import World, world


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as one:
        yield one
