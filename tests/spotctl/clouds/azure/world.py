"""Azure on this computer with machines that only its books know, and a provider for it."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import httpx

from pricing_data.market import Market
from pricing_data.units import HOUR, NANOS_PER_DOLLAR
from spotctl.clouds.azure.cloud import AzureMachineSettings, AzureSettings
from spotctl.clouds.azure.provider import AzureProvider
from spotctl.clouds.azure.session import AzureSession
from spotctl.clouds.provider import MachineRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from tests.cloud.azure import AzureServer
from tests.cloud.azure_fleet import IDENTITY
from tests.cloud.host import Addresses, MachineSpec, Records
from tests.servers.azure import SUBSCRIPTION
from tests.servers.loopback import Request
from tests.spotctl.clouds.unreached import SteadyPrices, Unreached

MARKET = Market.parse("azure/eastus/-/Standard_D4s_v5")
ELSEWHERE = Market.parse("azure/westus2/-/Standard_D2s_v5")
UNKNOWN = Market.parse("azure/eastus/-/Standard_Z9_v5")
PRICE, BID = NANOS_PER_DOLLAR // 100, NANOS_PER_DOLLAR // 50
SETTINGS = AzureMachineSettings(identity=IDENTITY, ssh_from=("203.0.113.7/32",))
PATIENCE_SECONDS, POLL_SECONDS = 5.0, 0.005


class LeaseKeepers(Records):
    """Machines in the books that do what a real one does at the end of its lease: they have Azure
    delete them.
    """

    # As the host declares it.
    def start(self, spec: MachineSpec, on_end: Any) -> Addresses:  # noqa: ANN401
        addresses = super().start(spec, on_end)
        lease = re.search(rb"lease (\d+)", spec.user_data)
        if lease:
            seconds = max(int(lease[1]) / 1e6 - time.time(), 0.0) + 0.05
            if seconds < threading.TIMEOUT_MAX:
                timer = threading.Timer(seconds, self.delete_itself, [spec.name])
                timer.daemon = True
                timer.start()
        return addresses

    def delete_itself(self, name: str) -> None:
        if name not in self.running():
            return
        machine = self.metadata(name, "instance", {"api-version": "2021-02-01"})["compute"]
        query = {"api-version": "2018-02-01", "resource": "https://management.azure.com/"}
        token = self.metadata(name, "identity/oauth2/token", query)["access_token"]
        url = f"{self.spec(name).environment['AZURE_RESOURCE_MANAGER_URL']}{machine['resourceId']}"
        headers = {"Authorization": f"Bearer {token}"}
        httpx.delete(url, params={"api-version": "2024-07-01"}, headers=headers).raise_for_status()

    # JSON is any value.
    def metadata(self, name: str, path: str, query: Mapping[str, str]) -> Any:  # noqa: ANN401
        asked = {key: [value] for key, value in query.items()}
        reply = self.ask(
            name, Request("GET", f"/metadata/{path}", asked, {"metadata": "true"}, b"")
        )
        assert reply.status == 200, reply.body
        return reply_json(reply.body)


def reply_json(body: bytes) -> Any:  # noqa: ANN401 - JSON is any value
    import json

    return json.loads(body)


@dataclass
class World:
    """The server, and providers of it as processes of one home would make them."""

    server: AzureServer
    host: LeaseKeepers
    agents: Unreached = field(default_factory=Unreached)

    # Of settings.
    def provider(self, settings: AzureMachineSettings = SETTINGS, **changes: Any) -> AzureProvider:  # noqa: ANN401
        return provider_of(self.server, self.agents, replace(settings, **changes))

    def bought(self, name: str) -> dict[str, Any]:
        """The body of a machine, as it was sent."""
        return self.server.vm(name).body


def provider_of(
    server: AzureServer,
    agents: Any,  # noqa: ANN401
    settings: AzureMachineSettings = SETTINGS,
) -> AzureProvider:
    access = AzureSettings(subscription=SUBSCRIPTION, management_endpoint=server.url, retries=0)
    prices = SteadyPrices((MARKET, ELSEWHERE), PRICE)
    sign_in = partial(AzureSession.sign_in, access)
    return AzureProvider(sign_in, settings, agents, prices, PATIENCE_SECONDS, POLL_SECONDS)


@contextmanager
def running_world() -> Iterator[World]:
    host = LeaseKeepers()
    server = AzureServer(host)
    try:
        yield World(server, host)
    finally:
        server.close()


# Of any field.
def order(token: str = "t1", machines: int = 2, **changes: Any) -> MachineRequest:  # noqa: ANN401
    tags = {INSTALLATION_TAG: "home", RUN_TAG: "night-1", INTENT_TAG: token.removeprefix("t")}
    request = MachineRequest(token, MARKET, machines, BID, time.time_ns() // 1000 + HOUR, tags)
    return replace(request, **changes)
