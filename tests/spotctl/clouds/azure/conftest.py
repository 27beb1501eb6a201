from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spotctl.clouds.azure.world import World, running_world


@pytest.fixture
def world() -> Iterator[World]:
    with running_world() as here:
        yield here
