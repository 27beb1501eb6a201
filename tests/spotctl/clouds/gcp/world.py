"""A provider against the server of `tests.cloud.gcp`, for tests that need no machine to run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
from google.cloud import compute_v1

from pricing_data.list_prices import ListPrices, shipped
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import MINUTE
from spotctl.clouds.errors import NotFound
from spotctl.clouds.gcp.cloud import GcpMachineSettings, GcpSettings
from spotctl.clouds.gcp.provider import GcpProvider
from spotctl.clouds.gcp.session import GcpSession
from spotctl.clouds.link import AgentLink, MachineSupplies
from spotctl.clouds.provider import Machine, MachineRequest, MachineState
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.clouds.remote.prices import PriceBook
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from spotctl.home.wall_clock import WallClock, wall_us
from tests.cloud.gcp import GcpServer
from tests.cloud.gcp_project import Held
from tests.cloud.host import MachineHost, Records
from tests.servers.gcp import PROJECT
from tests.waiting import eventually

N2 = Market("gcp", "us-central1", "us-central1-b", "n2-standard-4")
ANYWHERE = replace(N2, zone="-")
UNKNOWN = replace(N2, instance_type="n9-standard-4")
A, B = "us-central1-a", "us-central1-b"
STOCKOUT = "ZONE_RESOURCE_POOL_EXHAUSTED"
INSERTS = "/instances"
BID = 50_000_000
RUN = {INSTALLATION_TAG: "0123456789abcdef", RUN_TAG: "nightly-c0ffee"}
SCRIPT = "#!/bin/sh\necho lease {}\n"


class StandIn(RemoteAgents):
    """Machines that never answer; what was asked of them is recorded."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, WallClock())
        self.prepared: list[RemoteMachine] = []
        self.forgotten: list[str] = []

    def start_up(self, request: MachineRequest, cloud: str) -> str:
        assert cloud == "gcp"
        return SCRIPT.format(request.lease_until)

    def prepare(self, machine: RemoteMachine, supplies: MachineSupplies) -> None:  # noqa: ARG002
        self.prepared.append(machine)

    def link(self, machine: RemoteMachine) -> AgentLink:
        return super().link(machine)

    def forget(self, ids: Sequence[str]) -> None:
        self.forgotten += ids


class Prices(PriceBook):
    """One price for all markets but the unknown one."""

    def __init__(self) -> None:
        """Reads no store."""

    def lists(self) -> ListPrices:
        return shipped()

    def markets(self, cloud: str) -> tuple[Market, ...]:
        assert cloud == "gcp"
        return N2, ANYWHERE

    def prices(self, market: Market, start: int, end: int, assumed: int = 0) -> PriceSeries:  # noqa: ARG002
        if market == UNKNOWN or end > wall_us():
            raise NotFound(f"{market}: no prices are known at {end}")
        return PriceSeries(market, np.array([start, end]), np.array([BID // 2] * 2))


@dataclass
class World:
    """A server, its host, and providers as several processes have them."""

    server: GcpServer
    folder: Path
    sessions: list[GcpSession] = field(default_factory=list)

    def provider(self, agents: RemoteAgents | None = None, **settings: object) -> GcpProvider:
        """A provider that knows nothing of what others did, as in another process."""
        access = GcpSettings(
            PROJECT, self.server.http.url, first_retry_seconds=0.01, retry_deadline_seconds=0.5
        )
        session = GcpSession(access)
        self.sessions.append(session)
        chosen = replace(GcpMachineSettings(ssh_from=("192.0.2.7/32",)), **settings)  # type: ignore[arg-type]
        return GcpProvider(session, chosen, agents or StandIn(self.folder), Prices())

    @property
    def records(self) -> Records:
        assert isinstance(self.server.project.host, Records)
        return self.server.project.host

    def deleted_by_hand(self, path: str, token: str) -> None:
        """A call to delete a machine that is not a launcher's."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{self.server.http.url}/compute/v1/{path}"
        with urlopen(Request(url, method="DELETE", headers=headers), timeout=30):
            pass

    def called(self, method: str, part: str) -> list[str]:
        """The paths of calls."""
        return [
            one.path
            for one in self.server.http.requests
            if one.method == method and part in one.path
        ]


@contextmanager
def world(folder: Path, host: MachineHost | None = None) -> Iterator[World]:
    server = GcpServer(host or Records())
    made = World(server, folder)
    try:
        yield made
    finally:
        for session in made.sessions:
            session.__exit__()
        server.close()


def order(
    token: str = "nightly-c0ffee-1", machines: int = 2, intent: int = 1, **changes: object
) -> MachineRequest:
    tags: Mapping[str, str] = {**RUN, INTENT_TAG: str(intent)}
    asked = MachineRequest(token, N2, machines, BID, wall_us() + 10 * MINUTE, tags)
    return replace(asked, **changes)  # type: ignore[arg-type]


def body(made: World) -> Any:  # noqa: ANN401  # the SDK's messages are not annotated
    """The machine of the last request to create one, as the SDK's message."""
    sent = [
        one
        for one in made.server.http.requests
        if one.method == "POST" and one.path.endswith(INSERTS)
    ]
    return compute_v1.Instance.from_json(sent[-1].body)


def held(made: World, machine: Machine) -> Held:
    return made.server.project.living(machine.id)


def the(provider: GcpProvider, machine: Machine) -> Machine:
    return next(one for one in provider.list({}) if one.id == machine.id)


def ended(made: World, machine: Machine) -> Machine:
    """A machine as another process lists it once it is gone."""
    provider = made.provider()
    eventually(lambda: the(provider, machine).state is MachineState.GONE)
    return the(provider, machine)
