"""Providers on a real cluster, as several processes of one home have them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from pricing_data.market import Market
from pricing_data.series import PriceSeries
from pricing_data.units import MINUTE, SECOND
from spotctl.clouds.errors import NotFound, NotYet
from spotctl.clouds.order_ledger import OrderLedger
from spotctl.clouds.provider import Machine, MachineRequest
from spotctl.clouds.remote.prices import PriceBook
from spotctl.clouds.slurm.cloud import SlurmSettings
from spotctl.clouds.slurm.partitions import NodeOffer, offers
from spotctl.clouds.slurm.provider import SlurmProvider
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG
from spotctl.home.wall_clock import wall_us
from tests.servers.slurm_cluster import SlurmCluster

SPOT = Market("slurm", "slurm-try", "spot", "2c-2g")
UNKNOWN = replace(SPOT, instance_type="9c-9g")
BID = 1_000_000_000
RUN = {INSTALLATION_TAG: "0123456789abcdef", RUN_TAG: "nightly-c0ffee"}


class Prices(PriceBook):
    """One price for the known market."""

    def __init__(self) -> None:
        """Reads no store."""

    def markets(self, cloud: str) -> tuple[Market, ...]:
        assert cloud == "slurm"
        return (SPOT, replace(SPOT, zone="gone"), replace(SPOT, instance_type="1c-1g"))

    def prices(self, market: Market, start: int, end: int, assumed: int = 0) -> PriceSeries:  # noqa: ARG002
        if market == UNKNOWN or end > wall_us():
            raise NotFound(f"{market}: no prices are known at {end}")
        return PriceSeries(market, np.array([start, end]), np.array([BID] * 2))


class Patient(SlurmProvider):
    """Repeats an order whose jobs wait, as a run does."""

    def create(self, request: MachineRequest) -> tuple[Machine, ...]:
        while True:
            with suppress(NotYet):
                return super().create(request)
            time.sleep(0.5)


@dataclass
class World:
    """A home, whose shared folder is below it."""

    cluster: SlurmCluster
    folder: Path
    settings: SlurmSettings = field(default_factory=lambda: SlurmSettings(wait_seconds=60.0))

    def provider(self, listed_within: int = 2 * SECOND) -> SlurmProvider:
        """A provider that knows nothing of what others did but by their files."""
        ledger = OrderLedger(self.folder / "orders", listed_within, gone_after=0)
        return Patient(self.folder / "shared", self.settings, ledger, Prices())


@contextmanager
def world(cluster: SlurmCluster, folder: Path) -> Iterator[World]:
    """A home of its own on a cluster, which is left without jobs."""
    yield World(cluster, folder)
    cluster.clear()


def order(token: str = "nightly-c0ffee-1", machines: int = 1, **changes: object) -> MachineRequest:
    tags = {**RUN, INTENT_TAG: "1"}
    asked = MachineRequest(token, SPOT, machines, BID, wall_us() + 10 * MINUTE, tags)
    return replace(asked, **changes)  # type: ignore[arg-type]


def only(provider: SlurmProvider) -> Machine:
    (machine,) = provider.list({})
    return machine


def offer_of(made: World, partition: str) -> NodeOffer:
    return next(one for one in offers(made.settings) if one.market.zone == partition)
