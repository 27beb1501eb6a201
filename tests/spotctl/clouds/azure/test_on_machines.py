"""The contracts of providers and links on machines that really run: booted by Azure's custom data, reached over ssh,
and ended by their own managed identity."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.home.wall_clock import WallClock
from tests.cloud.azure import AzureServer
from tests.cloud.namespaces import namespaces
from tests.spotctl.clouds.azure.world import BID, MARKET, UNKNOWN, provider_of
from tests.spotctl.clouds.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.markets import python

pytestmark = [pytest.mark.slow, pytest.mark.cloud]


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with namespaces() as host:
        server, agents = AzureServer(host), RemoteAgents(tmp_path / "machines", WallClock())
        yield Setting(
            provider_of(server, agents),
            MARKET,
            BID,
            UNKNOWN,
            python("raise SystemExit(3)"),
            lambda _: time.sleep(1.0),
            lease=12 * SECOND,
            short_lease=5 * SECOND,
            slack=30 * SECOND,
            late=120 * SECOND,
            patience_seconds=150.0,
        )
        agents.close()
        server.close()


class TestLink(LinkContract):
    pass


class TestLeases:
    """What test_contract.py cannot show with machines of the books. The rest of the contract needs no process."""

    test_a_machine_ends_with_its_lease = ProviderContract.test_a_machine_ends_with_its_lease_without_any_launcher
    test_a_lease_that_has_ended_at_the_request = ProviderContract.test_a_lease_that_has_ended_at_the_request
    test_terminated_machines_are_paid_until_then = ProviderContract.test_terminated_machines_are_paid_until_then
