"""The contract of providers on simulated EC2: as far as it needs no process on a machine, and on machines that run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pricing_data.units import SECOND
from spotctl.clouds.remote.agents import RemoteAgents
from spotctl.home.wall_clock import WallClock
from tests.cloud.namespaces import Namespaces, namespaces
from tests.spotctl.clouds.aws.ec2 import Ec2, running_ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, UNKNOWN, provider
from tests.spotctl.clouds.contract import LinkContract, ProviderContract, Setting
from tests.spotctl.clouds.markets import python

_LEASE_TESTS = ("test_a_machine_ends_with_its_lease_without_any_launcher", "test_a_lease_that_has_ended_at_the_request")
_PAYLOAD = python("raise SystemExit(3)")


def a_second(_: float) -> None:
    """EC2 dates by the second."""
    time.sleep(1.0)


class TestRequests(ProviderContract):
    @pytest.fixture
    def setting(self, ec2: Ec2, request: pytest.FixtureRequest) -> Iterator[Setting]:
        if request.function.__name__ in _LEASE_TESTS:
            pytest.skip("only a machine that runs ends with its lease")
        assert not ec2.machines()
        here = provider()
        yield Setting(here, MARKET, BID, UNKNOWN, _PAYLOAD, a_second, slack=SECOND)
        here.close()


@pytest.fixture(scope="module")
def host() -> Iterator[Namespaces]:
    with namespaces() as machines:
        yield machines


@pytest.mark.cloud
@pytest.mark.slow
class TestMachines(LinkContract):
    """Machines that really boot, are reached over ssh and end. Clocks are real, so leases are as short as can be."""

    @pytest.fixture
    def setting(self, host: Namespaces, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Setting]:
        agents = RemoteAgents(tmp_path / "agents", WallClock())
        with running_ec2(monkeypatch, Ec2, host):
            here = provider(agents=agents)
            yield Setting(
                here,
                MARKET,
                BID,
                UNKNOWN,
                _PAYLOAD,
                a_second,
                lease=12 * SECOND,
                short_lease=5 * SECOND,
                slack=20 * SECOND,
                late=120 * SECOND,
                patience_seconds=300.0,
            )
            agents.close()
            here.close()

    test_a_machine_ends_with_its_lease = ProviderContract.test_a_machine_ends_with_its_lease_without_any_launcher
    test_a_lease_that_has_ended = ProviderContract.test_a_lease_that_has_ended_at_the_request
    test_terminated_machines_are_paid_until_then = ProviderContract.test_terminated_machines_are_paid_until_then
