"""Providers of RunPod against the simulation, whose pods are records unless it runs containers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from pricing_data.fetched_rows import FetchedRows
from pricing_data.list_prices import DISKS, ListPrice, ListPrices
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.sources.base import FetchRequest
from pricing_data.units import MINUTE
from spotctl.clouds.errors import NotFound
from spotctl.clouds.link import MachineSupplies
from spotctl.clouds.order_ledger import OrderLedger
from spotctl.clouds.provider import MachineRequest
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.clouds.remote.prices import PriceBook
from spotctl.clouds.runpod.calls import RunPodCalls
from spotctl.clouds.runpod.cloud import RunPodSettings
from spotctl.clouds.runpod.prices import STORAGE, RunPodSource
from spotctl.clouds.runpod.provider import RunPodProvider
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from spotctl.home.wall_clock import WallClock, wall_us
from tests.cloud.runpod import RunningPods
from tests.servers.loopback import LoopbackServer, serving
from tests.servers.runpod import KEY, RunPod
from tests.servers.runpod_market import NoPodContainers, PodContainers, RunPodMarket, Stock

REGION = "runpod-us-tx-3"
ONE = Market("runpod", REGION, "secure", "1xRTX_4090")
UNKNOWN = replace(ONE, instance_type="9xRTX_4090")
BID = 300_000_000
NOW = 1_800_000_000_000_000
H100 = "NVIDIA H100 80GB HBM3"
RUN = {INSTALLATION_TAG: "0123456789abcdef", RUN_TAG: "nightly-c0ffee"}
Waits = tuple[int, int]
"""Within which time a list shows a pod, and after which one that it lacks is gone."""
AT_ONCE: Waits = (0, 0)
"""For a list that is never late."""


class StandIn(RemoteAgents):
    """Machines that never answer."""

    def start_up(self, request: MachineRequest, cloud: str) -> str:
        assert cloud == "runpod"
        return f"#!/bin/sh\necho lease {request.lease_until}\n"

    def prepare(self, machine: RemoteMachine, supplies: MachineSupplies) -> None:
        pass


class Prices(PriceBook):
    """One price for the known market."""

    def __init__(self) -> None:
        """Reads no store."""

    def lists(self) -> ListPrices:
        return ListPrices(
            (ListPrice(DISKS, 0, "runpod", REGION, STORAGE, 0.0, 0.10, "list", "a test"),)
        )

    def markets(self, cloud: str) -> tuple[Market, ...]:
        assert cloud == "runpod"
        return (ONE,)

    def on_demand(self, market: Market) -> int:
        assert market == ONE
        return 700_000_000

    def prices(self, market: Market, start: int, end: int, assumed: int = 0) -> PriceSeries:  # noqa: ARG002
        if market == UNKNOWN or end > wall_us():
            raise NotFound(f"{market}: no prices are known at {end}")
        return PriceSeries(market, np.array([start, end]), np.array([BID] * 2))


@dataclass
class World:
    """A server, and providers as several processes of one home have them."""

    server: LoopbackServer
    api: RunPod
    folder: Path

    def provider(
        self, agents: RemoteAgents | None = None, times: Waits = AT_ONCE, home: str = "home"
    ) -> RunPodProvider:
        """A provider that knows nothing of what others did but by their ledger."""
        folder = self.folder / home
        agents = agents or StandIn(folder / "machines", WallClock())
        calls, ledger = RunPodCalls(self.server.url), OrderLedger(folder / "orders", *times)
        return RunPodProvider(calls, RunPodSettings(), ledger, agents, Prices())

    @property
    def market(self) -> RunPodMarket:
        return self.api.market


@contextmanager
def world(folder: Path, containers: PodContainers | None = None) -> Iterator[World]:
    market = RunPodMarket([Stock(), Stock("EU-RO-1")], containers or NoPodContainers())
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RUNPOD_API_KEY", KEY)
        with serving(api := RunPod(market)) as server:
            if isinstance(containers, RunningPods):
                containers.port = int(server.url.rpartition(":")[2])
            yield World(server, api, folder)


def order(
    token: str = "nightly-c0ffee-1", machines: int = 2, intent: int = 1, **changes: object
) -> MachineRequest:
    asked = MachineRequest(
        token, ONE, machines, BID, wall_us() + 10 * MINUTE, {**RUN, INTENT_TAG: str(intent)}
    )
    return replace(asked, **changes)  # type: ignore[arg-type]


def fetched(made: World, *regions: str, community: bool = False) -> FetchedRows:
    """The rows of a fetch."""
    with closing(RunPodCalls(made.server.url)) as calls:
        source = RunPodSource(calls, RunPodSettings(community=community))
        (task,) = source.tasks(FetchRequest(NOW - 1, NOW, regions))
        return FetchedRows.joined(task.pull())
