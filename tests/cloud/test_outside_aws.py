"""A first hour on AWS of another author: moto checks who asks and what for, and botocore's models
each request.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spotctl.clouds.aws.permissions import policy
from spotctl.home.installation import INSTALLATION_TAG, installation_id
from tests.cloud.laptop import Laptop
from tests.cloud.outside_aws import OURS, REGION, OutsideAws, named, outside_aws
from tests.servers.aws import AwsFault, arguments_of, ec2_error
from tests.servers.aws_models import misfits

JOB = """\
name: hello
kind: command
run: echo hello
workdir: work
hours: 1h
identity: {aws: spotctl}
resources: {clouds: [aws], regions: [us-east-1], types: [c6i.large]}
"""
MANAGED, INLINE = 6144, 2048
"""The most characters of a policy, as AWS counts them: a managed one, and all inline ones of a
user."""

_DOCS = Path(__file__).parents[2] / "docs"

pytestmark = pytest.mark.timeout(600)


class Hour(NamedTuple):
    """An account in which nothing runs, and a laptop that knows its prices."""

    aws: OutsideAws
    laptop: Laptop
    job: Path

    def orders(self) -> Counter[bool]:
        """The orders sent, by whether they were dry runs."""
        asked = (
            arguments_of(one) for one in self.aws.proxy.requests if named(one) == "RunInstances"
        )
        return Counter(arguments.get("DryRun") == "true" for arguments in asked)

    def running(self) -> list[str]:
        return [
            one["InstanceId"]
            for reservation in self.aws.ec2().describe_instances()["Reservations"]
            for one in reservation["Instances"]
            if one["State"]["Name"] not in ("terminated", "shutting-down")
        ]


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OutsideAws]:
    with outside_aws(tmp_path_factory.mktemp("moto")) as found:
        yield found


@pytest.fixture(scope="module")
def home(aws: OutsideAws, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    """A laptop that has fetched prices from the account."""
    laptop = Laptop(tmp_path_factory.mktemp("laptop"), aws.environment)
    fetched = laptop.run(
        "prices", "fetch", "--cloud", "aws", "--region", REGION, "--type", "c6i.large"
    )
    assert fetched.returncode == 0, fetched.stderr
    fits(aws)
    return laptop


def fits(aws: OutsideAws) -> None:
    """Compares the requests so far with botocore's models, and forgets them."""
    calls = [request for request in aws.proxy.requests if not named(request).startswith("/")]
    assert [problem for request in calls for problem in misfits(request)] == []
    assert calls
    aws.proxy.requests.clear()


@pytest.fixture
def hour(aws: OutsideAws, home: Laptop) -> Iterator[Hour]:
    yield Hour(aws, home, home.job(JOB))
    fits(aws)
    aws.proxy.faults.clear()


def test_the_printed_policy_is_enough_for_all_that_a_first_hour_asks(hour: Hour) -> None:
    """The dry runs of `doctor` need each permission that orders need."""
    words = json.dumps(policy(), separators=(",", ":"))
    assert INLINE < len(words) <= MANAGED
    checked = hour.laptop.answer("doctor", "aws")
    assert {one["level"] for one in checked["findings"]} == {"good", "note"}
    planned = hour.laptop.answer("plan", hour.job, "--check")
    assert {one["level"] for one in planned["checks"]} == {"good"}
    assert hour.orders().keys() == {True}
    assert hour.running() == []


def test_a_launch_until_its_machine_boots_then_stop_and_gc(hour: Hour) -> None:
    def machines() -> list[str]:
        (status,) = hour.laptop.answer("status", "hello")["jobs"]
        return [one["id"].rpartition(":")[2] for one in status["machines"]]

    with hour.laptop.launched("launch", hour.job, "--attached", "--yes", "--json") as launched:
        launched.wait_for(
            lambda: "running" in hour.laptop.run("status", "hello").stdout and machines() != []
        )
        assert machines() == hour.running()
        assert hour.laptop.answer("stop", "hello")["outcome"] == "stopped"
        launched.ended()
    assert hour.orders()[False] == 1
    assert hour.running() == []

    tags = [{"Key": INSTALLATION_TAG, "Value": installation_id(hour.laptop.home)}]
    left = [{"ResourceType": "volume", "Tags": tags}]
    hour.aws.ec2().create_volume(AvailabilityZone=f"{REGION}a", Size=1, TagSpecifications=left)
    collected = hour.laptop.run("gc", "--yes", "--cloud", "aws")
    assert collected.returncode == 0, collected.stderr
    found = hour.aws.ec2().describe_volumes(
        Filters=[{"Name": "tag-key", "Values": [INSTALLATION_TAG]}]
    )
    assert [one for one in found["Volumes"] if one["State"] == "available"] == []


@pytest.mark.parametrize(
    "action", ["ec2:RunInstances", "ec2:CreateSecurityGroup", "ec2:DescribeSubnets"]
)
def test_a_missing_permission_is_named(hour: Hour, action: str) -> None:
    with hour.aws.without(action):
        checked = hour.laptop.run("doctor", "aws")
        launched = hour.laptop.run("launch", hour.job, "--attached", "--yes")
    assert checked.returncode == 5
    assert action in re.sub(r"\s+", " ", checked.stdout)
    assert (launched.returncode, action in launched.stderr) == (5, True), launched.stderr
    assert (hour.orders()[False], hour.running()) == (0, [])


def test_a_wrong_secret_is_refused_by_moto(hour: Hour, tmp_path: Path) -> None:
    """Its signatures are compared with those that botocore computes."""
    stranger = Laptop(tmp_path, {**hour.aws.environment, "AWS_SECRET_ACCESS_KEY": "wrong"})
    checked = stranger.run("doctor", "aws")
    assert checked.returncode == 5
    assert "SignatureDoesNotMatch" in checked.stdout
    assert "AWS_SECRET_ACCESS_KEY" in checked.stdout


class Refused(NamedTuple):
    """EC2's answer to an order; the exit code, what the user reads, and how many orders were sent
    at most.
    """

    code: str
    message: str
    status: int
    exit: int
    reads: str
    orders: int = 0


REFUSED = {
    "free plan": Refused(
        "InvalidParameterCombination",
        "The specified instance type is not eligible for Free Tier.",
        400,
        5,
        "upgrade the plan",
    ),
    "role for spot": Refused(
        "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
        "The provided credentials do not have permission to create the service-linked role for EC2 "
        "Spot Instances.",
        403,
        5,
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    "verification": Refused(
        "PendingVerification", "Your request is being validated.", 400, 5, "wait for its e-mail"
    ),
    "organisation": Refused(
        "UnauthorizedOperation",
        "You are not authorized to perform this operation. User: u is not authorized to perform: "
        "ec2:RunInstances with an explicit deny in a service control policy.",
        403,
        5,
        "administers the AWS organisation",
    ),
    "quota": Refused(
        "VcpuLimitExceeded",
        "You have requested more vCPU capacity than your current vCPU limit of 0 allows.",
        400,
        1,
        "request-service-quota-increase --region us-east-1 --service-code ec2 --quota-code "
        "L-34B43A08",
    ),
    "new": Refused("SomethingNew", "A new kind of refusal.", 400, 1, "A new kind of refusal"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_of_the_account_is_read_before_anything_is_ordered(hour: Hour, case: str) -> None:
    refused = REFUSED[case]
    reply = ec2_error(refused.code, refused.message, refused.status)
    hour.aws.proxy.faults.append(AwsFault("", reply, action="RunInstances", times=-1))
    launched = hour.laptop.run("launch", hour.job, "--attached", "--yes")
    assert (launched.returncode, refused.reads in launched.stderr) == (refused.exit, True), (
        launched.stderr
    )
    assert (hour.orders()[False], hour.running()) == (refused.orders, [])


def test_the_page_lists_what_moto_does_not_answer() -> None:
    page = (_DOCS / "proof.md").read_text(encoding="utf-8")
    rows: dict[str, Any] = dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", page, re.MULTILINE))
    assert {name: rows.get(name) for name in OURS} == dict(OURS)
