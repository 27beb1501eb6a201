"""The one call that buys the machines of a request: the arguments of RunInstances. Pure.

Why RunInstances and not a fleet: docs/decisions/0022-machines-on-aws.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.aws.images import MachineImage
from spotctl.clouds.aws.labels import client_token, tag_list, tags_of_order
from spotctl.clouds.provider import MachineRequest

DISK_TYPE = "gp3"
_METADATA_HOPS = 1
"""The metadata service answers only the machine itself, and no container or proxy on the machine."""


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """The subnet, security groups and image of a request's machines, found or made before the purchase, whether
    their type is burstable, and the group in which they are placed close together, if they are."""

    subnet: str
    groups: tuple[str, ...]
    image: MachineImage
    public_ip: bool
    kms_key: str | None = None
    is_burstable: bool = False
    placement_group: str = ""


def order(request: MachineRequest, place: LaunchPlace, user_data: str, company: Mapping[str, str]) -> dict[str, Any]:
    """The arguments. An equal request gives an equal order, or EC2 would not recognize the token."""
    return {
        "ClientToken": client_token(request),
        "ImageId": place.image.id,
        "InstanceType": request.market.instance_type,
        "MinCount": 1,
        "MaxCount": request.count,
        "UserData": user_data,
        # A machine that shuts itself down is no longer billed; by default EC2 would go on charging for the disk.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": _METADATA_HOPS,
        },
        "NetworkInterfaces": [_interface(place)],
        "BlockDeviceMappings": [_disk(request, place)],
        "TagSpecifications": _tags(request, company),
        # EC2 accepts this only for burstable types. Their default, `unlimited`, is billed on top of the price.
        **({"CreditSpecification": {"CpuCredits": "standard"}} if place.is_burstable else {}),
        **({"Placement": {"GroupName": place.placement_group}} if place.placement_group else {}),
        **_market(request),
        **_reservation(request),
        **_identity(request),
    }


def usd_per_hour(nanos: int) -> str:
    """A price as EC2 takes it: decimal dollars, exact."""
    whole, part = divmod(nanos, NANOS_PER_DOLLAR)
    return f"{whole}.{part:09d}".rstrip("0").rstrip(".")


def _interface(place: LaunchPlace) -> dict[str, Any]:
    return {
        "DeviceIndex": 0,
        "SubnetId": place.subnet,
        "Groups": list(place.groups),
        "AssociatePublicIpAddress": place.public_ip,
        "DeleteOnTermination": True,
    }


def _disk(request: MachineRequest, place: LaunchPlace) -> dict[str, Any]:
    size = place.image.disk_gib(request.disk_gib)
    ebs = {"VolumeSize": size, "VolumeType": DISK_TYPE, "Encrypted": True, "DeleteOnTermination": True}
    if place.kms_key is not None:
        ebs["KmsKeyId"] = place.kms_key
    return {"DeviceName": place.image.root_device, "Ebs": ebs}


def _tags(request: MachineRequest, company: Mapping[str, str]) -> list[dict[str, Any]]:
    kinds = ["instance", "volume", "network-interface"]
    if request.bid is not None:
        # EC2 refuses this kind for machines on demand.
        kinds.append("spot-instances-request")
    tags = tag_list(tags_of_order(request, company))
    return [{"ResourceType": kind, "Tags": tags} for kind in kinds]


def _reservation(request: MachineRequest) -> dict[str, Any]:
    """The reservation that the machines are taken from."""
    if not request.reservation:
        return {}
    return {
        "CapacityReservationSpecification": {
            "CapacityReservationTarget": {"CapacityReservationId": request.reservation}
        }
    }


def _market(request: MachineRequest) -> dict[str, Any]:
    if request.block:
        return {"InstanceMarketOptions": {"MarketType": "capacity-block"}}
    if request.bid is None:
        return {}
    spot = {
        "MaxPrice": usd_per_hour(request.bid),
        # EC2 does not restart an evicted machine: spotctl decides what to buy next.
        "SpotInstanceType": "one-time",
        "InstanceInterruptionBehavior": "terminate",
    }
    return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot}}


def _identity(request: MachineRequest) -> dict[str, Any]:
    if request.identity is None:
        return {}
    return {"IamInstanceProfile": {"Arn" if request.identity.startswith("arn:") else "Name": request.identity}}
