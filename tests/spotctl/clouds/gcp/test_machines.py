"""The contracts on machines that really run, as namespaces behind the server of `tests.cloud.gcp`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.clouds.base import Payload
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.home.wall_clock import WallClock
from tests.cloud.host import LAPTOP
from tests.cloud.namespaces import namespaces
from tests.spotctl.clouds.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.gcp.world import BID, N2, UNKNOWN, world

pytestmark = [pytest.mark.slow, pytest.mark.cloud]


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with namespaces() as host, world(tmp_path, host) as made:
        made.server.networks["vpc"] = "global/networks/vpc"
        agents = RemoteAgents(tmp_path / "machines", WallClock())
        payload = Payload("work", ("/bin/sh", "-c", "exit 3"))
        yield Setting(
            made.provider(agents, network="vpc", ssh_from=(LAPTOP[0],)),
            N2,
            BID,
            UNKNOWN,
            payload,
            lambda seconds: time.sleep(min(seconds, 1.0)),
            lease=12 * SECOND,
            short_lease=5 * SECOND,
            slack=20 * SECOND,
            late=120 * SECOND,
            patience_seconds=180.0,
        )
        agents.close()


class TestLink(LinkContract):
    pass


class TestLeases:
    test_a_machine_ends_with_its_lease = ProviderContract.test_a_machine_ends_with_its_lease_without_any_launcher
    test_a_lease_that_has_ended_at_the_request = ProviderContract.test_a_lease_that_has_ended_at_the_request
    test_a_token_is_not_served_again = ProviderContract.test_a_token_is_not_served_again_when_its_machines_are_gone
