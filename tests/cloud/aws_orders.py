"""The checks that EC2 makes on a RunInstances request before it looks for capacity; moto makes few
of them.

Codes are those of the EC2 API Reference (Error codes); texts are EC2's own where they were
published.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instance_types import INSTANCE_TYPE_OFFERINGS, INSTANCE_TYPES
from moto.iam.models import iam_backends

_USER_DATA_BYTES = 16384
_TAGGABLE = {"instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu"}
_TOKEN_LENGTH = 64
_MAX_TAGS = 50


def refuse(code: str, message: str) -> Exception:
    """An error answer of EC2."""
    error: Exception = EC2ClientError(code, message)
    return error


@dataclass(frozen=True)
class Order:
    """A request that passed the checks. `max_price` None: the on-demand price, or no spot machine
    at all.
    """

    token: str
    digest: str
    least: int
    most: int
    type: str
    zone: str
    vcpus: int
    spot: bool
    max_price: float | None
    user_data: bytes
    behavior: str
    tags: Mapping[str, Mapping[str, str]]
    metadata: Mapping[str, Any]
    profile: str | None
    placement_group: str = ""
    reservation: str = ""
    block: bool = False


def checked(response: Any, backend: Any) -> Order:  # noqa: ANN401  # moto's
    """The order in a request to moto."""
    ask = response._get_param
    options = ask("InstanceMarketOptions", {}) or {}
    order = Order(
        token=ask("ClientToken") or "",
        digest=sha256(
            json.dumps(response.params, sort_keys=True, default=str).encode()
        ).hexdigest(),
        least=int(ask("MinCount", 0)),
        most=int(ask("MaxCount", 0)),
        type=ask("InstanceType") or "m1.small",
        zone=_zone(ask, backend),
        vcpus=vcpus_of(ask("InstanceType") or "m1.small"),
        spot=options.get("MarketType") == "spot",
        max_price=_price(options.get("SpotOptions", {})),
        user_data=_user_data(ask("UserData")),
        behavior=ask("InstanceInitiatedShutdownBehavior") or "stop",
        tags=response._parse_tag_specification(),
        metadata=ask("MetadataOptions", {}) or {},
        profile=_profile(ask("IamInstanceProfile", {}) or {}),
        reservation=str(_target(ask).get("CapacityReservationId") or ""),
        block=options.get("MarketType") == "capacity-block",
        placement_group=str((ask("Placement", {}) or {}).get("GroupName") or ""),
    )
    _check_counts(order)
    _check_place(order, backend)
    _check_image(order, ask, backend)
    _check_options(ask, options.get("SpotOptions", {}))
    _check_tags(order)
    _check_profile(order, backend)
    return order


def _target(ask: Any) -> Mapping[str, Any]:  # noqa: ANN401
    specified = ask("CapacityReservationSpecification", {}) or {}
    target: Mapping[str, Any] = specified.get("CapacityReservationTarget", {})
    return target


def _zone(ask: Any, backend: Any) -> str:  # noqa: ANN401
    interfaces = ask("NetworkInterfaces", []) or []
    if interfaces and (ask("SubnetId") or ask("SecurityGroupIds")):
        raise refuse(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level subnet ID or security groups may not be "
            "specified on the same request",
        )
    subnet = ask("SubnetId") or next(
        (one["SubnetId"] for one in interfaces if one.get("SubnetId")), None
    )
    if subnet:
        return str(backend.get_subnet(subnet).availability_zone)
    return str(ask("Placement.AvailabilityZone") or f"{backend.region_name}a")


def vcpus_of(name: str) -> int:
    """The virtual CPUs of a type."""
    if name not in INSTANCE_TYPES:
        raise refuse("InvalidParameterValue", f"Invalid value '{name}' for InstanceType.")
    return int(INSTANCE_TYPES[name]["VCpuInfo"]["DefaultVCpus"])


def _price(options: Mapping[str, Any]) -> float | None:
    text = options.get("MaxPrice")
    if text is None:
        return None
    if not re.fullmatch(r"\d+(\.\d+)?", str(text)) or float(text) <= 0:
        raise refuse("InvalidParameterValue", f"Invalid value '{text}' for SpotPrice.")
    return float(text)


def _user_data(text: str | None) -> bytes:
    try:
        content = base64.b64decode(str(text or ""), validate=True)
    except binascii.Error:
        raise refuse("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.") from None
    if len(content) > _USER_DATA_BYTES:
        raise refuse("InvalidParameterValue", f"User data is limited to {_USER_DATA_BYTES} bytes")
    return content


def _profile(given: Mapping[str, str]) -> str | None:
    return given.get("Name") or (given["Arn"].rpartition("/")[2] if given.get("Arn") else None)


def _check_profile(order: Order, backend: Any) -> None:  # noqa: ANN401
    known = iam_backends[backend.account_id]["aws"].instance_profiles.values()
    if order.profile is not None and order.profile not in [one.name for one in known]:
        value, name = (
            f"Value ({order.profile}) for parameter iamInstanceProfile.name",
            "IAM Instance Profile name",
        )
        raise refuse("InvalidParameterValue", f"{value} is invalid. Invalid {name}")


def _check_counts(order: Order) -> None:
    if not 1 <= order.least <= order.most:
        raise refuse(
            "InvalidParameterValue",
            f"{order.least} to {order.most} is not a valid range of instances",
        )
    if len(order.token) > _TOKEN_LENGTH:
        raise refuse(
            "InvalidParameterValue", f"The client token is longer than {_TOKEN_LENGTH} characters"
        )


def _check_place(order: Order, backend: Any) -> None:  # noqa: ANN401
    offered = INSTANCE_TYPE_OFFERINGS["availability-zone"].get(backend.region_name, [])
    if not any(one["Location"] == order.zone for one in offered):
        raise refuse("InvalidParameterValue", f"Invalid availability zone: [{order.zone}]")
    if not any(
        (one["Location"], one["InstanceType"]) == (order.zone, order.type) for one in offered
    ):
        raise refuse(
            "Unsupported",
            f"Your requested instance type ({order.type}) is not supported in your requested "
            f"Availability Zone ({order.zone}).",
        )


def _check_image(order: Order, ask: Any, backend: Any) -> None:  # noqa: ANN401
    image = str(ask("ImageId") or "")
    if not image:
        raise refuse("MissingParameter", "The request must contain the parameter ImageId")
    if not re.fullmatch(r"ami-[0-9a-f]{8,17}", image):
        raise refuse("InvalidAMIID.Malformed", f'Invalid id: "{image}"')
    if image not in backend.amis:
        raise refuse("InvalidAMIID.NotFound", f"The image id '[{image}]' does not exist")
    ami = backend.amis[image]
    if (
        ami.architecture
        not in INSTANCE_TYPES[order.type]["ProcessorInfo"]["SupportedArchitectures"]
    ):
        raise refuse(
            "InvalidParameterValue",
            f"The architecture of the specified instance type does not match the architecture "
            f"'{ami.architecture}' of the specified AMI",
        )
    least = ami.ebs_snapshot.volume.size
    for disk in ask("BlockDeviceMappings", []) or []:
        size = disk.get("Ebs", {}).get("VolumeSize")
        if disk.get("DeviceName") == ami.root_device_name and size and int(size) < least:
            raise refuse(
                "InvalidBlockDeviceMapping",
                f"Volume of size {size}GB is smaller than snapshot '{ami.ebs_snapshot.id}', expect "
                f"size>= {least}GB",
            )


def _check_options(ask: Any, spot: Mapping[str, Any]) -> None:  # noqa: ANN401
    behavior = ask("InstanceInitiatedShutdownBehavior")
    if behavior not in (None, "stop", "terminate"):
        raise refuse(
            "InvalidParameterValue",
            f"Invalid value '{behavior}' for InstanceInitiatedShutdownBehavior.",
        )
    if spot.get("SpotInstanceType", "one-time") == "one-time" and spot.get(
        "InstanceInterruptionBehavior"
    ) not in (
        None,
        "terminate",
    ):
        raise refuse(
            "InvalidParameterCombination",
            "InstanceInterruptionBehavior must be terminate for a one-time spot request.",
        )


def _check_tags(order: Order) -> None:
    for kind, tags in order.tags.items():
        if kind not in _TAGGABLE or (kind == "spot-instances-request" and not order.spot):
            raise refuse(
                "InvalidParameterValue",
                f"'{kind}' is not a valid taggable resource type for this operation.",
            )
        if len(tags) > _MAX_TAGS:
            raise refuse("TagLimitExceeded", f"More than {_MAX_TAGS} tags specified")
        for key, value in tags.items():
            if key.startswith("aws:") or not 1 <= len(key) <= 128 or len(value) > 256:
                raise refuse("InvalidParameterValue", f"Tag {key!r} is reserved, or too long")
