"""Providers for tests on simulated EC2, with prices that do not change and links to no machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import cast

import numpy as np

from pricing_data.clouds.aws import AwsSession
from pricing_data.clouds.settings import AwsSettings
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.cloud_settings import AwsMachineSettings
from spotctl.machines.aws.provider import AwsProvider
from spotctl.machines.base import Invocation, MachineLink, MachineRequest, MachineSupplies, NotFound
from spotctl.machines.remote.agents import RemoteAgents
from spotctl.machines.remote.machine import RemoteMachine
from spotctl.wall_clock import wall_us

MARKET = Market.parse("aws/us-east-1/us-east-1a/c5.large")
ELSEWHERE = Market.parse("aws/us-west-2/us-west-2b/m6g.large")
UNKNOWN = Market.parse("aws/us-east-1/us-east-1a/z9.large")
PRICE, BID = NANOS_PER_DOLLAR // 20, NANOS_PER_DOLLAR // 10
SETTINGS = AwsMachineSettings(ssh_from=("203.0.113.7/32",), regions=("us-east-1", "us-west-2"))


@dataclass
class SteadyPrices:
    """Two markets, always at one price."""

    def markets(self, cloud: str) -> tuple[Market, ...]:
        return tuple(market for market in (MARKET, ELSEWHERE) if market.cloud == cloud)

    def prices(self, market: Market, start: int, end: int) -> PriceSeries:
        if market not in (MARKET, ELSEWHERE):
            raise NotFound(f"{market}: no prices are known")
        if end > wall_us():
            raise NotFound(f"{market}: prices are known until now")
        return PriceSeries(market, np.array([start, end], dtype=np.int64), np.array([PRICE, PRICE], dtype=np.int64))


@dataclass
class Unreached:
    """In place of agents: remembers what a provider asks of them."""

    prepared: list[tuple[RemoteMachine, MachineSupplies]] = field(default_factory=list)
    linked: list[RemoteMachine] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)

    def start_up(self, request: MachineRequest, cloud: str) -> str:
        return f"#!/bin/sh\n# {cloud} {request.lease_until}\n"

    def prepare(self, machine: RemoteMachine, supplies: MachineSupplies) -> None:
        self.prepared.append((machine, supplies))

    def link(self, machine: RemoteMachine) -> MachineLink:
        self.linked.append(machine)
        return cast("MachineLink", machine)

    def invocation(self, machine: RemoteMachine, command: Sequence[str]) -> Invocation:
        return Invocation(("ssh", machine.host, *command), {}, "")

    def forget(self, ids: Sequence[str]) -> None:
        self.forgotten.update(ids)


@cache
def session() -> AwsSession:
    """One for all tests of a process: it reads the description of EC2 once, and clients read the environment."""
    return AwsSession(AwsSettings(max_attempts=2, backoff_seconds=0.001))


def provider(settings: AwsMachineSettings = SETTINGS, agents: Unreached | RemoteAgents | None = None) -> AwsProvider:
    return AwsProvider(session(), settings, cast("RemoteAgents", agents or Unreached()), SteadyPrices())
