"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spotctl.clouds.local.provider import LocalProvider, LocalSettings
from tests.spotctl.clouds import markets
from tests.spotctl.clouds.leaving import kill_all
from tests.spotctl.clouds.markets import BEGIN


def local(root: Path, **settings: object) -> LocalProvider:
    return LocalProvider(root, markets.market, replace(LocalSettings(unwarned=0.0), **settings))  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "local"
    kill_all(tmp_path)


@pytest.fixture
def slow(root: Path) -> LocalProvider:
    """The market at real speed, for tests in which nothing ends by itself."""
    provider = local(root)
    provider.begin(BEGIN, 1.0)
    return provider
