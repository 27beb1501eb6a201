"""The one call that buys the machines of a request: the arguments of RunInstances, with tags, image
and quota. Pure.

Why RunInstances and not a fleet: docs/decisions/0022-machines-on-aws.md. Everything that is made
for an order is tagged; tags that start with `spotctl.` hold what EC2 does not say about a machine,
so no process has to remember it. Images are Ubuntu 24.04 (cloud-init, Python 3.12), or AWS's own
with NVIDIA's drivers, named by public SSM parameters. Quotas are those of Service Quotas for the
service `ec2` (EC2 User Guide, "On-Demand Instance quotas" and "Spot Instance quotas"): a family is
the letters that a type's name begins with, or a whole family where letters do not decide.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pricing_data.catalog import NVIDIA_OLD, driver_of
from pricing_data.units import format_usd
from spotctl.clouds.errors import NotFound
from spotctl.clouds.provider import MachineRequest, run_tags
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG

Row = Mapping[str, Any]
"""An item of EC2's lists, as its SDK reads it."""

DISK_TYPE = "gp3"
_METADATA_HOPS = 1
"""The metadata service answers only the machine itself, and no container or proxy on the
machine."""


@dataclass(frozen=True, slots=True)
class LaunchPlace:
    """The subnet, security groups and image of a request's machines, found or made before the
    purchase, whether their type is burstable, and the group in which they are placed close
    together, if they are."""

    subnet: str
    groups: tuple[str, ...]
    image: MachineImage
    public_ip: bool
    kms_key: str | None = None
    is_burstable: bool = False
    placement_group: str = ""


def order(
    request: MachineRequest, place: LaunchPlace, user_data: str, company: Mapping[str, str]
) -> dict[str, Any]:
    """The arguments. An equal request gives an equal order, or EC2 would not recognize the
    token."""
    arguments: dict[str, Any] = {
        "ClientToken": client_token(request),
        "ImageId": place.image.id,
        "InstanceType": request.market.instance_type,
        "MinCount": 1,
        "MaxCount": request.count,
        "UserData": user_data,
        # A machine that shuts itself down is no longer billed; by default EC2 would go on charging
        # for the disk.
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": _METADATA_HOPS,
        },
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "SubnetId": place.subnet,
                "Groups": list(place.groups),
                "AssociatePublicIpAddress": place.public_ip,
                "DeleteOnTermination": True,
            }
        ],
        "BlockDeviceMappings": [_disk(request, place)],
        "TagSpecifications": _tags(request, company),
    }

    if place.is_burstable:
        # EC2 accepts this only for burstable types. Their default, `unlimited`, is billed on top of
        # the price.
        arguments["CreditSpecification"] = {"CpuCredits": "standard"}

    if place.placement_group:
        arguments["Placement"] = {"GroupName": place.placement_group}
    arguments |= _market(request)
    if request.reservation:
        target = {"CapacityReservationId": request.reservation}
        arguments["CapacityReservationSpecification"] = {"CapacityReservationTarget": target}

    if request.identity is not None:
        named_by = "Arn" if request.identity.startswith("arn:") else "Name"
        arguments["IamInstanceProfile"] = {named_by: request.identity}

    return arguments


def _disk(request: MachineRequest, place: LaunchPlace) -> dict[str, Any]:
    ebs = {
        "VolumeSize": disk_gib(
            request.market.instance_type, request.disk_gib, place.image.least_gib
        ),
        "VolumeType": DISK_TYPE,
        "Encrypted": True,
        "DeleteOnTermination": True,
    }

    if place.kms_key is not None:
        ebs["KmsKeyId"] = place.kms_key
    return {"DeviceName": place.image.root_device, "Ebs": ebs}


def _tags(request: MachineRequest, company: Mapping[str, str]) -> list[dict[str, Any]]:
    """The tags on everything that is made for an order. `company` are the tags that the settings
    demand.
    """
    bid = ON_DEMAND if request.bid is None else str(request.bid)
    ours = {TOKEN: client_token(request), REQUEST: request_hash(request), BID: bid}
    tags = tag_list({**company, **request.tags, **ours})
    kinds = ["instance", "volume", "network-interface"]
    if request.bid is not None:
        # EC2 refuses this kind for machines on demand.
        kinds.append("spot-instances-request")
    return [{"ResourceType": kind, "Tags": tags} for kind in kinds]


def _market(request: MachineRequest) -> dict[str, Any]:
    if request.block:
        return {"InstanceMarketOptions": {"MarketType": "capacity-block"}}
    if request.bid is None:
        return {}

    spot = {
        "MaxPrice": format_usd(request.bid),
        # EC2 does not restart an evicted machine: spotctl decides what to buy next.
        "SpotInstanceType": "one-time",
        "InstanceInterruptionBehavior": "terminate",
    }

    return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": spot}}


_UBUNTU = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"
_NVIDIA = "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"
_DEBIAN_NAMES = {"x86_64": "amd64", "arm64": "arm64"}

MIN_DISK_GIB, GPU_DISK_GIB = 30, 150
"""Room for the image, Python packages and some data; PyTorch alone has 10 GiB with its libraries,
and the image with drivers 75."""
_WITH_GPUS = re.compile(r"(p|g|gr)\d")


def disk_gib(instance_type: str, wanted: int | None, least: int = 0) -> int:
    """The size of a machine's disk, as it is ordered and billed: the one that a job names, or the
    usual one, or that of the image if neither holds it, which has `least` GiB."""
    usual = GPU_DISK_GIB if _WITH_GPUS.match(instance_type) else MIN_DISK_GIB
    return max(wanted or usual, least)


@dataclass(frozen=True, slots=True)
class Ec2Hardware:
    """The properties of an instance type that decide which image it boots and how it is ordered."""

    name: str
    architecture: str
    gpus: tuple[str, ...] = ()
    is_burstable: bool = False
    can_cluster: bool = True
    vcpus: int = 0
    is_spot: bool = True

    @classmethod
    def of(cls, row: Row) -> Ec2Hardware:
        """Reads EC2's description of a type. Accelerators that NVIDIA did not make need drivers
        that we do not know.
        """
        architectures = row["ProcessorInfo"]["SupportedArchitectures"]
        known = [name for name in architectures if name in _DEBIAN_NAMES]
        all_gpus = row.get("GpuInfo", {}).get("Gpus", ())
        gpus = [gpu for gpu in all_gpus if gpu.get("Manufacturer", "").upper() == "NVIDIA"]
        strategies = row.get("PlacementGroupInfo", {}).get("SupportedStrategies", ("cluster",))
        usage = row.get("SupportedUsageClasses", ("spot",))
        architecture = known[0] if known else ""
        names = tuple(gpu["Name"] for gpu in gpus)
        vcpus = int(row.get("VCpuInfo", {}).get("DefaultVCpus", 0))
        return cls(
            row["InstanceType"],
            architecture,
            names,
            is_burstable=bool(row.get("BurstablePerformanceSupported")),
            can_cluster="cluster" in strategies,
            vcpus=vcpus,
            is_spot="spot" in usage,
        )


class MachineImage:
    """An image of a region, by EC2's description of it: its root device has `least_gib` at least.
    BadRequest: the type cannot boot this image."""

    def __init__(self, row: Row, hardware: Ec2Hardware) -> None:
        self.id: str = row["ImageId"]
        if row.get("Architecture", hardware.architecture) != hardware.architecture:
            cure = "name another image, or leave it out"
            problem = (
                f"image {self.id} is for {row['Architecture']}, and {hardware.name} is "
                f"{hardware.architecture}; {cure}"
            )
            raise BadRequest(problem)

        self.root_device = _root_device(row)
        self.least_gib = size_of(row)


def size_of(row: Row) -> int:
    """The size of an image's root device in GiB; 0 if EC2 does not say."""
    root = _root_device(row)
    disks = [disk for disk in row.get("BlockDeviceMappings", ()) if disk.get("DeviceName") == root]
    return max((int(disk.get("Ebs", {}).get("VolumeSize") or 0) for disk in disks), default=0)


def _root_device(row: Row) -> str:
    return row.get("RootDeviceName") or "/dev/sda1"


def parameter_for(hardware: Ec2Hardware) -> str:
    """The SSM parameter with the image for an instance type. NotFound: no image runs on this
    type."""
    if not hardware.architecture:
        raise NotFound(f"{hardware.name}: neither x86_64 nor arm64, so no image fits it")
    if too_old := sorted(gpu for gpu in hardware.gpus if driver_of(gpu) == NVIDIA_OLD):
        cure = "name one that has (image: {ami: ami-...})"
        raise BadRequest(f"{hardware.name}: AWS's image has no driver for its {too_old[0]}; {cure}")
    if hardware.gpus:
        return _NVIDIA.format(hardware.architecture)

    return _UBUNTU.format(_DEBIAN_NAMES[hardware.architecture])


CLOUD = "aws"

TOKEN, REQUEST, BID = "spotctl.token", "spotctl.request", "spotctl.bid"
"""The client token of the order, a hash of what may not change when it is repeated, and the bid in
nano-dollars."""

GROUP = "spotctl.group"
"""On a security group or placement group: the run's, by its name."""

_OURS = frozenset({TOKEN, REQUEST, BID, GROUP})
ON_DEMAND = "none"


def client_token(request: MachineRequest) -> str:
    """The token of a request, unique in an account that several installations share; EC2 allows 64
    characters.
    """
    return hashlib.sha256(
        f"{request.tags.get(INSTALLATION_TAG, '')} {request.token}".encode()
    ).hexdigest()


def request_hash(request: MachineRequest) -> str:
    """A hash of all that may not change when a request is repeated."""
    payload = None if request.payload is None else request.payload.in_former_words()
    fixed: dict[str, object] = {
        "market": str(request.market),
        "count": request.count,
        "bid": request.bid,
        "tags": dict(request.tags),
        "payload": payload,
        "places": (request.image, request.identity, request.disk_gib, request.network),
    }
    # Requests that earlier versions made keep their hash.
    if request.close:
        fixed["close"] = True
    if request.reservation:
        fixed["reservation"] = request.reservation
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()[:32]


def group_name(request: MachineRequest) -> str:
    """The name of the run's security group."""
    return f"spotctl-{hashlib.sha256(json.dumps(run_tags(request.tags), sort_keys=True).encode()).hexdigest()[:20]}"


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags as EC2 takes them."""
    return [{"Key": name, "Value": value} for name, value in tags.items()]


def all_tags(row: Row) -> dict[str, str]:
    """The tags of anything that EC2 lists."""
    return {tag["Key"]: tag.get("Value", "") for tag in row.get("Tags", ())}


def own_tags(row: Row, company: Mapping[str, str]) -> dict[str, str]:
    """The tags of the request, without ours and the company's."""
    return {
        name: value
        for name, value in all_tags(row).items()
        if name not in _OURS and name not in company
    }


def filters_of(tags: Mapping[str, str]) -> dict[str, list[str]]:
    """The filters for resources with all of these tags; without any, for everything that spotctl
    made.
    """
    return {f"tag:{name}": [value] for name, value in tags.items()} or {"tag-key": [TOKEN, GROUP]}


def machine_id(region: str, instance: str) -> str:
    """The id of a machine or of any resource: with its region, so that a call about it needs no
    state.
    """
    return f"{CLOUD}:{region}:{instance}"


def parts_of(machine: str) -> tuple[str, str] | None:
    """The region and the id in a name made by `machine_id`; None for anything else."""
    cloud, _, rest = machine.partition(":")
    region, _, instance = rest.partition(":")
    return (region, instance) if cloud == CLOUD and region and instance else None


class QuotaPool(NamedTuple):
    """Families whose spot machines share a quota of vCPUs in a region, and its codes; `wider` are
    the families that share the one of on-demand machines, if these are more."""

    name: str
    families: frozenset[str]
    spot: str
    on_demand: str
    wider: frozenset[str] = frozenset()

    def family(self, *, spot: bool) -> str:
        """The pool's families as part of a quota's name."""
        return "+".join(sorted(self.families if spot else self.wider or self.families))

    def code(self, *, spot: bool) -> str:
        return self.spot if spot else self.on_demand


STANDARD = QuotaPool(
    "Standard (A, C, D, H, I, M, R, T, Z)",
    frozenset("a c d h i im is m r t z".split()),
    "L-34B43A08",
    "L-1216C47A",
)
_POOLS = (
    STANDARD,
    QuotaPool("F", frozenset({"f"}), "L-88CF9481", "L-74FC7D96"),
    QuotaPool("G and VT", frozenset({"g", "gr", "vt"}), "L-3819A6DF", "L-DB2E81BA"),
    QuotaPool(
        "P2, P3 and P4",
        frozenset("p2 p3 p3dn p4d p4de".split()),
        "L-7212CCBC",
        "L-417A185B",
        frozenset({"p"}),
    ),
    QuotaPool("P5", frozenset({"p5", "p5e", "p5en"}), "L-C4BD4855", "L-417A185B", frozenset({"p"})),
    # AWS names no quota of spot machines for these: it states none, or they are not sold as spot.
    QuotaPool(
        "P6", frozenset({"p6-b200", "p6-b300", "p6e-gb200"}), "", "L-417A185B", frozenset({"p"})
    ),
    QuotaPool("HPC", frozenset({"hpc"}), "", "L-F7808C92"),
    QuotaPool("High Memory", frozenset({"u"}), "", "L-43DA4232"),
    QuotaPool("X", frozenset({"x"}), "L-E3A00192", "L-7295265B"),
    QuotaPool("Inf", frozenset({"inf"}), "L-B5D1601B", "L-1945791B"),
    QuotaPool("Trn", frozenset({"trn"}), "L-6B0D517C", "L-2C3B7624"),
    QuotaPool("DL", frozenset({"dl"}), "L-85EED4F7", "L-6E869C2A"),
)
_LETTERS = re.compile(r"[a-z]+")


def pool_of(instance_type: str) -> QuotaPool | None:
    """The pool of an instance type; None for an unknown family."""
    match = _LETTERS.match(instance_type)
    names = {match[0] if match else "", instance_type.partition(".")[0]}
    return next((pool for pool in _POOLS if names & pool.families), None)


def raise_command(code: str, region: str) -> str:
    """The command that requests a higher quota; AWS decides within hours or days."""
    return (
        f"aws service-quotas request-service-quota-increase --region {region} --service-code ec2 "
        f"--quota-code {code} --desired-value VCPUS"
    )
