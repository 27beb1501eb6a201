"""The deployment that an order becomes: its machines, and the network that they need. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pricing_data.market import NO_ZONE, Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.azure.calls import COMPUTE_VERSION, NETWORK_VERSION
from spotctl.clouds.azure.names import AzureOrder, checked, group_tags, machine_name, zone_of
from spotctl.clouds.azure.settings import AzureMachineSettings
from spotctl.clouds.azure.sizes import disk_gib_of
from spotctl.clouds.provider import MachineRequest
from spotctl.home.errors import BadRequest

Json = dict[str, Any]

ADMIN: Final = "azureuser"
"""The account that Azure insists on. The private half of its key is thrown away, so no one can log in to it."""
_NANOS_OF_PRICE: Final = 10_000
"""Azure takes maximum prices with five decimals; bids are rounded down, so that no bid is exceeded."""
_INTERFACES_VERSION: Final = "2022-11-01"
_SCHEMA: Final = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
_ADDRESSES: Final = "10.47.0.0/16"
_SUBNET: Final = "machines"
_VMS, _PLACEMENT, _NETWORKS, RULES = (
    "Microsoft.Compute/virtualMachines",
    "Microsoft.Compute/proximityPlacementGroups",
    "Microsoft.Network/virtualNetworks",
    "Microsoft.Network/networkSecurityGroups",
)


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """The inputs of a deployment. `own_network`: it also makes the run's network."""

    group_id: str
    order: AzureOrder
    image: Mapping[str, str]
    identity: str
    start_up: bytes
    admin_key: str
    own_network: bool


def deployment(request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings) -> Json:
    """The body of the deployment."""
    shared = _network(request, plan, settings) if plan.own_network else []
    # An equal group that exists stays as it is; it goes with the run's resource group.
    shared += [_placement(request, settings)] if request.close else []
    needs = [f"{plan.group_id}/providers/{resource['type']}/{resource['name']}" for resource in shared]
    machines = [_machine(request, plan, settings, index, needs) for index in range(request.count)]
    template = {"$schema": _SCHEMA, "contentVersion": "1.0.0.0", "resources": [*shared, *machines]}
    return {
        "tags": plan.order.written(settings.tags),
        "properties": {"mode": "Incremental", "template": _literal(template)},
    }


def network_name(region: str) -> str:
    """The name of a run's network in a region, and of the network's rules; every region has its own."""
    return f"spotctl-{region}"


def placement_name(market: Market) -> str:
    """The name of a run's proximity placement group: a group's machines are in one zone."""
    return network_name(market.region) if market.zone == NO_ZONE else f"{network_name(market.region)}-{market.zone}"


def own_subnet(group_id: str, region: str) -> str:
    """The subnet of a run's own network."""
    return f"{group_id}/providers/{_NETWORKS}/{network_name(region)}/subnets/{_SUBNET}"


def ssh_rules(ssh_from: Sequence[str]) -> Json:
    """The rules of a run's network. Azure's default ones admit the machines of the network, and no one else."""
    ssh = {
        "priority": 100,
        "direction": "Inbound",
        "access": "Allow",
        "protocol": "Tcp",
        "sourceAddressPrefixes": list(ssh_from),
        "sourcePortRange": "*",
        "destinationAddressPrefix": "*",
        "destinationPortRange": "22",
    }
    return {"securityRules": [{"name": "ssh", "properties": ssh}] if ssh_from else []}


def _network(request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings) -> list[Json]:
    region = request.market.region
    name, tags = network_name(region), checked({**settings.tags, **group_tags(request.tags)})
    common = {"apiVersion": NETWORK_VERSION, "name": name, "location": region, "tags": tags}
    own = f"{plan.group_id}/providers/{RULES}/{name}"
    rules = ssh_rules(settings.ssh_from)
    subnet = {"addressPrefix": _ADDRESSES, "networkSecurityGroup": {"id": settings.security_group or own}}
    network = {
        "addressSpace": {"addressPrefixes": [_ADDRESSES]},
        "subnets": [{"name": _SUBNET, "properties": subnet}],
    }
    made = [] if settings.security_group else [{"type": RULES, **common, "properties": rules}]
    needs = [] if settings.security_group else [own]
    return [*made, {"type": _NETWORKS, **common, "dependsOn": needs, "properties": network}]


def _placement(request: MachineRequest, settings: AzureMachineSettings) -> Json:
    return {
        "type": _PLACEMENT,
        "apiVersion": COMPUTE_VERSION,
        "name": placement_name(request.market),
        "location": request.market.region,
        "tags": checked({**settings.tags, **group_tags(request.tags)}),
        "properties": {"proximityPlacementGroupType": "Standard"},
    }


def _machine(
    request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int, needs: list[str]
) -> Json:
    market = request.market
    close = f"{plan.group_id}/providers/{_PLACEMENT}/{placement_name(market)}"
    return {
        "type": _VMS,
        "apiVersion": COMPUTE_VERSION,
        "name": machine_name(request.token, index),
        "location": market.region,
        "tags": plan.order.written(settings.tags, index),
        "dependsOn": needs,
        "identity": {"type": "UserAssigned", "userAssignedIdentities": {plan.identity: {}}},
        **({} if market.zone == NO_ZONE else {"zones": [zone_of(market)]}),
        "properties": {
            "hardwareProfile": {"vmSize": market.instance_type},
            **_purchase(request.bid),
            **({"proximityPlacementGroup": {"id": close}} if request.close else {}),
            **_reserved(request.reservation),
            "storageProfile": {"imageReference": dict(plan.image), "osDisk": _disk(request, plan, settings, index)},
            "osProfile": _system(request, plan, index),
            "networkProfile": _connection(request, plan, settings, index),
            "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        },
    }


def _purchase(bid: int | None) -> Json:
    if bid is None:
        return {"priority": "Regular"}
    most = bid // _NANOS_OF_PRICE * _NANOS_OF_PRICE / NANOS_PER_DOLLAR
    if not most:
        raise BadRequest(f"a bid of {bid} nano-dollars an hour is below 0.00001 USD, the lowest that Azure takes")
    return {"priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": most}}


def _reserved(group: str) -> Json:
    """The group of capacity reservations from which a machine is taken."""
    return {"capacityReservation": {"capacityReservationGroup": {"id": group}}} if group else {}


def _disk(request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int) -> Json:
    size = disk_gib_of(plan.image, request.disk_gib)
    managed: Json = {"storageAccountType": settings.disk_type}
    if settings.disk_encryption_set:
        managed["diskEncryptionSet"] = {"id": settings.disk_encryption_set}
    return {
        "name": f"{machine_name(request.token, index)}-disk",
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "managedDisk": managed,
        **({} if size is None else {"diskSizeGB": size}),
    }


def _system(request: MachineRequest, plan: DeploymentPlan, index: int) -> Json:
    path = f"/home/{ADMIN}/.ssh/authorized_keys"
    return {
        "computerName": machine_name(request.token, index),
        "adminUsername": ADMIN,
        "customData": base64.b64encode(plan.start_up).decode(),
        "linuxConfiguration": {
            "disablePasswordAuthentication": True,
            "ssh": {"publicKeys": [{"path": path, "keyData": plan.admin_key}]},
        },
    }


def _connection(request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int) -> Json:
    name, region = machine_name(request.token, index), request.market.region
    subnet = request.network or settings.subnet
    tags = checked({**settings.tags, **group_tags(request.tags)})
    address: Json = {"primary": True, "subnet": {"id": subnet or own_subnet(plan.group_id, region)}}
    if settings.public_ip:
        address["publicIPAddressConfiguration"] = {
            "name": f"{name}-address",
            "sku": {"name": "Standard", "tier": "Regional"},
            "tags": tags,
            "properties": {"deleteOption": "Delete", "publicIPAllocationMethod": "Static"},
        }
    interface: Json = {
        "primary": True,
        "deleteOption": "Delete",
        "ipConfigurations": [{"name": "first", "properties": address}],
    }
    if subnet and settings.security_group:
        interface["networkSecurityGroup"] = {"id": settings.security_group}
    return {
        "networkApiVersion": _INTERFACES_VERSION,
        "networkInterfaceConfigurations": [{"name": f"{name}-nic", "tags": tags, "properties": interface}],
    }


def _literal(value: Any) -> Any:  # noqa: ANN401  # JSON is any value
    """A template with all texts escaped: Azure would evaluate a text in brackets as an expression."""
    if isinstance(value, Mapping):
        return {name: _literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    bracketed = isinstance(value, str) and value.startswith("[") and value.endswith("]")
    return f"[{value}" if bracketed else value
