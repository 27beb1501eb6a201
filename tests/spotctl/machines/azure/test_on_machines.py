"""The contracts of providers and links on machines that really run: booted by Azure's custom data, reached over ssh,
and ended by their own managed identity."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.machines.remote.agents import RemoteAgents
from spotctl.wall_clock import WallClock
from tests.cloud.azure import AzureServer
from tests.cloud.namespaces import namespaces
from tests.spotctl.machines.azure.world import BID, MARKET, UNKNOWN, provider_of
from tests.spotctl.machines.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.machines.markets import python


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with namespaces() as host:
        server, agents = AzureServer(host), RemoteAgents(tmp_path / "machines", WallClock())
        provider = provider_of(server, agents)

        def let_pass(_: float) -> None:
            time.sleep(1.0)

        payload, boot = python("raise SystemExit(3)"), 30 * SECOND
        yield Setting(
            provider,
            MARKET,
            BID,
            UNKNOWN,
            payload,
            let_pass,
            lease=boot,
            short_lease=5 * SECOND,
            slack=boot,
            late=120 * SECOND,
            patience_seconds=150.0,
        )
        agents.close()
        server.close()


@pytest.mark.cloud
@pytest.mark.slow
class TestProvider(ProviderContract):
    pass


@pytest.mark.cloud
@pytest.mark.slow
class TestLink(LinkContract):
    pass
