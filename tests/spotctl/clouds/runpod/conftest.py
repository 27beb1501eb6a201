"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spotctl.clouds.runpod.provider import RunPodProvider
from tests.servers.runpod_market import Stock
from tests.spotctl.clouds.runpod.world import H100, World, world


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def provider(made: World) -> Iterator[RunPodProvider]:
    with closing(made.provider()) as provider:
        yield provider


@pytest.fixture
def stocked(made: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.delenv("RUNPOD_API_KEY")
    made.market.stocks += [
        Stock("CA", bid=0.12, price=0.34),
        Stock("US-TX-3", H100, "H100 SXM", 80, bid=None, price=2.99),
        Stock("US-TX-3", "AMD Instinct MI300X OAM", "MI300X", 192),
        Stock("US-TX-3", "NVIDIA A40", "A40", 48, free=0),
        Stock("US-TX-3", "NVIDIA L4", "L4", 24, cuda=12.4),
    ]
    return made
