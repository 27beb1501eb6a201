"""The deployment that an order becomes: its machines, and the network that they need. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from azure.mgmt.compute import models

from pricing_data.market import NO_ZONE, Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.azure.calls import COMPUTE_VERSION, NETWORK_VERSION, NETWORKS, RULES
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
_VMS, _PLACEMENT = (
    "Microsoft.Compute/virtualMachines",
    "Microsoft.Compute/proximityPlacementGroups",
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
    if request.close:
        # An equal group that exists stays as it is; it goes with the run's resource group.
        placement = models.ProximityPlacementGroup(
            location=request.market.region,
            tags=checked({**settings.tags, **group_tags(request.tags)}),
            properties=models.ProximityPlacementGroupProperties(proximity_placement_group_type="Standard"),
        )
        shared.append(_resource(_PLACEMENT, placement_name(request.market), placement))
    needs = [f"{plan.group_id}/providers/{resource['type']}/{resource['name']}" for resource in shared]
    machines = [
        _resource(_VMS, machine_name(request.token, index), _machine(request, plan, settings, index))
        | {"dependsOn": needs}
        for index in range(request.count)
    ]
    template = {"$schema": _SCHEMA, "contentVersion": "1.0.0.0", "resources": [*shared, *machines]}
    return {
        "tags": plan.order.written(settings.tags),
        "properties": {"mode": "Incremental", "template": _literal(template)},
    }


def network_name(region: str) -> str:
    """The name of a run's network in a region, and of the network's rules; every region has its own."""
    return f"spotctl-{region}"


def network_id(group_id: str, region: str) -> str:
    """The id of a run's network in a region."""
    return f"{group_id}/providers/{NETWORKS}/{network_name(region)}"


def placement_name(market: Market) -> str:
    """The name of a run's proximity placement group: a group's machines are in one zone."""
    return network_name(market.region) if market.zone == NO_ZONE else f"{network_name(market.region)}-{market.zone}"


def own_subnet(group_id: str, region: str) -> str:
    """The subnet of a run's own network."""
    return f"{network_id(group_id, region)}/subnets/{_SUBNET}"


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
    return [*made, {"type": NETWORKS, **common, "dependsOn": needs, "properties": network}]


def _resource(kind: str, name: str, model: models.VirtualMachine | models.ProximityPlacementGroup) -> Json:
    """A model of the SDK as a resource of a template."""
    return {"type": kind, "apiVersion": COMPUTE_VERSION, "name": name, **model.as_dict(exclude_readonly=True)}


def _machine(
    request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int
) -> models.VirtualMachine:
    market = request.market
    close = f"{plan.group_id}/providers/{_PLACEMENT}/{placement_name(market)}"
    reserved = models.CapacityReservationProfile(
        capacity_reservation_group=models.SubResource(id=request.reservation),
    )
    properties = models.VirtualMachineProperties(
        hardware_profile=models.HardwareProfile(vm_size=market.instance_type),
        proximity_placement_group=models.SubResource(id=close) if request.close else None,
        capacity_reservation=reserved if request.reservation else None,
        storage_profile=models.StorageProfile(
            image_reference=models.ImageReference(**plan.image), os_disk=_disk(request, plan, settings, index)
        ),
        os_profile=_system(request, plan, index),
        network_profile=_connection(request, plan, settings, index),
        diagnostics_profile=models.DiagnosticsProfile(boot_diagnostics=models.BootDiagnostics(enabled=True)),
        **_purchase(request.bid),
    )
    return models.VirtualMachine(
        location=market.region,
        tags=plan.order.written(settings.tags, index),
        zones=None if market.zone == NO_ZONE else [zone_of(market)],
        identity=models.VirtualMachineIdentity(
            type="UserAssigned", user_assigned_identities={plan.identity: models.UserAssignedIdentitiesValue()}
        ),
        properties=properties,
    )


def _purchase(bid: int | None) -> dict[str, Any]:
    """How a machine is paid for. An eviction deletes a spot machine."""
    if bid is None:
        return {"priority": "Regular"}
    most = bid // _NANOS_OF_PRICE * _NANOS_OF_PRICE / NANOS_PER_DOLLAR
    if not most:
        raise BadRequest(f"a bid of {bid} nano-dollars an hour is below 0.00001 USD, the lowest that Azure takes")
    return {
        "priority": "Spot",
        "eviction_policy": "Delete",
        "billing_profile": models.BillingProfile(max_price=most),
    }


def _disk(request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int) -> models.OSDisk:
    keys = settings.disk_encryption_set
    return models.OSDisk(
        name=f"{machine_name(request.token, index)}-disk",
        create_option="FromImage",
        delete_option="Delete",
        managed_disk=models.ManagedDiskParameters(
            storage_account_type=settings.disk_type,
            disk_encryption_set=models.DiskEncryptionSetParameters(id=keys) if keys else None,
        ),
        disk_size_gb=disk_gib_of(plan.image, request.disk_gib),
    )


def _system(request: MachineRequest, plan: DeploymentPlan, index: int) -> models.OSProfile:
    key = models.SshPublicKey(path=f"/home/{ADMIN}/.ssh/authorized_keys", key_data=plan.admin_key)
    return models.OSProfile(
        computer_name=machine_name(request.token, index),
        admin_username=ADMIN,
        custom_data=base64.b64encode(plan.start_up).decode(),
        linux_configuration=models.LinuxConfiguration(
            disable_password_authentication=True, ssh=models.SshConfiguration(public_keys=[key])
        ),
    )


def _connection(
    request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int
) -> models.NetworkProfile:
    """The interface and the address that are made, and deleted, with the machine."""
    name, own = machine_name(request.token, index), own_subnet(plan.group_id, request.market.region)
    subnet = request.network or settings.subnet
    tags = checked({**settings.tags, **group_tags(request.tags)})
    public = models.VirtualMachinePublicIPAddressConfiguration(
        name=f"{name}-address",
        sku=models.PublicIPAddressSku(name="Standard", tier="Regional"),
        tags=tags,
        properties=models.VirtualMachinePublicIPAddressConfigurationProperties(
            delete_option="Delete", public_ip_allocation_method="Static"
        ),
    )
    address = models.VirtualMachineNetworkInterfaceIPConfigurationProperties(
        primary=True,
        subnet=models.SubResource(id=subnet or own),
        public_ip_address_configuration=public if settings.public_ip else None,
    )
    rules = settings.security_group if subnet else None
    interface = models.VirtualMachineNetworkInterfaceConfigurationProperties(
        primary=True,
        delete_option="Delete",
        ip_configurations=[models.VirtualMachineNetworkInterfaceIPConfiguration(name="first", properties=address)],
        network_security_group=models.SubResource(id=rules) if rules else None,
    )
    made = models.VirtualMachineNetworkInterfaceConfiguration(name=f"{name}-nic", tags=tags, properties=interface)
    return models.NetworkProfile(network_api_version=_INTERFACES_VERSION, network_interface_configurations=[made])


def _literal(value: Any) -> Any:  # noqa: ANN401  # JSON is any value
    """A template with all texts escaped: Azure would evaluate a text in brackets as an expression."""
    if isinstance(value, Mapping):
        return {name: _literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    bracketed = isinstance(value, str) and value.startswith("[") and value.endswith("]")
    return f"[{value}" if bracketed else value
