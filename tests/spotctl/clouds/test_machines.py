"""The contracts of links and of leases on machines that really run: booted from what each simulated
cloud gives them, reached over ssh, and ended by their own access to the cloud."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from pricing_data.units import SECOND
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.home.wall_clock import WallClock
from tests.cloud.azure import AzureServer
from tests.cloud.host import LAPTOP
from tests.cloud.namespaces import Namespaces, namespaces
from tests.cloud.runpod import RunningPods
from tests.cloud.vast import RunningContainers
from tests.spotctl.clouds.aws import standins
from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2
from tests.spotctl.clouds.azure import world as azure
from tests.spotctl.clouds.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.gcp import world as gcp
from tests.spotctl.clouds.markets import python
from tests.spotctl.clouds.runpod import world as runpod
from tests.spotctl.clouds.test_contract import a_second
from tests.spotctl.clouds.vast import world as vast

pytestmark = [pytest.mark.slow, pytest.mark.cloud]

_PAYLOAD = python("raise SystemExit(3)")
# Clocks are real, so leases are as short as can be.
_LEASE, _SHORT_LEASE, _LATE = 12 * SECOND, 5 * SECOND, 120 * SECOND


@contextmanager
def on_aws(host: Namespaces, agents: RemoteAgents) -> Iterator[Setting]:
    with (
        pytest.MonkeyPatch.context() as environment,
        running_ec2(environment, Ec2, host),
        closing(standins.provider(agents=agents)) as here,
    ):
        yield Setting(
            here,
            standins.MARKET,
            standins.BID,
            standins.UNKNOWN,
            _PAYLOAD,
            a_second,
            lease=_LEASE,
            short_lease=_SHORT_LEASE,
            slack=20 * SECOND,
            late=_LATE,
            patience_seconds=300.0,
        )


@contextmanager
def on_gcp(host: Namespaces, agents: RemoteAgents) -> Iterator[Setting]:
    with gcp.world(Path(), host) as made:
        made.server.networks["vpc"] = "global/networks/vpc"
        yield Setting(
            made.provider(agents, network="vpc", ssh_from=(LAPTOP[0],)),
            gcp.N2,
            gcp.BID,
            gcp.UNKNOWN,
            _PAYLOAD,
            a_second,
            lease=_LEASE,
            short_lease=_SHORT_LEASE,
            slack=20 * SECOND,
            late=_LATE,
            patience_seconds=300.0,
        )


@contextmanager
def on_azure(host: Namespaces, agents: RemoteAgents) -> Iterator[Setting]:
    with closing(AzureServer(host)) as server:
        yield Setting(
            azure.provider_of(server, agents),
            azure.MARKET,
            azure.BID,
            azure.UNKNOWN,
            _PAYLOAD,
            a_second,
            lease=_LEASE,
            short_lease=_SHORT_LEASE,
            slack=30 * SECOND,
            late=_LATE,
            patience_seconds=300.0,
        )


@contextmanager
def on_vast(host: Namespaces, agents: RemoteAgents) -> Iterator[Setting]:
    containers = RunningContainers(host)
    with (
        TemporaryDirectory() as folder,
        vast.world(Path(folder), containers) as made,
        closing(made.provider(agents)) as here,
    ):
        yield Setting(
            here,
            vast.ONE,
            vast.BID,
            vast.UNKNOWN,
            _PAYLOAD,
            a_second,
            lease=_LEASE,
            short_lease=_SHORT_LEASE,
            slack=20 * SECOND,
            late=_LATE,
            patience_seconds=300.0,
        )


@contextmanager
def on_runpod(host: Namespaces, agents: RemoteAgents) -> Iterator[Setting]:
    pods = RunningPods(host)
    with (
        TemporaryDirectory() as folder,
        runpod.world(Path(folder), pods) as made,
        closing(made.provider(agents)) as here,
    ):
        yield Setting(
            here,
            runpod.ONE,
            runpod.BID,
            runpod.UNKNOWN,
            _PAYLOAD,
            a_second,
            lease=_LEASE,
            short_lease=_SHORT_LEASE,
            slack=20 * SECOND,
            late=_LATE,
            patience_seconds=300.0,
        )


CLOUDS = {
    "aws": on_aws,
    "gcp": on_gcp,
    "azure": on_azure,
    "vast": on_vast,
    "runpod": on_runpod,
}


@pytest.fixture(params=CLOUDS)
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    agents = RemoteAgents(tmp_path / "machines", WallClock())
    with namespaces() as host, CLOUDS[request.param](host, agents) as made, closing(agents):
        yield made


class TestLink(LinkContract):
    """One agent serves all clouds: a run that takes samples asks for each fact on one of them."""


class TestLeases:
    """Machines of each cloud delete themselves, which ends the bill."""

    test_a_machine_ends_with_its_lease = (
        ProviderContract.test_a_machine_ends_with_its_lease_without_any_launcher
    )


@pytest.mark.sampled(4)
class TestEnds:
    """Ends of machines, which recorded answers cannot show."""

    test_a_lease_that_has_ended = ProviderContract.test_a_lease_that_has_ended_at_the_request
    test_terminated_machines_are_paid_until_then = (
        ProviderContract.test_terminated_machines_are_paid_until_then
    )
    test_a_token_is_not_served_again = (
        ProviderContract.test_a_token_is_not_served_again_when_its_machines_are_gone
    )
