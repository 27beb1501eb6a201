"""For providers whose machines are entries in books: prices that do not change, and agents that no
call reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from pricing_data.list_prices import ListPrices, shipped
from pricing_data.market import Market
from pricing_data.series import PriceSeries
from spotctl.clouds.boot import BootSign
from spotctl.clouds.errors import NotFound
from spotctl.clouds.link import AgentLink, Invocation, MachineStatus, MachineSupplies
from spotctl.clouds.provider import MachineRequest
from spotctl.clouds.remote.connections import RemoteMachine
from spotctl.clouds.remote.prices import PriceBook
from spotctl.home.wall_clock import wall_us


@dataclass(frozen=True)
class SteadyPrices(PriceBook):
    """Some markets, always at one price."""

    known: tuple[Market, ...]
    price: int

    def lists(self) -> ListPrices:
        return shipped()

    def markets(self, cloud: str) -> tuple[Market, ...]:
        return tuple(market for market in self.known if market.cloud == cloud)

    def prices(self, market: Market, start: int, end: int, assumed: int = 0) -> PriceSeries:  # noqa: ARG002
        if market not in self.known:
            raise NotFound(f"{market}: no prices are known")
        if end > wall_us():
            raise NotFound(f"{market}: prices are known until now")
        steady = np.array([self.price, self.price], dtype=np.int64)
        return PriceSeries(market, np.array([start, end], dtype=np.int64), steady)


@dataclass
class Unreached:
    """In place of agents: remembers what a provider asks of them. The start-up script names the end
    of the lease.
    """

    prepared: list[tuple[RemoteMachine, MachineSupplies]] = field(default_factory=list)
    linked: list[RemoteMachine] = field(default_factory=list)
    forgotten: set[str] = field(default_factory=set)

    def start_up(self, request: MachineRequest, cloud: str) -> str:
        return f"#!/bin/sh\n# {cloud} lease {request.lease_until}\n"

    def prepare(self, machine: RemoteMachine, supplies: MachineSupplies) -> None:
        self.prepared.append((machine, supplies))

    def link(self, machine: RemoteMachine) -> AgentLink:
        self.linked.append(machine)
        return cast("AgentLink", machine)

    def invocation(self, machine: RemoteMachine, command: Sequence[str]) -> Invocation:
        return Invocation(("ssh", machine.host, *command), {}, "")

    def boot_sign(self, machine: RemoteMachine) -> BootSign:  # noqa: ARG002
        return BootSign("running")

    def forget(self, ids: Sequence[str]) -> None:
        self.forgotten.update(ids)

    def close(self) -> None:
        """There is nothing to close."""


class Answering:
    """The link to an agent without work."""

    def status(self) -> MachineStatus:
        return MachineStatus("", None, 0, 0)

    def renew(self, until: int) -> None:
        """Nothing ends this agent."""
