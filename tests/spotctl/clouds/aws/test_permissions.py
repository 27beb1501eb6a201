"""The policy that `spotctl doctor --policy aws` prints allows what the provider calls, and nothing
that it does not.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from moto.iam.models import iam_backends

from spotctl.clouds.aws import doctor
from spotctl.clouds.aws.orders import machine_id
from spotctl.clouds.aws.permissions import (
    BUY,
    GROUP,
    IMAGE,
    LOOK,
    OWN,
    PLACEMENT,
    policy,
)
from spotctl.clouds.doctor import Finding
from spotctl.clouds.errors import Answers, NotPermitted
from spotctl.clouds.provider import MachineRequest
from spotctl.home import config
from spotctl.home.installation import INSTALLATION_TAG
from tests.servers.aws import AwsFault, action_of, ec2_error
from tests.spotctl.clouds.aws.ec2 import Ec2
from tests.spotctl.clouds.aws.standins import BID, MARKET, SETTINGS, provider
from tests.spotctl.clouds.aws.test_provider_leftovers import scatter
from tests.spotctl.command_line import spotctl

CALLS = LOOK | OWN | {IMAGE, BUY, GROUP, PLACEMENT}
OURS = {INSTALLATION_TAG: "i1"}
ORDER = MachineRequest("t1", MARKET, 2, BID, 4_000_000_000 * 1_000_000, OURS, identity="spotctl")


def called(ec2: Ec2) -> set[str]:
    """The IAM actions of all requests that a server received."""
    actions = {
        f"ec2:{action_of(request)}"
        for request in ec2.server.requests
        if request.body.startswith(b"Action=")
    }
    targets = {request.headers.get("x-amz-target", "") for request in ec2.server.requests}
    return actions | {
        f"ssm:{target.partition('.')[2]}" for target in targets if target.startswith("AmazonSSM.")
    }


def test_the_policy_is_what_the_provider_calls(ec2: Ec2) -> None:
    ec2.policy = policy()
    provider(replace(SETTINGS, ssh_from=("198.51.100.9/32",))).create(ORDER)
    here = provider(replace(SETTINGS, regions=()))
    on_demand = here.create(replace(ORDER, token="t2", bid=None, close=True))
    here.link(on_demand[0].id)
    here.console(on_demand[0].id)
    here.boot_sign(on_demand[0].id)
    scatter(OURS)
    lease = ec2.lease(ec2.machines()[0].id)
    assert lease.request is not None
    lease.request.state = "open"
    here.remove(here.resources(OURS))
    ec2.wait()
    assert here.list(OURS)
    next(check for check in here.checks(ORDER) if check.title == "route").call()
    made_by_the_test = {"ec2:CreateVolume", "ec2:CreateNetworkInterface", "ec2:AllocateAddress"}
    made_by_the_test |= {"ec2:CreateKeyPair", "ec2:CreateLaunchTemplate"}
    assert called(ec2) - made_by_the_test == CALLS


def test_a_permission_that_is_missing_is_named(ec2: Ec2) -> None:
    ec2.server.faults.append(
        AwsFault("/", ec2_error("UnauthorizedOperation", status=403), action="RunInstances")
    )
    with pytest.raises(
        Exception,
        match=r"ec2:RunInstances: denied \(UnauthorizedOperation\): no; spotctl doctor --policy",
    ):
        provider().create(replace(ORDER, identity=None))


def check() -> list[Finding]:
    return [
        finding
        for finding in doctor.findings(config.load(os.environ), Answers())
        if finding.what.startswith("permissions")
    ]


def test_a_role_that_is_not_named_is_given_to_no_machine(ec2: Ec2) -> None:
    ec2.policy = policy()
    iam_backends[ec2.account]["aws"].create_instance_profile("admin", "/", [])
    with pytest.raises(NotPermitted, match="ec2:RunInstances: denied"):
        provider().create(replace(ORDER, identity="admin"))
    assert [access.action for access in ec2.refused] == ["iam:PassRole"]
    ec2.policy = policy(roles=("spotctl", "admin"))
    provider().create(replace(ORDER, identity="admin"))


def test_what_others_own_can_be_neither_ended_nor_changed(ec2: Ec2) -> None:
    ec2.policy = policy()
    backend = ec2.backend("us-east-1")
    theirs = backend.run_instances(
        "ami-12345678", 1, "", [], instance_type="t3.micro", is_instance_type_default=False
    )
    with pytest.raises(NotPermitted, match="ec2:TerminateInstances: denied"):
        provider().terminate((machine_id("us-east-1", theirs.instances[0].id),))


def statements(kms_key: str | None = None) -> dict[str, dict[str, Any]]:
    return {one["Sid"]: one for one in policy(kms_key)["Statement"]}


def test_only_what_carries_the_tag_of_an_installation_may_be_changed() -> None:
    by_name = statements()
    own = {"Null": {f"aws:ResourceTag/{INSTALLATION_TAG}": "false"}}
    for statement in by_name.values():
        destroys = [
            a
            for a in statement["Action"]
            if any(word in a for word in ("Terminate", "Delete", "Revoke", "Cancel"))
        ]
        assert not destroys or statement["Condition"] == own
    tagged = {"Null": {f"aws:RequestTag/{INSTALLATION_TAG}": "false"}}
    assert by_name["BuyTagged"]["Condition"] == by_name["GroupTagged"]["Condition"] == tagged
    assert by_name["PlaceTagged"]["Condition"] == tagged
    assert not any("instance/" in one for one in by_name["BuyWith"]["Resource"])


def test_actions_that_no_call_names_are_there_for_those_that_need_them() -> None:
    by_name = statements()
    assert by_name["Identity"]["Action"] == ["iam:PassRole"]
    assert by_name["Identity"]["Condition"] == {
        "StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}
    }
    assert by_name["FirstSpot"]["Action"] == ["iam:CreateServiceLinkedRole"]
    assert by_name["Tag"]["Condition"]["StringEquals"]["ec2:CreateAction"] == [
        "RunInstances",
        "CreateSecurityGroup",
        "CreatePlacementGroup",
    ]
    assert "DiskKey" not in by_name
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    assert statements(key)["DiskKey"]["Resource"] == key


def test_a_policy_is_printed_without_the_sdk() -> None:
    code = (
        "import spotctl.clouds.aws.permissions, sys; sys.exit('boto3' in sys.modules or 'botocore' "
        "in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["aws", "aws-try", "aws-try-role"])
@pytest.mark.parametrize(
    ("region", "partition"),
    [("us-east-1", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")],
)
def test_a_printed_policy_fits_a_managed_one_and_names_its_partition(
    monkeypatch: pytest.MonkeyPatch, name: str, region: str, partition: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    monkeypatch.delenv("AWS_REGION", raising=False)
    roles, key = (
        [f"role-{number}" for number in range(20)],
        f"arn:{partition}:kms:{region}:1:key/{'a' * 36}",
    )
    keys = f'kms_key = "{key}"\nroles = {roles}'
    monkeypatch.setenv("SPOTCTL_AWS", keys)
    printed = spotctl("doctor", "--policy", name).out
    names = re.findall(r'"arn:([^:]+):', printed)
    assert set(names) == {partition}
    # IAM counts no white space:
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
    assert len("".join(printed.split())) <= 6144
    assert ("ec2.amazonaws.com.cn" in printed) is (partition == "aws-cn" and name == "aws")
