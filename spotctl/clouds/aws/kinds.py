"""The kinds of resources that spotctl makes, or could have made: how EC2 lists each and what removes it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from spotctl.clouds.aws.rows import Row


def _always(_: Row) -> bool:
    return True


def _outlives_machines(row: Row) -> bool:
    """Whether a disk or interface is unattached, or stays when its machine ends."""
    attached = row.get("Attachments") or ([row["Attachment"]] if row.get("Attachment") else [])
    return all(attachment.get("DeleteOnTermination") is False for attachment in attached)


class ResourceKind(NamedTuple):
    """A kind of resource: how EC2 lists it and what removes it. `state` lists the states in which it exists."""

    name: str
    describe: str
    holding: str
    id: str
    remove: str
    argument: str
    state: tuple[str, tuple[str, ...]] | None = None
    is_left: Callable[[Row], bool] = _always


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
        _outlives_machines,
    ),
    ResourceKind("address", "DescribeAddresses", "Addresses", "AllocationId", "ReleaseAddress", "AllocationId"),
    ResourceKind(
        "network interface",
        "DescribeNetworkInterfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        "DeleteNetworkInterface",
        "NetworkInterfaceId",
        None,
        _outlives_machines,
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
        "security group", "DescribeSecurityGroups", "SecurityGroups", "GroupId", "DeleteSecurityGroup", "GroupId"
    ),
)
"""In the order in which they can be removed: groups last, because machines and interfaces use them."""
KINDS = (MACHINES, *OTHERS)
