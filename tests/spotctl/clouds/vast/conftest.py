"""Fixtures of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from spotctl.clouds.vast.calls import VastCalls
from spotctl.clouds.vast.cloud import VastSettings
from spotctl.clouds.vast.prices import VastSource
from spotctl.clouds.vast.provider import VastProvider
from tests.servers.loopback import LoopbackServer, serving
from tests.servers.vast import KEY, Vast
from tests.servers.vast_market import Host, VastMarket
from tests.spotctl.clouds.vast.world import World, world


@pytest.fixture
def made(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        yield made


@pytest.fixture
def provider(made: World) -> Iterator[VastProvider]:
    with closing(made.provider()) as provider:
        yield provider


def hosts() -> list[Host]:
    return [
        *(
            Host(number, gpu_floor=0.1 + number / 100, gpu_price=0.3 + number / 100)
            for number in range(1, 9)
        ),
        Host(
            20,
            gpu="H100 SXM",
            gpus=8,
            country="DE",
            gpu_ram_mb=81_559,
            cpu_cores=96,
            ram_mb=900_000,
            storage=0.2,
        ),
        Host(21, verified=False),
        Host(22, gpus=3, cpu_cores=64, ram_mb=256_000),
        Host(23, cpu_cores=2),
        Host(24, reliability=0.8),
        Host(25, storage=9.0),
        Host(26, lasts_seconds=3600.0),
    ]


@pytest.fixture
def api() -> Vast:
    return Vast(VastMarket(hosts()))


@pytest.fixture
def server(api: Vast, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackServer]:
    monkeypatch.setenv("VAST_API_KEY", KEY)
    with serving(api) as server:
        yield server


@pytest.fixture
def source(server: LoopbackServer, tmp_path: Path) -> Iterator[VastSource]:
    calls = VastCalls(server.url)
    yield VastSource(calls, VastSettings(), tmp_path / "offers")
    calls.close()
