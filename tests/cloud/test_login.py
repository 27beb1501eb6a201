"""A login that expires in the middle of a run, and is renewed while machines hold their leases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spotctl.home.paths import Paths
from spotctl.log.state import RunState
from spotctl.log.statuses import latest_run
from spotctl.log.store import EventLog
from tests.cloud.aws import AwsServer
from tests.cloud.clouds import WHOLE_RUN, SimulatedCloud, simulated
from tests.cloud.laptop import Laptop

JOB = """\
name: sums
kind: command
workdir: work
run: while [ ! -e /tmp/enough ]; do sleep 0.2; done
hours: 10m
resources: {{clouds: [aws], regions: [{region}], types: [{type}]}}
"""

pytestmark = [WHOLE_RUN, pytest.mark.cloud, pytest.mark.slow]


@pytest.fixture
def cloud() -> Iterator[SimulatedCloud]:
    with simulated("aws") as running:
        yield running


def test_a_run_waits_for_a_login(cloud: SimulatedCloud, tmp_path: Path) -> None:
    laptop, server = Laptop(tmp_path, cloud.environment), cloud.server
    assert isinstance(server, AwsServer)
    laptop.run(
        "prices", "fetch", "--cloud", "aws", "--region", cloud.region, "--type", f"{cloud.type}*"
    )

    def state() -> RunState:
        with EventLog(Paths(laptop.home).log) as log:
            return latest_run(log, "sums") or RunState()

    job = laptop.job(JOB.format(region=cloud.region, type=cloud.type))
    with laptop.launched("launch", job, "--attached", "--yes") as launched:
        launched.wait_for(lambda: any(held.ran is not None for held in state().alive))
        server.expired = True
        launched.wait_for(lambda: state().login is not None)
        machines = [held.id for held in state().alive]
        assert laptop.run("exec", "sums", "--", "touch", "/tmp/enough").returncode
        server.expired = False
        launched.wait_for(lambda: state().login is None)
        assert [held.id for held in state().alive] == machines
        assert laptop.run("exec", "sums", "--", "touch", "/tmp/enough").returncode == 0
        code, _, err = launched.ended()
    assert code == 0, err
    assert "renew" in err
    assert "the login works again" in err
    assert [machine for machine in server.machines() if machine.ended is None] == []
    assert server.resources() == ()
