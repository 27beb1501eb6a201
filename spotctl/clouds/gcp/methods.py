"""The methods of Compute Engine that spotctl uses to rent machines, each with the permissions that it needs.

`spotctl doctor --policy gcp` prints these permissions. Source of the permissions: the "IAM Permissions" section of each
method's page in the Compute Engine API reference (https://cloud.google.com/compute/docs/reference/rest/v1).
"""

from __future__ import annotations

from typing import NamedTuple


class Method(NamedTuple):
    """A method of a service's client in the SDK, and the permissions that it needs."""

    service: str
    name: str
    permissions: tuple[str, ...]


INSERT_INSTANCE = Method(
    "Instances",
    "insert_unary",
    (
        "compute.instances.create",
        "compute.disks.create",
        "compute.disks.setLabels",
        "compute.images.useReadOnly",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setServiceAccount",
        "compute.instances.setTags",
        "compute.networks.use",
        "compute.resourcePolicies.use",
        "compute.subnetworks.use",
        "compute.subnetworks.useExternalIp",
    ),
)
GET_INSTANCE = Method("Instances", "get", ("compute.instances.get",))
LIST_INSTANCES = Method("Instances", "aggregated_list", ("compute.instances.list",))
DELETE_INSTANCE = Method("Instances", "delete_unary", ("compute.instances.delete",))
READ_CONSOLE = Method("Instances", "get_serial_port_output", ("compute.instances.getSerialPortOutput",))
WAIT_IN_ZONE = Method("ZoneOperations", "wait", ("compute.zoneOperations.get",))
WAIT_IN_REGION = Method("RegionOperations", "wait", ("compute.regionOperations.get",))
WAIT_GLOBALLY = Method("GlobalOperations", "wait", ("compute.globalOperations.get",))
LIST_OPERATIONS = Method(
    "GlobalOperations", "aggregated_list", ("compute.globalOperations.list", "compute.zoneOperations.list")
)
GET_PROJECT = Method("Projects", "get", ("compute.projects.get",))
GET_REGION = Method("Regions", "get", ("compute.regions.get",))
GET_MACHINE_TYPE = Method("MachineTypes", "get", ("compute.machineTypes.get",))
GET_SUBNETWORK = Method("Subnetworks", "get", ("compute.subnetworks.get",))
LIST_FIREWALLS = Method("Firewalls", "list", ("compute.firewalls.list",))
INSERT_FIREWALL = Method("Firewalls", "insert_unary", ("compute.firewalls.create", "compute.networks.updatePolicy"))
PATCH_FIREWALL = Method("Firewalls", "patch_unary", ("compute.firewalls.update", "compute.networks.updatePolicy"))
DELETE_FIREWALL = Method("Firewalls", "delete_unary", ("compute.firewalls.delete", "compute.networks.updatePolicy"))
LIST_POLICIES = Method("ResourcePolicies", "aggregated_list", ("compute.resourcePolicies.list",))
INSERT_POLICY = Method("ResourcePolicies", "insert_unary", ("compute.resourcePolicies.create",))
DELETE_POLICY = Method("ResourcePolicies", "delete_unary", ("compute.resourcePolicies.delete",))
LIST_DISKS = Method("Disks", "aggregated_list", ("compute.disks.list",))
DELETE_DISK = Method("Disks", "delete_unary", ("compute.disks.delete",))
LIST_ADDRESSES = Method("Addresses", "aggregated_list", ("compute.addresses.list",))
DELETE_ADDRESS = Method("Addresses", "delete_unary", ("compute.addresses.delete",))

METHODS = tuple(value for value in globals().values() if isinstance(value, Method))

GET_IMAGE = Method("Images", "get", ("compute.images.get",))
GET_IMAGE_OF_FAMILY = Method("Images", "get_from_family", ("compute.images.getFromFamily",))
SIMULATE_EVICTION = Method(
    "Instances", "simulate_maintenance_event_unary", ("compute.instances.simulateMaintenanceEvent",)
)
TRIAL_PERMISSIONS = tuple(
    sorted({name for method in (GET_IMAGE, GET_IMAGE_OF_FAMILY, SIMULATE_EVICTION) for name in method.permissions})
)
"""Needed by `spotctl try --full`, besides what the launcher needs."""

PERMISSIONS = tuple(sorted({permission for method in METHODS for permission in method.permissions}))
"""Needed by the launcher. A machine's service account needs compute.instances.delete, with which the machine deletes
itself when its lease ends."""
