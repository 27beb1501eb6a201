"""What Compute Engine refuses in a request, according to the SDK's own messages.

Names, types and enumerations of all fields come from the descriptors of `compute_v1`, so the author
of a provider does not decide what this server accepts. Only what the descriptors do not say is
written down here: the fields that a body must have, and rules between fields, each with its source.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from google.cloud import compute_v1

from tests.servers.gcp import Refused, understood
from tests.servers.loopback import Request

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY, _LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")
_LONGEST_METADATA = 256 * 1024
_RUN_SECONDS = range(30, 120 * 24 * 3600 + 1)

# "Required" in the API's reference, which the SDK does not carry over:
# https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert and .../firewalls/insert
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "Instance": ("name", "machine_type", "disks", "network_interfaces"),
    "Firewall": ("name",),
}


# The SDK's messages have no common type.
def checked(message: Any, request: Request, path: Mapping[str, str], body: str = "") -> Any:  # noqa: ANN401
    """The request as the SDK's message. Refused: it has an unknown, missing or wrong field."""
    parsed = understood(message, request, path, body)
    for one in message.pb(parsed).DESCRIPTOR.fields:
        if not one.has_presence and not one.is_repeated and not getattr(parsed, one.name):
            raise Refused(400, f"Required field '{one.json_name}' not specified", "required")
    if body:
        resource = getattr(parsed, body)
        for name in _REQUIRED.get(type(resource).__name__, ()):
            if not getattr(resource, name):
                raise Refused(
                    400,
                    f"Invalid value for field 'resource.{name}': ''. It must be given.",
                    "required",
                )
    for where, name, value in _outside_enumerations(parsed):
        raise Refused(400, f"Invalid value for field '{where}.{name}': '{value}'", "invalid")
    request_id = getattr(parsed, "request_id", "")
    if request_id:
        _check_request_id(request_id)
    return parsed


def digest(message: Any) -> str:  # noqa: ANN401  # the SDK's messages have no common type
    """Stands for all of a request, its method included."""
    text = type(message).to_json(message, sort_keys=True)
    return hashlib.sha256(f"{type(message).__name__} {text}".encode()).hexdigest()


# The SDK's messages have no common type.
def check_instance(instance: Any, zone: str) -> None:  # noqa: ANN401
    """Rules between the fields of a machine."""
    check_name(instance.name)
    check_labels(instance.labels)
    if not re.fullmatch(rf"(.*/)?zones/{zone}/machineTypes/[a-z0-9-]+", instance.machine_type):
        raise _invalid("resource.machineType", instance.machine_type)
    _check_scheduling(instance.scheduling)
    series = instance.machine_type.rpartition("/")[2].partition("-")[0]
    if instance.scheduling.provisioning_model == "SPOT" and series in _NOT_SOLD_AS_SPOT:
        raise Refused(400, f"Spot VM not supported for machine type {series}", "badRequest")
    for disk in instance.disks:
        check_labels(disk.initialize_params.labels)
        if disk.boot and not (disk.initialize_params.source_image or disk.source):
            raise _invalid("resource.disks[0].initializeParams.sourceImage", "")
        _check_disk_type(
            instance.machine_type.rpartition("/")[2],
            disk.initialize_params.disk_type.rpartition("/")[2],
        )
    if not any(disk.boot for disk in instance.disks):
        raise _invalid("resource.disks", "no boot disk")
    keys = [item.key for item in instance.metadata.items]
    if len(keys) != len(set(keys)):
        raise _invalid("resource.metadata.items", "a key is given twice")
    if any(len(item.value) > _LONGEST_METADATA for item in instance.metadata.items):
        raise _invalid("resource.metadata.items", "a value is too long")
    for account in instance.service_accounts:
        if not account.scopes:
            raise _invalid("resource.serviceAccounts[0].scopes", "[]")


# https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support and
# .../disks#machine_series_support
_NO_PERSISTENT_DISK = (
    "a3-ultragpu",
    "a4",
    "a4x",
    "c4",
    "c4a",
    "c4d",
    "g4",
    "h4d",
    "m4",
    "n4",
    "n4a",
    "n4d",
    "x4",
)
# https://cloud.google.com/compute/docs/instances/spot
_NOT_SOLD_AS_SPOT = ("m2", "m3", "x4")
_NO_HYPERDISK_BALANCED = (
    "a2",
    "c2",
    "c2d",
    "e2",
    "f1",
    "g1",
    "g2",
    "n1",
    "n2",
    "n2d",
    "t2a",
    "t2d",
)


def _check_disk_type(machine: str, disk: str) -> None:
    """Refuses a disk that the machine's series does not have."""
    series = {machine.partition("-")[0], "-".join(machine.split("-")[:2])}
    without = _NO_PERSISTENT_DISK if disk.startswith("pd-") or not disk else _NO_HYPERDISK_BALANCED
    # Bare-metal types have Hyperdisk only.
    bare = machine.endswith("-metal") and without is _NO_PERSISTENT_DISK
    if series & set(without) or bare:
        raise Refused(
            400,
            f"[{disk}] features are not compatible for creating instance of {machine}.",
            "badRequest",
        )


def check_name(name: str) -> None:
    """https://cloud.google.com/compute/docs/naming-resources"""
    if not _NAME.fullmatch(name):
        raise _invalid("resource.name", name)


def check_labels(labels: Mapping[str, str]) -> None:
    """https://cloud.google.com/compute/docs/labeling-resources#requirements"""
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise _invalid("resource.labels", f"{key}={value}")
    if len(labels) > 64:
        raise _invalid("resource.labels", "more than 64 labels")


# The SDK's messages have no common type.
def _check_scheduling(scheduling: Any) -> None:  # noqa: ANN401
    """https://cloud.google.com/compute/docs/instances/create-use-spot and .../limit-vm-runtime"""
    is_spot, limit = scheduling.provisioning_model == "SPOT", scheduling.max_run_duration.seconds
    if is_spot and scheduling.automatic_restart:
        raise _invalid("resource.scheduling.automaticRestart", "true on a spot machine")
    if is_spot and scheduling.on_host_maintenance != "TERMINATE":
        raise _invalid(
            "resource.scheduling.onHostMaintenance",
            f"{scheduling.on_host_maintenance} on a spot machine",
        )
    if scheduling.instance_termination_action and not (is_spot or limit):
        raise _invalid(
            "resource.scheduling.instanceTerminationAction", "neither spot nor limited in time"
        )
    if limit and limit not in _RUN_SECONDS:
        raise _invalid("resource.scheduling.maxRunDuration", str(limit))
    if limit and not scheduling.instance_termination_action:
        raise _invalid(
            "resource.scheduling.instanceTerminationAction", "not given with maxRunDuration"
        )


def _check_request_id(text: str) -> None:
    try:
        number = uuid.UUID(text).int
    except ValueError:
        number = 0
    if not number:
        raise _invalid("requestId", text)


# The SDK's messages have no common type.
def _outside_enumerations(message: Any, where: str = "resource") -> Iterator[tuple[str, str, str]]:  # noqa: ANN401
    """The fields whose value is not among those that the SDK lists for it: their place, name and
    value.
    """
    kind = type(message)
    for one in kind.pb(message).DESCRIPTOR.fields:
        value = getattr(message, one.name)
        if one.message_type is not None:
            if one.message_type.GetOptions().map_entry:
                continue
            parts = value if one.is_repeated else [value] if one.name in message else []
            for part in parts:
                yield from _outside_enumerations(part, f"{where}.{one.json_name}")
        elif (listed := getattr(kind, _camel(one.name), None)) is not None and hasattr(
            listed, "__members__"
        ):
            values = value if one.is_repeated else [value]
            yield from (
                (where, one.json_name, text)
                for text in values
                if text and text not in listed.__members__
            )


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _invalid(field: str, value: str) -> Refused:
    return Refused(400, f"Invalid value for field '{field}': '{value}'", "invalid")


assert compute_v1.Scheduling.ProvisioningModel.__members__, (
    "the SDK lists the values of enumerations"
)
