"""The bodies of requests that create machines and firewall rules, with the field names of the SDK's messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pricing_data.accelerators import NVIDIA_OLD, driver_of
from pricing_data.market import Market
from spotctl.clouds.gcp.gpus import gpu_name, split_type
from spotctl.clouds.gcp.labels import BID_LABEL, REQUEST_LABEL, description_of, labels_of
from spotctl.clouds.gcp.names import network_tag, policy_path, region_of
from spotctl.clouds.gcp.settings import GcpMachineSettings
from spotctl.clouds.provider import MachineRequest, fingerprint
from spotctl.clouds.remote.prices import HeldDisk
from spotctl.home.errors import BadRequest

_UBUNTU = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-{}"
_WITH_DRIVERS = "projects/ubuntu-os-accelerator-images/global/images/family/ubuntu-accelerator-2404-{}-with-nvidia-580"
"""Ubuntu, because its cloud-init runs `user-data`; 24.04, because spotctl needs Python 3.11."""

_SMALLEST_WITH_DRIVERS_GIB = 50
# Series that have no persistent disks, only Hyperdisk:
# https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support
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
) -> dict[str, Any]:
    """A machine of a request. `place` is its zone and name."""
    zone, name = place
    labels = {**settings.labels, **labels_of(request.tags), REQUEST_LABEL: fingerprint(request)}
    if request.bid is not None:
        labels[BID_LABEL] = str(request.bid)
    body: dict[str, Any] = {
        "name": name,
        "machine_type": f"zones/{zone}/machineTypes/{hardware.type}",
        "labels": labels,
        "scheduling": _scheduling(request, settings, hardware, now),
        "disks": [_disk(request, settings, hardware, zone, labels)],
        "network_interfaces": [_interface(request, settings, zone)],
        "service_accounts": [
            {"email": request.identity or settings.service_account or "default", "scopes": _SCOPES},
        ],
        "metadata": {
            "items": [
                {"key": "user-data", "value": start_up},
                {"key": "block-project-ssh-keys", "value": "TRUE"},
            ]
        },
    }
    body["tags"] = {"items": list(settings.network_tags) or [network_tag(_scope(name))]}
    if request.close:
        body["resource_policies"] = [policy_path(_scope(name), zone)]
    if request.reservation:
        body["reservation_affinity"] = _only_from(request.reservation)
    if hardware.attached is not None:
        gpu, count = hardware.attached
        kind = f"zones/{zone}/acceleratorTypes/{gpu}"
        body["guest_accelerators"] = [{"accelerator_type": kind, "accelerator_count": count}]
    return body


def _only_from(reservation: str) -> dict[str, object]:
    """The affinity of a machine that is taken from a reservation, or not created."""
    return {
        "consume_reservation_type": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [reservation],
    }


def _scope(name: str) -> str:
    return name.split("-")[-4]


def _scheduling(
    request: MachineRequest, settings: GcpMachineSettings, hardware: GcpHardware, now: int
) -> dict[str, object]:
    lease_seconds = max(request.lease_until - now, 0) // 1_000_000
    longest = min(max(settings.longest_hours * _HOUR_SECONDS, lease_seconds + _HOUR_SECONDS), _LONGEST_SECONDS)
    is_spot = request.bid is not None
    return {
        "provisioning_model": "SPOT" if is_spot else "STANDARD",
        "instance_termination_action": "DELETE",
        # Spot machines, machines with GPUs and those close together cannot be moved to another host while they run.
        "on_host_maintenance": "TERMINATE" if is_spot or hardware.has_gpus or request.close else "MIGRATE",
        "automatic_restart": False,
        "max_run_duration": {"seconds": longest},
    }


def _disk(
    request: MachineRequest, settings: GcpMachineSettings, hardware: GcpHardware, zone: str, labels: Mapping[str, str]
) -> dict[str, object]:
    smallest = _SMALLEST_WITH_DRIVERS_GIB if hardware.has_gpus else 10
    disk: dict[str, object] = {
        "boot": True,
        "auto_delete": True,
        "initialize_params": {
            "source_image": request.image or settings.image or _image(hardware),
            "disk_size_gb": max(request.disk_gib or settings.disk_gib, smallest),
            "disk_type": f"zones/{zone}/diskTypes/{_disk_type(hardware.type)}",
            "labels": dict(labels),
        },
    }
    if settings.kms_key:
        disk["disk_encryption_key"] = {"kms_key_name": settings.kms_key}
    return disk


def held_disk(market: Market, wanted: int | None, settings: GcpMachineSettings) -> HeldDisk:
    """The disk of a machine of a market, counted with the size that an image with drivers needs."""
    name, _ = split_type(market.instance_type)
    gib = max(wanted or settings.disk_gib, _SMALLEST_WITH_DRIVERS_GIB)
    return HeldDisk(_disk_type(name), gib, _disk_type(name))


def _image(hardware: GcpHardware) -> str:
    if hardware.attached is not None and driver_of(gpu_name(hardware.attached[0])) == NVIDIA_OLD:
        raise BadRequest(
            f"{hardware.type}: Google's image has no driver for its {gpu_name(hardware.attached[0])};"
            " name one that has (image: {gcp: ...})"
        )
    return (_WITH_DRIVERS if hardware.has_gpus else _UBUNTU).format("arm64" if hardware.is_arm else "amd64")


def _disk_type(machine_type: str) -> str:
    series, kind = machine_type.split("-", maxsplit=1)[0], "-".join(machine_type.split("-")[:2])
    return "hyperdisk-balanced" if {series, kind} & _HYPERDISK_ONLY else "pd-balanced"


def subnetwork_of(request: MachineRequest, settings: GcpMachineSettings, zone: str) -> str | None:
    """The path of the subnetwork of a request's machines; None if a network is chosen rather than a subnetwork."""
    if request.network is not None:
        return request.network if "subnetworks/" in request.network else None
    chosen = settings.subnetwork
    return chosen if chosen is None or "/" in chosen else f"regions/{region_of(zone)}/subnetworks/{chosen}"


def _interface(request: MachineRequest, settings: GcpMachineSettings, zone: str) -> dict[str, object]:
    subnetwork = subnetwork_of(request, settings, zone)
    interface: dict[str, object] = (
        {"subnetwork": subnetwork} if subnetwork else {"network": network_path(request.network or settings.network)}
    )
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
    """The rules of a run: its machines may talk to each other, and ssh is admitted from the ranges in the settings.

    Rules have no labels, so their description identifies the run.
    """
    tag = network_tag(scope)
    common: dict[str, Any] = {"network": network_path(network), "direction": "INGRESS", "target_tags": [tag]}
    described = {"description": description_of(tags), **common}
    inside = {"name": f"{tag}-inside", **described, "source_tags": [tag], "allowed": [{"I_p_protocol": "all"}]}
    if not ssh_from:
        return (inside,)
    ssh = {"I_p_protocol": "tcp", "ports": ["22"]}
    return inside, {"name": f"{tag}{SSH_RULE}", **described, "source_ranges": list(ssh_from), "allowed": [ssh]}
