"""Providers under `spotctl try --full`: orders are checked without buying; the cloud's simulator
evicts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pricing_data.market import NO_ZONE, Market
from pricing_data.units import MINUTE, NANOS_PER_DOLLAR
from spotctl.clouds.errors import NotFound, NotPermitted, ProviderError
from spotctl.clouds.provider import CloudProvider, MachineRequest
from spotctl.clouds.wiring import cloud_provider
from spotctl.home import config
from spotctl.home.errors import SpotctlError
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from spotctl.home.wall_clock import wall_us
from tests.cloud.api import ApiServer
from tests.cloud.aws import AwsServer
from tests.cloud.azure import AzureServer
from tests.cloud.clouds import SimulatedCloud, recorded
from tests.cloud.gcp import GcpServer
from tests.waiting import eventually

TAGS = {INSTALLATION_TAG: "0123456789abcdef", RUN_TAG: "try-full-1a2b3c", INTENT_TAG: "1"}
ZONES = {"aws": "us-east-1a", "azure": NO_ZONE, "gcp": "us-central1-a"}
PERMISSIONS = {
    "azure": "Microsoft.Compute/virtualMachines/simulateEviction/action",
    "gcp": "compute.instances.simulateMaintenanceEvent",
}


@dataclass(frozen=True)
class Account:
    """A simulated cloud of records, the provider that rents there, and an order."""

    cloud: SimulatedCloud
    provider: CloudProvider
    order: MachineRequest

    @property
    def trials(self) -> CloudProvider:
        return self.provider


@pytest.fixture(params=["aws", "azure", "gcp"])
def account(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Account]:
    with recorded(request.param) as cloud:
        for name, value in cloud.environment.items():
            monkeypatch.setenv(name, value)
        settings = config.load(os.environ, tmp_path)
        provider = cloud_provider(settings, [cloud.name], [cloud.region])
        market = Market(cloud.name, cloud.region, ZONES[cloud.name], cloud.type)
        order = MachineRequest("t1", market, 1, NANOS_PER_DOLLAR, wall_us() + 15 * MINUTE, TAGS)
        yield Account(cloud, provider, order)
        provider.close()


def shorten_notices(server: ApiServer) -> None:
    """Lets simulated evictions follow almost at once."""
    assert isinstance(server, AwsServer | AzureServer | GcpServer)
    (server.experiments if isinstance(server, AwsServer) else server).notice_seconds = 0.2


def test_an_order_is_checked_and_nothing_is_bought(account: Account) -> None:
    assert "debian" in account.trials.check_order(account.order) or account.cloud.name == "aws"
    assert account.cloud.server.machines() == ()
    account.provider.create(account.order)
    assert len(account.cloud.server.machines()) == 1


def test_an_order_of_a_type_that_does_not_exist_is_refused_as_a_purchase_would_be(
    account: Account,
) -> None:
    market = replace(
        account.order.market,
        instance_type={"azure": "Standard_D999_v9"}.get(account.cloud.name, "n9.none"),
    )
    with pytest.raises(SpotctlError) as checked:
        account.trials.check_order(replace(account.order, market=market))
    with pytest.raises(type(checked.value)) as bought:
        account.provider.create(replace(account.order, market=market))
    assert str(checked.value) == str(bought.value)


def test_the_clouds_simulator_evicts_a_machine(account: Account) -> None:
    (machine,) = account.provider.create(account.order)
    server = account.cloud.server
    shorten_notices(server)
    account.trials.simulate_eviction(machine.id)
    eventually(lambda: server.machines()[0].ended is not None)
    if isinstance(server, AwsServer):
        assert (server.experiments.templates, server.experiments.refused) == ({}, [])


def test_a_machine_that_is_gone_cannot_be_evicted(account: Account) -> None:
    (machine,) = account.provider.create(account.order)
    account.provider.terminate([machine.id])
    eventually(lambda: account.cloud.server.machines()[0].ended is not None)
    with pytest.raises(ProviderError):
        account.trials.simulate_eviction(machine.id)
    with pytest.raises(NotFound):
        account.trials.simulate_eviction("elsewhere")


def test_without_the_second_policy_an_eviction_is_refused(account: Account) -> None:
    (machine,) = account.provider.create(account.order)
    server = account.cloud.server
    if isinstance(server, AwsServer):
        server.experiments.has_role = False
        refusal: type[SpotctlError] = SpotctlError
    elif isinstance(server, AzureServer):
        server.access.denied.add(PERMISSIONS["azure"])
        refusal = NotPermitted
    else:
        assert isinstance(server, GcpServer)
        server.denied.add(PERMISSIONS["gcp"])
        refusal = NotPermitted
    with pytest.raises(refusal):
        account.trials.simulate_eviction(machine.id)
    assert server.machines()[0].ended is None


def test_the_host_that_answers_is_known(account: Account) -> None:
    assert account.trials.endpoint == "127.0.0.1"
