"""Launches that a cloud refuses: one reason, an exit code of the table, and nothing left in the
cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from spotctl.cli.boundary import CREDENTIALS, FAILED, NOT_IN_TIME
from tests.cloud.aws import AwsServer
from tests.cloud.aws_market import SPOT_QUOTA
from tests.cloud.azure import AzureServer
from tests.cloud.azure_fleet import IDENTITY
from tests.cloud.clouds import EVERYTHING, SimulatedCloud, recorded
from tests.cloud.gcp import GcpServer
from tests.servers.aws import AwsFault, ec2_error
from tests.servers.loopback import Fault, Reply
from tests.spotctl.command_line import spotctl

JOB = """\
name: refused
kind: command
run: "true"
workdir: .
identity: {{{cloud}: {identity}}}
{image}
resources: {{clouds: [{cloud}], regions: [{region}], types: [{type}]}}
"""
NO_IDENTITY = f"{IDENTITY}-none"
AZURE_EXPIRED = {
    "error": {"code": "ExpiredAuthenticationToken", "message": "The access token expiry is past."}
}


@dataclass(frozen=True)
class Case:
    """What is wrong, by a change of the cloud or in the job; the exit code, and what the reason
    contains.
    """

    cloud: str
    code: int
    reason: str
    change: Callable[[SimulatedCloud], None] = lambda _: None
    identity: str = ""
    image: str = ""


def _expire_aws(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, AwsServer)
    cloud.server.expired = True


def _disable_region(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, AwsServer)
    cloud.server.breaks(AwsFault("", reply=ec2_error("AuthFailure"), times=-1))


def _expire_azure(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, AzureServer)
    refusal = Reply.of_json(AZURE_EXPIRED, 401)
    cloud.server.server.faults.append(Fault("/subscriptions", refusal, times=-1))


def _no_network(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, GcpServer)
    cloud.server.networks.clear()


def _no_spot_quota_aws(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, AwsServer)
    cloud.server.market.quotas[SPOT_QUOTA] = 0.0


def _no_spot_quota_gcp(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, GcpServer)
    cloud.server.quotas = dict.fromkeys(cloud.server.quotas, 0.0)


def _no_spot_quota_azure(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, AzureServer)
    cloud.server.fleet.quota = 0


def _no_quota_gcp(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, GcpServer)
    cloud.server.networks["research"] = "global/networks/research"
    for zone in "abcf":
        cloud.server.project.refuse(f"{cloud.region}-{zone}", "QUOTA_EXCEEDED", times=50)


def _no_quota_azure(cloud: SimulatedCloud) -> None:
    assert isinstance(cloud.server, AzureServer)
    refusal = Reply.of_json(
        {"error": {"code": "QuotaExceeded", "message": "Current Limit: 0."}}, 409
    )
    cloud.server.server.faults.append(Fault("/deployments/", refusal, times=-1))


def _answers_orders(code: str, message: str, status: int = 400) -> Callable[[SimulatedCloud], None]:
    """A change after which EC2 refuses all orders."""

    def change(cloud: SimulatedCloud) -> None:
        assert isinstance(cloud.server, AwsServer)
        cloud.server.breaks(
            AwsFault("", reply=ec2_error(code, message, status), action="RunInstances", times=-1)
        )

    return change


FREE = (
    "The specified instance type is not eligible for Free Tier. For a list of Free Tier instance "
    "types, run it."
)
DENIED = (
    "User: u is not authorized to perform: ec2:RunInstances with an explicit deny in a service "
    "control policy"
)

CASES = {
    "account on the free plan": Case(
        "aws", CREDENTIALS, "upgrade the plan", _answers_orders("InvalidParameterCombination", FREE)
    ),
    "policy of the organisation": Case(
        "aws",
        CREDENTIALS,
        "service control policy; only who",
        _answers_orders("UnauthorizedOperation", DENIED, 403),
    ),
    "network that does not exist": Case(
        "gcp", FAILED, "the project has no network research; create it", _no_network
    ),
    "image that does not exist": Case(
        "azure",
        FAILED,
        "has no image Canonical:none:server:latest",
        image="image: {azure: 'Canonical:none:server:latest'}",
    ),
    "spot quota of 0 on Google Cloud": Case(
        "gcp", NOT_IN_TIME, "quotas allow at most 0 (gcp/us-central1=0 vCPUs)", _no_spot_quota_gcp
    ),
    "token that has expired": Case(
        "azure", CREDENTIALS, "the access token expiry is past", _expire_azure
    ),
}
MORE = {
    "profile that does not exist": Case(
        "aws", FAILED, "Invalid IAM Instance Profile name", identity="unknown"
    ),
    "keys that have expired": Case("aws", CREDENTIALS, "the credentials have expired", _expire_aws),
    "region that is not enabled": Case(
        "aws", CREDENTIALS, "enable the region for the account", _disable_region
    ),
    "quota of 0 on Google Cloud": Case("gcp", NOT_IN_TIME, "QUOTA_EXCEEDED", _no_quota_gcp),
    "quota of 0 on Azure": Case("azure", NOT_IN_TIME, "Current Limit: 0", _no_quota_azure),
    "spot quota of 0 on AWS": Case(
        "aws",
        NOT_IN_TIME,
        "quotas allow at most 0 (aws/us-east-1/a+c+d+h+i+im+is+m+r+t+z=0 vCPUs)",
        _no_spot_quota_aws,
    ),
    "spot quota of 0 on Azure": Case(
        "azure", NOT_IN_TIME, "quotas allow at most 0 (azure/eastus=0 vCPUs)", _no_spot_quota_azure
    ),
    "managed identity that does not exist": Case(
        "azure", FAILED, "spotctl setup azure", identity=NO_IDENTITY
    ),
}
CHOSEN = {**CASES, **(MORE if EVERYTHING else {})}


@pytest.fixture(params=CHOSEN.values(), ids=list(CHOSEN))
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def cloud(case: Case) -> Iterator[SimulatedCloud]:
    with recorded(case.cloud) as found:
        yield found


@pytest.mark.sampled(2)
def test_a_refused_launch_says_why_and_leaves_nothing(
    case: Case, cloud: SimulatedCloud, tmp_path: Path
) -> None:
    market = ("--cloud", cloud.name, "--region", cloud.region, "--type", cloud.type)
    assert spotctl("prices", "fetch", *market, **cloud.environment).code == 0
    case.change(cloud)
    job = tmp_path / "job.yaml"
    identity = case.identity or cloud.identity
    job.write_text(
        JOB.format(
            cloud=cloud.name,
            identity=identity,
            image=case.image,
            region=cloud.region,
            type=cloud.type,
        )
    )
    ended = spotctl("launch", job, "--attached", "--yes", "--json", **cloud.environment)
    # Before a run begins, a refusal is a line and no answer.
    said = ended.json["message"] if ended.out else ended.error
    assert (ended.code, case.reason.lower() in said.lower()) == (case.code, True), ended
    assert cloud.server.machines() == ()
    assert cloud.server.resources() == ()
