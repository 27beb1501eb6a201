"""The kinds of resources that spotctl makes, or could have made, and the IAM permissions that it
needs on AWS. Pure.

A kind says how EC2 lists it and what removes it. Permissions are derived from the calls that
spotctl makes. The policy allows changing and ending only resources with a tag of the installation,
and buying only with such a tag.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from spotctl.home.installation import INSTALLATION_TAG


class ResourceKind(NamedTuple):
    """A kind of resource: how EC2 lists it and what removes it. `state` lists the states in which
    it exists.
    """

    name: str
    describe: str
    holding: str
    id: str
    remove: str
    argument: str
    state: tuple[str, tuple[str, ...]] | None = None


MACHINES = ResourceKind(
    "machine",
    "DescribeInstances",
    "Reservations",
    "InstanceId",
    "TerminateInstances",
    "InstanceIds",
    ("instance-state-name", ("pending", "running", "shutting-down", "stopping", "stopped")),
)
OTHERS = (
    ResourceKind(
        "spot request",
        "DescribeSpotInstanceRequests",
        "SpotInstanceRequests",
        "SpotInstanceRequestId",
        "CancelSpotInstanceRequests",
        "SpotInstanceRequestIds",
        ("state", ("open",)),
    ),
    ResourceKind(
        "disk",
        "DescribeVolumes",
        "Volumes",
        "VolumeId",
        "DeleteVolume",
        "VolumeId",
        ("status", ("creating", "available", "in-use", "error")),
    ),
    ResourceKind(
        "address",
        "DescribeAddresses",
        "Addresses",
        "AllocationId",
        "ReleaseAddress",
        "AllocationId",
    ),
    ResourceKind(
        "network interface",
        "DescribeNetworkInterfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        "DeleteNetworkInterface",
        "NetworkInterfaceId",
    ),
    ResourceKind("key pair", "DescribeKeyPairs", "KeyPairs", "KeyName", "DeleteKeyPair", "KeyName"),
    ResourceKind(
        "launch template",
        "DescribeLaunchTemplates",
        "LaunchTemplates",
        "LaunchTemplateId",
        "DeleteLaunchTemplate",
        "LaunchTemplateId",
    ),
    ResourceKind(
        "placement group",
        "DescribePlacementGroups",
        "PlacementGroups",
        "GroupName",
        "DeletePlacementGroup",
        "GroupName",
        ("state", ("pending", "available")),
    ),
    ResourceKind(
        "security group",
        "DescribeSecurityGroups",
        "SecurityGroups",
        "GroupId",
        "DeleteSecurityGroup",
        "GroupId",
    ),
)
"""In the order in which they can be removed: groups last, because machines and interfaces use
them."""
KINDS = (MACHINES, *OTHERS)

PRICES = frozenset(
    """
    ec2:DescribeAvailabilityZones ec2:DescribeInstanceTypes ec2:DescribeRegions ec2:DescribeSpotPriceHistory
    ec2:GetSpotPlacementScores pricing:GetProducts servicequotas:GetServiceQuota
    """.split()
)
"""Needed by `spotctl prices fetch` and `spotctl doctor`."""

LOOK = frozenset(
    """
    ec2:DescribeImages ec2:DescribeInstanceStatus ec2:DescribeInstanceTypeOfferings ec2:DescribeInstanceTypes
    ec2:DescribeRegions ec2:DescribeRouteTables ec2:DescribeSecurityGroups ec2:DescribeSubnets
    """.split()
) | {f"ec2:{kind.describe}" for kind in KINDS}
"""Permissions that EC2 cannot limit to tagged resources."""

IMAGE = "ssm:GetParameter"
BUY = "ec2:RunInstances"
GROUP = "ec2:CreateSecurityGroup"
PLACEMENT = "ec2:CreatePlacementGroup"
TAG = "ec2:CreateTags"
ROLE = "iam:PassRole"
OWN = frozenset(
    "ec2:AuthorizeSecurityGroupIngress ec2:GetConsoleOutput ec2:RevokeSecurityGroupIngress".split()
) | {f"ec2:{kind.remove}" for kind in KINDS}

FIS = "fis.amazonaws.com"
INTERRUPTION = "aws:ec2:send-spot-instance-interruptions"
"""The action of Fault Injection Service that `spotctl try --full` uses."""
TRIAL_ROLE = "spotctl-try"
"""The IAM role with which experiments act."""

TAGGED_AT_PURCHASE = ("instance", "volume", "network-interface", "spot-instances-request")
_USED_AT_PURCHASE = ("subnet", "security-group", "placement-group", "capacity-reservation")
_KMS = (
    "kms:CreateGrant kms:Decrypt kms:DescribeKey kms:GenerateDataKeyWithoutPlaintext "
    "kms:ReEncryptFrom kms:ReEncryptTo"
).split()

_VERSION = "2012-10-17"
_TAGGED = {"Null": {f"aws:RequestTag/{INSTALLATION_TAG}": "false"}}
"""The condition of what is made: it has a tag of the installation."""
_OWN = {"Null": {f"aws:ResourceTag/{INSTALLATION_TAG}": "false"}}
"""The condition of what is changed or ended: it has such a tag."""


def policy(kms_key: str | None = None, roles: Iterable[str] = ("spotctl",)) -> dict[str, Any]:
    """An IAM policy. Only these `roles` may be given to machines. If the company's own key encrypts
    disks, EC2 may use that key on the user's behalf."""
    creations = [action.partition(":")[2] for action in (BUY, GROUP, PLACEMENT)]
    creating = {"StringEquals": {"ec2:CreateAction": creations}}
    spot = {"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}}
    passed = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
    of_spot = "arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/*"
    bought_with = [*_ec2(_USED_AT_PURCHASE), "arn:aws:ec2:*::image/*"]
    own_roles = [f"arn:aws:iam::*:role/{role}" for role in roles]

    look = _allow("Look", sorted(LOOK | PRICES), "*")
    image = _allow("Image", [IMAGE], "arn:aws:ssm:*:*:parameter/aws/service/*")
    buy_tagged = _allow("BuyTagged", [BUY], _ec2(TAGGED_AT_PURCHASE), _TAGGED)
    buy_with = _allow("BuyWith", [BUY], bought_with)
    group_tagged = _allow("GroupTagged", [GROUP], _ec2(["security-group"]), _TAGGED)
    place_tagged = _allow("PlaceTagged", [PLACEMENT], _ec2(["placement-group"]), _TAGGED)
    group_in = _allow("GroupIn", [GROUP], _ec2(["vpc"]))
    tag = _allow("Tag", [TAG], "*", creating)
    own_only = _allow("OwnOnly", sorted(OWN), "*", _OWN)
    first_spot = _allow("FirstSpot", ["iam:CreateServiceLinkedRole"], of_spot, spot)
    identity = _allow("Identity", [ROLE], own_roles, passed)

    statements = [look, image, buy_tagged, buy_with, group_tagged, place_tagged, group_in]
    statements += [tag, own_only, first_spot, identity]
    if kms_key is not None:
        keys = kms_key if kms_key.startswith("arn:") else "*"
        statements.append(_allow("DiskKey", _KMS, keys))
    return {"Version": _VERSION, "Statement": statements}


def _allow(
    sid: str,
    actions: list[str],
    resources: str | list[str],
    condition: dict[str, Any] | None = None,
) -> dict[str, Any]:
    statement = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
    return statement if condition is None else {**statement, "Condition": condition}


def _ec2(kinds: Iterable[str]) -> list[str]:
    return [f"arn:aws:ec2:*:*:{kind}/*" for kind in kinds]


_TEMPLATES, _EXPERIMENTS = "arn:aws:fis:*:*:experiment-template/*", "arn:aws:fis:*:*:experiment/*"
TRIAL_POLICY = {
    "Version": _VERSION,
    "Statement": [
        _allow(
            "MakeExperiment",
            ["fis:CreateExperimentTemplate", "fis:TagResource"],
            [_TEMPLATES, f"arn:aws:fis:*:*:action/{INTERRUPTION}"],
            _TAGGED,
        ),
        _allow(
            "BeginExperiment", ["fis:StartExperiment", "fis:TagResource"], _EXPERIMENTS, _TAGGED
        ),
        _allow(
            "OwnTemplate", ["fis:StartExperiment", "fis:DeleteExperimentTemplate"], _TEMPLATES, _OWN
        ),
        _allow("OwnExperiment", ["fis:GetExperiment"], _EXPERIMENTS, _OWN),
        _allow(
            "ExperimentRole",
            [ROLE],
            f"arn:aws:iam::*:role/{TRIAL_ROLE}",
            {"StringEquals": {"iam:PassedToService": FIS}},
        ),
        _allow(
            "FirstExperiment",
            ["iam:CreateServiceLinkedRole"],
            f"arn:aws:iam::*:role/aws-service-role/{FIS}/*",
            {"StringEquals": {"iam:AWSServiceName": FIS}},
        ),
    ],
}
"""The IAM policy that `spotctl try --full` needs besides `policy`: interruptions by Fault Injection
Service."""

TRIAL_ROLE_POLICY = {
    "Version": _VERSION,
    "Statement": [
        _allow("InterruptOwn", ["ec2:SendSpotInstanceInterruptions"], _ec2(["instance"]), _OWN)
    ],
}
"""The IAM policy of the role with which the experiments act: they interrupt spotctl's machines
only."""
