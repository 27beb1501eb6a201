"""The contract of providers on the simulated clouds, whose machines are records: what needs no
process on a machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.clouds.runpod.provider import RunPodProvider
from spotctl.clouds.vast.provider import VastProvider
from tests.servers.loopback import Fault
from tests.spotctl.clouds.aws import standins
from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2
from tests.spotctl.clouds.azure import world as azure
from tests.spotctl.clouds.contract import ContainerContract, ProviderContract, Setting
from tests.spotctl.clouds.gcp import world as gcp
from tests.spotctl.clouds.markets import python
from tests.spotctl.clouds.runpod import world as runpod
from tests.spotctl.clouds.vast import world as vast

_LEASE_TESTS = (
    "test_a_machine_ends_with_its_lease_without_any_launcher",
    "test_a_lease_that_has_ended_at_the_request",
)
_PAYLOAD = python("raise SystemExit(3)")


def a_second(_: float) -> None:
    """Clouds date by the second."""
    time.sleep(1.0)


@contextmanager
def on_aws(folder: Path) -> Iterator[Setting]:  # noqa: ARG001 - as the other clouds
    with pytest.MonkeyPatch.context() as environment, running_ec2(environment, Ec2) as ec2:
        assert not ec2.machines()
        with closing(standins.provider()) as here:
            yield Setting(
                here,
                standins.MARKET,
                standins.BID,
                standins.UNKNOWN,
                _PAYLOAD,
                a_second,
                slack=SECOND,
            )


@contextmanager
def on_gcp(folder: Path) -> Iterator[Setting]:
    with gcp.world(folder) as made:
        yield Setting(
            made.provider(), gcp.N2, gcp.BID, gcp.UNKNOWN, _PAYLOAD, a_second, slack=SECOND
        )


@contextmanager
def on_azure(folder: Path) -> Iterator[Setting]:  # noqa: ARG001 - as the other clouds
    """Its records keep their leases, as machines that run do."""
    with azure.running_world() as world:
        yield Setting(
            world.provider(),
            azure.MARKET,
            azure.BID,
            azure.UNKNOWN,
            _PAYLOAD,
            a_second,
            short_lease=2 * SECOND,
            slack=2 * SECOND,
        )


@contextmanager
def on_vast(folder: Path) -> Iterator[Setting]:
    with vast.world(folder) as made, closing(made.provider()) as here:
        yield _vast_setting(here, made)


@contextmanager
def on_late_vast(folder: Path) -> Iterator[Setting]:
    """Its lists lack what was made in the last second."""
    times = (4 * SECOND, 2 * SECOND)
    with vast.world(folder) as made, closing(made.provider(times=times)) as here:
        made.api.lists_late = 1.0
        yield _vast_setting(here, made)


def _vast_setting(provider: VastProvider, made: vast.World) -> Setting:
    return Setting(
        provider,
        vast.ONE,
        vast.BID,
        vast.UNKNOWN,
        _PAYLOAD,
        a_second,
        slack=SECOND,
        containers=VastRenters(made),
    )


@dataclass(frozen=True)
class VastRenters:
    """See `ContainerMarket`."""

    made: vast.World

    def outbid(self, machine: str) -> None:
        market = self.made.market
        market.outbid(market.contracts[int(machine.removeprefix("vast:"))].host, 0.9)

    def lose_an_answer(self) -> None:
        self.made.server.faults.append(Fault("/asks/", lost=True))

    def bought(self) -> int:
        return len(self.made.market.contracts)


@contextmanager
def on_runpod(folder: Path) -> Iterator[Setting]:
    with runpod.world(folder) as made, closing(made.provider()) as here:
        yield _runpod_setting(here, made)


@contextmanager
def on_late_runpod(folder: Path) -> Iterator[Setting]:
    """Its lists lack what was made in the last second."""
    times = (4 * SECOND, 2 * SECOND)
    with runpod.world(folder) as made, closing(made.provider(times=times)) as here:
        made.api.lists_late = 1.0
        yield _runpod_setting(here, made)


def _runpod_setting(provider: RunPodProvider, made: runpod.World) -> Setting:
    return Setting(
        provider,
        runpod.ONE,
        runpod.BID,
        runpod.UNKNOWN,
        _PAYLOAD,
        a_second,
        slack=SECOND,
        containers=RunPodRenters(made),
    )


@dataclass(frozen=True)
class RunPodRenters:
    """See `ContainerMarket`."""

    made: runpod.World

    def outbid(self, machine: str) -> None:
        market = self.made.market
        # A pod that RunPod stops within seconds of its order was not outbid.
        market.advance(11)
        market.outbid(market.pods[machine.removeprefix("runpod:")], 0.9)

    def lose_an_answer(self) -> None:
        # The order comes after the question of what is in stock.
        self.made.server.faults.append(Fault("/graphql", skip=1, lost=True))

    def bought(self) -> int:
        return len(self.made.market.pods)


CLOUDS = {
    "aws": on_aws,
    "gcp": on_gcp,
    "azure": on_azure,
    "vast": on_vast,
    "late vast": on_late_vast,
    "runpod": on_runpod,
    "late runpod": on_late_runpod,
}


class TestRequests(ProviderContract):
    @pytest.fixture(params=CLOUDS)
    def setting(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
        if request.param != "azure" and request.function.__name__ in _LEASE_TESTS:
            pytest.skip("only a machine that runs ends with its lease")
        with CLOUDS[request.param](tmp_path) as made:
            yield made


class TestContainers(ContainerContract):
    @pytest.fixture(params=["vast", "late vast", "runpod", "late runpod"])
    def setting(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
        with CLOUDS[request.param](tmp_path) as made:
            yield made
