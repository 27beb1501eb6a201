"""Orders: bodies of requests with the field names of the SDK's messages, and the names and labels
in them. Pure.

Names, ids and request ids are derived from the request, so that a repeated request finds its
machines. Compute Engine forgets a deleted machine at once and keeps only the operations, for two
weeks, with the machine's name. So the name says which market, run, intent and request a machine
belonged to.

Tags become labels, or the description of what has no labels. A label's value may have 63 lowercase
letters, digits, _ and -. Any other character of a tag's value is written as _ and the hexadecimal
digits of its bytes, so that no two tags become the same label.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import unquote

from pricing_data.catalog import NVIDIA_OLD, driver_of
from pricing_data.market import NO_ZONE, Market
from spotctl.clouds.gcp.cloud import GcpMachineSettings
from spotctl.clouds.gcp.machine_types import gpu_name, split_type
from spotctl.clouds.provider import EndReason, MachineRequest, fingerprint
from spotctl.home.errors import BadRequest
from spotctl.home.installation import INSTALLATION_TAG, INTENT_TAG, RUN_TAG

_UBUNTU = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-{}"
_WITH_DRIVERS = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-{}-with-nvidia-580"
"""Ubuntu, because its cloud-init runs `user-data`; 24.04, because spotctl needs Python 3.11."""

_SMALLEST_GIB, SMALLEST_WITH_DRIVERS_GIB, GPU_DISK_GIB = 10, 50, 150
"""The usual image needs the first, and that with drivers the second; the third has room for PyTorch
and its libraries, too."""
_WITH_GPUS = re.compile(r"[ag]\d")
# Series that have no persistent disks, only Hyperdisk, as of November 2026; so have all bare-metal
# types: https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support
_HYPERDISK_ONLY = frozenset("a3-ultragpu a4 a4x c4 c4a c4d g4 h4d m4 n4 n4a n4d x4".split())
_SCOPES = ["https://www.googleapis.com/auth/cloud-platform"]
_HOUR_SECONDS = 3600
_LONGEST_SECONDS = 2880 * _HOUR_SECONDS


@dataclass(frozen=True, slots=True)
class GcpHardware:
    """A machine type as Google describes it, and the GPUs that are attached to its machines."""

    type: str
    is_arm: bool = False
    has_own_gpus: bool = False
    attached: tuple[str, int] | None = None

    @property
    def has_gpus(self) -> bool:
        return self.has_own_gpus or self.attached is not None


def instance(
    request: MachineRequest,
    settings: GcpMachineSettings,
    hardware: GcpHardware,
    place: tuple[str, str],
    start_up: str,
    now: int,
    least_gib: int = 0,
) -> dict[str, Any]:
    """A machine of a request. `place` is its zone and name, and `least_gib` the size of its
    image."""
    zone, name = place
    scope = name.split("-")[-4]
    labels = {**settings.labels, **labels_of(request.tags), REQUEST_LABEL: fingerprint(request)}
    if request.bid is not None:
        labels[BID_LABEL] = str(request.bid)
    account = request.identity or settings.service_account or "default"
    own_keys = {"key": "block-project-ssh-keys", "value": "TRUE"}
    metadata = [{"key": "user-data", "value": start_up}, own_keys]
    body: dict[str, Any] = {
        "name": name,
        "machine_type": f"zones/{zone}/machineTypes/{hardware.type}",
        "labels": labels,
    }

    # The id of the request is derived from the body as it stands here: its order stays.
    body["scheduling"] = _scheduling(request, settings, hardware, now)
    body["disks"] = [_disk(request, settings, hardware, zone, labels, least_gib)]
    body["network_interfaces"] = [_interface(request, settings, hardware, zone)]
    body["service_accounts"] = [{"email": account, "scopes": _SCOPES}]
    body["metadata"] = {"items": metadata}
    body["tags"] = {"items": list(settings.network_tags) or [network_tag(scope)]}
    if request.close:
        policy = placement_policy(scope, zone)
        body["resource_policies"] = [f"regions/{region_of(zone)}/resourcePolicies/{policy}"]

    if request.reservation:
        # Taken from the reservation, or not created.
        body["reservation_affinity"] = {
            "consume_reservation_type": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [request.reservation],
        }

    if hardware.attached is not None:
        gpu, count = hardware.attached
        kind = f"zones/{zone}/acceleratorTypes/{gpu}"
        body["guest_accelerators"] = [{"accelerator_type": kind, "accelerator_count": count}]

    return body


def _scheduling(
    request: MachineRequest, settings: GcpMachineSettings, hardware: GcpHardware, now: int
) -> dict[str, object]:
    lease_seconds = max(request.lease_until - now, 0) // 1_000_000
    usual = settings.longest_hours * _HOUR_SECONDS
    longest = min(max(usual, lease_seconds + _HOUR_SECONDS), _LONGEST_SECONDS)
    is_spot = request.bid is not None
    stays = is_spot or hardware.has_gpus or request.close

    return {
        "provisioning_model": "SPOT" if is_spot else "STANDARD",
        "instance_termination_action": "DELETE",
        # Spot machines, machines with GPUs and those close together cannot be moved to another host
        # while they run.
        "on_host_maintenance": "TERMINATE" if stays else "MIGRATE",
        "automatic_restart": False,
        "max_run_duration": {"seconds": longest},
    }


def _disk(
    request: MachineRequest,
    settings: GcpMachineSettings,
    hardware: GcpHardware,
    zone: str,
    labels: Mapping[str, str],
    least_gib: int,
) -> dict[str, object]:
    image = request.image or settings.image
    if not image:
        if (
            hardware.attached is not None
            and driver_of(gpu_name(hardware.attached[0])) == NVIDIA_OLD
        ):
            cure = "name one that has (image: {gcp: ...})"
            problem = (
                f"{hardware.type}: Google's image has no driver for its "
                f"{gpu_name(hardware.attached[0])}; {cure}"
            )
            raise BadRequest(problem)
        image = (_WITH_DRIVERS if hardware.has_gpus else _UBUNTU).format(
            "arm64" if hardware.is_arm else "amd64"
        )

    disk: dict[str, object] = {
        "boot": True,
        "auto_delete": True,
        "initialize_params": {
            "source_image": image,
            "disk_size_gb": disk_gib(
                request.market.instance_type, settings, request.disk_gib, least_gib
            ),
            "disk_type": f"zones/{zone}/diskTypes/{disk_type(hardware.type)}",
            "labels": dict(labels),
        },
    }

    if settings.kms_key:
        disk["disk_encryption_key"] = {"kms_key_name": settings.kms_key}
    return disk


def disk_gib(
    instance_type: str, settings: GcpMachineSettings, wanted: int | None, least: int = 0
) -> int:
    """The size of a machine's disk, as it is ordered and billed: the one that a job names, or the
    usual one, or that of the image if neither holds it, which has `least` GiB."""
    name, attached = split_type(instance_type)
    has_gpus = attached is not None or _WITH_GPUS.match(name) is not None
    usual = max(settings.disk_gib, GPU_DISK_GIB if has_gpus else 0)
    smallest = SMALLEST_WITH_DRIVERS_GIB if has_gpus else _SMALLEST_GIB
    return max(wanted or usual, smallest, least)


def disk_type(machine_type: str) -> str:
    """The kind of disk that machines of a type boot from."""
    series, kind = machine_type.split("-", maxsplit=1)[0], "-".join(machine_type.split("-")[:2])
    only = {series, kind} & _HYPERDISK_ONLY or machine_type.endswith("-metal")
    return "hyperdisk-balanced" if only else "pd-balanced"


def subnetwork_of(request: MachineRequest, settings: GcpMachineSettings, zone: str) -> str | None:
    """The path of the subnetwork of a request's machines; None if a network is chosen rather than a
    subnetwork.
    """
    if request.network is not None:
        return request.network if "subnetworks/" in request.network else None
    chosen = settings.subnetwork
    return (
        chosen
        if chosen is None or "/" in chosen
        else f"regions/{region_of(zone)}/subnetworks/{chosen}"
    )


def _interface(
    request: MachineRequest, settings: GcpMachineSettings, hardware: GcpHardware, zone: str
) -> dict[str, object]:
    subnetwork = subnetwork_of(request, settings, zone)
    interface: dict[str, object] = (
        {"subnetwork": subnetwork}
        if subnetwork
        else {"network": network_path(request.network or settings.network)}
    )

    if hardware.has_gpus and not (request.image or settings.image):
        # Images of the user's own may lack its driver, and N1, A2 and G2 get the slower interface
        # where none is named: https://cloud.google.com/compute/docs/networking/using-gvnic
        interface["nic_type"] = "GVNIC"
    if settings.public_ip:
        interface["access_configs"] = [{"name": "External NAT", "type_": "ONE_TO_ONE_NAT"}]
    return interface


def network_path(network: str) -> str:
    return network if "/" in network else f"global/networks/{network}"


SSH_RULE = "-ssh"
"""The end of the name of a run's rule for ssh."""


def firewalls(
    scope: str, network: str, ssh_from: tuple[str, ...], tags: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """The rules of a run: its machines may talk to each other, and ssh is admitted from the ranges
    in the settings.

    Rules have no labels, so their description identifies the run.
    """
    tag = network_tag(scope)
    common: dict[str, Any] = {
        "network": network_path(network),
        "direction": "INGRESS",
        "target_tags": [tag],
    }

    described = {"description": description_of(tags), **common}
    inside = {
        "name": f"{tag}-inside",
        **described,
        "source_tags": [tag],
        "allowed": [{"I_p_protocol": "all"}],
    }

    if not ssh_from:
        return (inside,)

    ssh = {"I_p_protocol": "tcp", "ports": ["22"]}
    return inside, {
        "name": f"{tag}{SSH_RULE}",
        **described,
        "source_ranges": list(ssh_from),
        "allowed": [ssh],
    }


CLOUD = "gcp"
POLICY_KIND = "placement policy"
PREFIX = "spotctl-"
_SCOPE, _TOKEN, _PRINT = 7, 7, 4
_LONGEST_TYPE = 22
_MAX_DELETIONS = 20
_RUN = frozenset({INSTALLATION_TAG, RUN_TAG})
_NAMESPACE = uuid.UUID("6f0d5b0e-6f5c-4d5c-9a5e-6d1f1c3f2b77")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME = re.compile(
    rf"{PREFIX}(?P<spot>[sd])(?P<zonal>[rz])-(?P<type>[a-z][a-z0-9-]*)-(?P<scope>[a-z0-9]{{{_SCOPE}}})"
    rf"-(?P<intent>\d*)-(?P<token>[a-z0-9]{{{_TOKEN}}})(?P<print>[a-z0-9]{{{_PRINT}}})-(?P<index>\d+)"
)
_ID = re.compile(rf"{CLOUD}:(?P<zone>[a-z0-9-]+):(?P<name>[a-z0-9-]+)")


@dataclass(frozen=True, slots=True)
class OrderName:
    """The parts of the names of a request's machines. `scope` stands for the run, and `print` for
    the whole request; a type that is too long for a name is cut."""

    is_spot: bool
    is_zonal: bool
    type: str
    scope: str
    intent: str
    token: str
    print: str

    @classmethod
    def of(cls, request: MachineRequest) -> Self:
        market, scope = request.market, scope_of(request.tags)
        type_ = market.instance_type.replace("+", "--")
        intent = request.tags.get(INTENT_TAG, "")
        token, whole = _short(request.token, _TOKEN), _short(fingerprint(request), _PRINT)
        is_spot, is_zonal = request.bid is not None, market.zone != NO_ZONE
        return cls(
            is_spot, is_zonal, type_[:_LONGEST_TYPE].rstrip("-"), scope, intent, token, whole
        )

    @property
    def any_print(self) -> str:
        """A regular expression for the names of all machines of this token, whatever was requested
        with it.
        """
        return rf"{PREFIX}.*-{self.token}[a-z0-9]{{{_PRINT}}}-[0-9]+"

    def machine(self, index: int) -> str:
        kind = ("s" if self.is_spot else "d") + ("z" if self.is_zonal else "r")
        return f"{PREFIX}{kind}-{self.type}-{self.scope}-{self.intent}-{self.token}{self.print}-{index}"

    def market(self, zone: str) -> Market:
        region = region_of(zone)
        return Market(
            CLOUD, region, zone if self.is_zonal else NO_ZONE, self.type.replace("--", "+")
        )


def parsed(name: str) -> tuple[OrderName, int] | None:
    """The parts of a machine's name, and its index; None if the name is not one of spotctl's."""
    if (match := _NAME.fullmatch(name)) is None:
        return None
    parts = match.group("type", "scope", "intent", "token", "print")
    return OrderName(match["spot"] == "s", match["zonal"] == "z", *parts), int(match["index"])


def scope_of(tags: Mapping[str, str]) -> str:
    """Identifies a run in names: a hash of installation and run, or else of all tags but the
    intent.
    """
    common = _RUN if tags.keys() >= _RUN else tags.keys() - {INTENT_TAG}
    return _short(repr(sorted((key, tags[key]) for key in common)), _SCOPE)


def names_of_machines(tags: Mapping[str, str]) -> str:
    """A regular expression for the names of the machines that may have these tags."""
    return rf"{PREFIX}.*-{scope_of(tags)}-.*" if tags.keys() >= _RUN else rf"{PREFIX}.*"


def network_tag(scope: str) -> str:
    return f"{PREFIX}{scope}"


def machine_id(zone: str, name: str) -> str:
    return f"{CLOUD}:{zone}:{name}"


def place_of(machine: str) -> tuple[str, str] | None:
    """The zone and the name of a machine that spotctl may have created; None for any other id."""
    match = _ID.fullmatch(machine)
    return (match["zone"], match["name"]) if match and parsed(match["name"]) else None


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]


def placement_policy(scope: str, zone: str) -> str:
    """The name of a run's policy for machines that are close together in a zone."""
    return f"{PREFIX}{scope}-{zone}"


def create_id(name: str, zone: str, body: object) -> str:
    """The request id of a creation. Google refuses a known id with another body, and `lease_until`
    may differ.
    """
    return str(uuid.uuid5(_NAMESPACE, f"create {zone} {name} {body!r}"))


def end_ids(name: str, reason: EndReason) -> tuple[str, ...]:
    """The request ids of a deletion, which record why a machine was deleted: Google keeps them with
    the operation.

    Google answers a known id with the operation of the first call, so a deletion that failed takes
    the next id.
    """
    first = f"{reason.value} {name}"
    texts = [first, *(f"{first} {attempt}" for attempt in range(1, _MAX_DELETIONS))]
    return tuple(str(uuid.uuid5(_NAMESPACE, text)) for text in texts)


def _short(text: str, length: int) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest())
    return "".join(_DIGITS[number // 36**place % 36] for place in range(length))


REQUEST_LABEL, BID_LABEL = "spotctl-request", "spotctl-bid"
"""The fingerprint of the request, by which a machine of spotctl is recognized, and its bid in
nano-dollars."""

_OWN = frozenset({REQUEST_LABEL, BID_LABEL})
_KEY = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_PLAIN = re.compile(r"[a-z0-9-]")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")
_LONGEST = 63


def labels_of(tags: Mapping[str, str]) -> dict[str, str]:
    return {_checked_key(key): label_value(key, value) for key, value in tags.items()}


def tags_of(labels: Mapping[str, str], mandatory: Mapping[str, str]) -> dict[str, str]:
    """The tags of a request, without what the settings added."""
    own = {key: text for key, text in labels.items() if key not in _OWN and key not in mandatory}
    # No label has a %, so that each is one of ours.
    return {key: unquote(_ESCAPED.sub(r"%\1", text)) for key, text in own.items()}


def label_value(key: str, value: str) -> str:
    escaped = ("".join(f"_{byte:02x}" for byte in character.encode()) for character in value)
    pairs = zip(value, escaped, strict=True)
    text = "".join(own if _PLAIN.fullmatch(own) else instead for own, instead in pairs)
    if len(text) > _LONGEST:
        problem = (
            f"tag {key}={value!r} is too long for a label of Google Cloud ({_LONGEST} characters)"
        )
        raise BadRequest(problem)
    return text


def selection(tags: Mapping[str, str]) -> str:
    """A filter for resources with these tags that spotctl created."""
    conditions = [f"(labels.{REQUEST_LABEL}:*)"]
    for key, value in sorted(tags.items()):
        text = label_value(key, value)
        conditions.append(f'(labels.{_checked_key(key)} = "{text}")')
    return " ".join(conditions)


def description_of(tags: Mapping[str, str]) -> str:
    """The description of a resource that has no labels."""
    return json.dumps(dict(tags), sort_keys=True)


def described(description: str) -> dict[str, str] | None:
    """The tags in a description; None if spotctl did not write it."""
    try:
        tags = json.loads(description)
    except ValueError:
        return None
    is_ours = isinstance(tags, dict) and all(isinstance(value, str) for value in tags.values())
    return tags if is_ours else None


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key) or key in _OWN:
        cure = "use lowercase letters, digits, _ and -"
        raise BadRequest(f"tag {key!r} cannot be a label of Google Cloud; {cure}")
    return key
