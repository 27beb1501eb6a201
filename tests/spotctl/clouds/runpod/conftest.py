"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spotctl.clouds.runpod.provider import RunPodProvider
from tests.spotctl.clouds.runpod.world import World, world


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def provider(made: World) -> Iterator[RunPodProvider]:
    with closing(made.provider()) as provider:
        yield provider
