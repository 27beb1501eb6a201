"""`plan --check` and launches ask a simulated cloud whether the first orders would succeed, and
change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from moto.ec2.models import ec2_backends

from spotctl.cli.boundary import CREDENTIALS, FAILED
from spotctl.files.job.reader import load
from spotctl.home import config
from spotctl.run.start.admission import checked as orders_of
from spotctl.run.start.launch_plans import plans_to_launch
from tests.cloud.aws import AwsServer
from tests.cloud.azure import AzureServer
from tests.cloud.clouds import SimulatedCloud, recorded, sampled
from tests.cloud.gcp import GcpServer
from tests.cloud.laptop import Laptop
from tests.cloud.test_bad_input import JOB
from tests.spotctl.command_line import spotctl


@pytest.fixture(params=sampled("aws"))
def cloud(request: pytest.FixtureRequest) -> Iterator[SimulatedCloud]:
    with recorded(request.param) as found:
        yield found


@pytest.fixture
def job(cloud: SimulatedCloud, tmp_path: Path) -> Path:
    market = ("--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type)
    assert spotctl("prices", "fetch", *market, **cloud.environment).code == 0
    path = tmp_path / "job.yaml"
    text = JOB.format(
        cloud=cloud.name, identity=cloud.identity, image="", region=cloud.region, type=cloud.type
    )
    path.write_text(f"{text}hours: 1h\n")
    return path


def asked(cloud: SimulatedCloud) -> int:
    if isinstance(cloud.server, GcpServer):
        return len(cloud.server.http.requests)
    assert isinstance(cloud.server, AwsServer | AzureServer)
    return len(cloud.server.server.requests)


def test_a_plan_asks_a_cloud_only_with_check(cloud: SimulatedCloud, job: Path) -> None:
    before = asked(cloud)
    plain = spotctl("plan", job, "--json", **cloud.environment)
    assert asked(cloud) == before
    checked = spotctl("plan", job, "--check", "--json", **cloud.environment)
    assert asked(cloud) > before
    assert (plain.code, checked.code) == (0, 0), checked
    checks = checked.json["checks"]
    assert {one["level"] for one in checks} <= {"good", "note"}
    assert checked.json.keys() - plain.json.keys() == {"checks"}
    assert cloud.server.machines() == ()
    assert cloud.server.resources() == ()


def _without_way_in(_: SimulatedCloud) -> dict[str, str]:
    return {"SPOTCTL_AWS": "regions = []"}


def _without_order(cloud: SimulatedCloud) -> dict[str, str]:
    assert isinstance(cloud.server, AwsServer)
    cloud.server.denied.add("RunInstances")
    return {}


def test_a_zone_without_a_subnet_is_no_reason_against_the_others(
    cloud: SimulatedCloud, job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not isinstance(cloud.server, AwsServer):
        pytest.skip("only AWS has a subnet in each zone")
    backend = ec2_backends[cloud.server.account][cloud.region]
    for name, value in cloud.environment.items():
        monkeypatch.setenv(name, value)
    settings = config.load(os.environ)
    (plan,) = plans_to_launch([load(job)], settings, None).plans
    zone = plan.decision.rents[0].offer.market.zone
    (subnet,) = backend.describe_subnets(filters={"availabilityZone": zone})
    backend.delete_subnet(subnet.id)
    checked = spotctl("plan", job, "--check", **cloud.environment)
    assert (checked.code, "create-default-subnet" in checked.out) == (1, True)
    assert orders_of(plan, settings)[1] == ()
    for subnet in backend.describe_subnets():
        backend.delete_subnet(subnet.id)
    refused = spotctl("launch", job, "--attached", "--yes", **cloud.environment)
    assert (refused.code, "create-default-subnet" in refused.error) == (FAILED, True)


@pytest.mark.parametrize(
    ("change", "code", "cure"),
    [
        (_without_way_in, FAILED, "set ssh_from in [aws] of config.toml"),
        (_without_order, CREDENTIALS, "spotctl doctor --policy aws prints what is needed"),
    ],
)
def test_a_launch_is_refused_before_anything_is_sent(
    cloud: SimulatedCloud,
    job: Path,
    change: Callable[[SimulatedCloud], dict[str, str]],
    code: int,
    cure: str,
) -> None:
    if not isinstance(cloud.server, AwsServer):
        pytest.skip("the changes are those of AWS")
    environment = {**cloud.environment, **change(cloud)}
    planned = spotctl("plan", job, "--check", **environment)
    launched = spotctl("launch", job, "--attached", "--yes", **environment)
    assert (planned.code, launched.code) == (CREDENTIALS if code == CREDENTIALS else 1, code)
    assert cure in " ".join(planned.out.split())
    assert cure in launched.error
    assert b"Action=CreateSecurityGroup" not in b"".join(
        one.body for one in cloud.server.server.requests
    )
    assert cloud.server.resources() == ()


def test_a_subscription_without_spot_says_so_and_rents_on_demand_within_the_budget(
    tmp_path: Path,
) -> None:
    """Free and student subscriptions of Azure rent machines on demand, and the plan has said what
    these cost.
    """
    with recorded("azure") as cloud:
        assert isinstance(cloud.server, AzureServer)
        cloud.server.fleet.sells_spot = False
        laptop = Laptop(tmp_path, cloud.environment)
        market = ("--cloud", "azure", "--region", cloud.region, "--type", cloud.type)
        assert laptop.run("prices", "fetch", *market).returncode == 0
        text = JOB.format(
            cloud="azure", identity=cloud.identity, image="", region=cloud.region, type=cloud.type
        )
        job = laptop.job(f"{text}hours: 1h\nbudget: 5 USD\n")
        with laptop.launched("launch", job, "--attached", "--yes") as launched:
            launched.wait_for(lambda: cloud.server.machines() != ())
            assert laptop.run("stop", "refused").returncode == 0
            _, planned, said = launched.ended()
        assert [machine.spot for machine in cloud.server.machines()] == [False]
    assert "on demand  $" in planned
    reason, left, rented = (
        said.index(words) for words in ("rent no Spot machines", "left the plan", "rented 1 x")
    )
    assert reason < left < rented
