"""Orders of machines on Azure: the deployment that an order becomes, and the names and tags of all
that it makes. Pure.

Names follow from the request, so a repeated request finds the first. A run has one resource group.
The machines that are bought together are one deployment in that, named after the token: Azure keeps
deployments after their machines are gone, so they record which tokens were served, and with what.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from azure.mgmt.compute import models

from pricing_data.errors import BadMarket
from pricing_data.market import NO_ZONE, Market
from pricing_data.units import NANOS_PER_DOLLAR
from spotctl.clouds.azure.calls import COMPUTE_VERSION, NETWORK_VERSION, NETWORKS, RULES
from spotctl.clouds.azure.cloud import AzureMachineSettings
from spotctl.clouds.provider import MachineRequest, run_tags
from spotctl.home.errors import BadRequest
from spotctl.home.installation import RUN_TAG

Json = dict[str, Any]

ADMIN: Final = "azureuser"
"""The account that Azure insists on. The private half of its key is thrown away, so no one can log
in to it."""
_NANOS_OF_PRICE: Final = 10_000
"""Azure takes maximum prices with five decimals; bids are rounded down, so that no bid is
exceeded."""
_INTERFACES_VERSION: Final = "2022-11-01"
_OFFER_WITH_DRIVERS: Final = "ubuntu-hpc"
UBUNTU_GIB, USUAL_DISK_GIB = 30, 128
"""The disk of Ubuntu's image, and that of machines with GPUs, where the image with drivers leaves
little free on its own."""
_WITH_GPUS = re.compile(r"standard_n", re.IGNORECASE)
_SCHEMA: Final = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
_ADDRESSES: Final = "10.47.0.0/16"
_SUBNET: Final = "machines"
_VMS, _PLACEMENT = (
    "Microsoft.Compute/virtualMachines",
    "Microsoft.Compute/proximityPlacementGroups",
)


@dataclass(frozen=True, slots=True)
class DeploymentPlan:
    """The inputs of a deployment. `own_network`: it also makes the run's network. `least_gib` is the
    size of an image of the user's own, 0 if it is not known."""

    group_id: str
    order: AzureOrder
    image: Mapping[str, str]
    identity: str
    start_up: bytes
    admin_key: str
    own_network: bool
    least_gib: int = 0


def deployment(
    request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings
) -> Json:
    """The body of the deployment."""
    shared = _network(request, plan, settings) if plan.own_network else []
    if request.close:
        # An equal group that exists stays as it is; it goes with the run's resource group.
        kind = models.ProximityPlacementGroupProperties(proximity_placement_group_type="Standard")
        tags = checked({**settings.tags, **run_tags(request.tags)})
        region = request.market.region
        placement = models.ProximityPlacementGroup(location=region, tags=tags, properties=kind)
        shared.append(_resource(_PLACEMENT, placement_name(request.market), placement))

    above = f"{plan.group_id}/providers"
    needs = [f"{above}/{resource['type']}/{resource['name']}" for resource in shared]
    machines = []
    for index in range(request.count):
        name = machine_name(request.token, index)
        machine = _resource(_VMS, name, _machine(request, plan, settings, index))
        machines.append(machine | {"dependsOn": needs})

    made = [*shared, *machines]
    template = {"$schema": _SCHEMA, "contentVersion": "1.0.0.0", "resources": made}
    properties = {"mode": "Incremental", "template": _literal(template)}
    return {"tags": plan.order.written(settings.tags), "properties": properties}


def network_name(region: str) -> str:
    """The name of a run's network in a region, and of the network's rules; every region has its
    own.
    """
    return f"spotctl-{region}"


def network_id(group_id: str, region: str) -> str:
    """The id of a run's network in a region."""
    return f"{group_id}/providers/{NETWORKS}/{network_name(region)}"


def placement_name(market: Market) -> str:
    """The name of a run's proximity placement group: a group's machines are in one zone."""
    return (
        network_name(market.region)
        if market.zone == NO_ZONE
        else f"{network_name(market.region)}-{market.zone}"
    )


def ssh_rules(ssh_from: Sequence[str]) -> Json:
    """The rules of a run's network. Azure's default ones admit the machines of the network, and no
    one else.
    """
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


def _network(
    request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings
) -> list[Json]:
    region = request.market.region
    name, tags = network_name(region), checked({**settings.tags, **run_tags(request.tags)})
    common = {"apiVersion": NETWORK_VERSION, "name": name, "location": region, "tags": tags}
    own = f"{plan.group_id}/providers/{RULES}/{name}"
    rules = ssh_rules(settings.ssh_from)
    subnet = {
        "addressPrefix": _ADDRESSES,
        "networkSecurityGroup": {"id": settings.security_group or own},
    }
    network = {
        "addressSpace": {"addressPrefixes": [_ADDRESSES]},
        "subnets": [{"name": _SUBNET, "properties": subnet}],
    }
    made = [] if settings.security_group else [{"type": RULES, **common, "properties": rules}]
    needs = [] if settings.security_group else [own]

    return [*made, {"type": NETWORKS, **common, "dependsOn": needs, "properties": network}]


def _resource(
    kind: str, name: str, model: models.VirtualMachine | models.ProximityPlacementGroup
) -> Json:
    """A model of the SDK as a resource of a template."""
    return {
        "type": kind,
        "apiVersion": COMPUTE_VERSION,
        "name": name,
        **model.as_dict(exclude_readonly=True),
    }


def _machine(
    request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int
) -> models.VirtualMachine:
    market = request.market
    path = f"/home/{ADMIN}/.ssh/authorized_keys"
    key = models.SshPublicKey(path=path, key_data=plan.admin_key)
    ssh = models.SshConfiguration(public_keys=[key])
    linux = models.LinuxConfiguration(disable_password_authentication=True, ssh=ssh)
    start_up = base64.b64encode(plan.start_up).decode()
    system = models.OSProfile(
        computer_name=machine_name(request.token, index),
        admin_username=ADMIN,
        custom_data=start_up,
        linux_configuration=linux,
    )

    near: models.SubResource | None = None
    reserved: models.CapacityReservationProfile | None = None
    if request.close:
        placement = f"{plan.group_id}/providers/{_PLACEMENT}/{placement_name(market)}"
        near = models.SubResource(id=placement)
    if request.reservation:
        group = models.SubResource(id=request.reservation)
        reserved = models.CapacityReservationProfile(capacity_reservation_group=group)

    image = models.ImageReference(**plan.image)
    disk = _disk(request, plan, settings, index)
    storage = models.StorageProfile(image_reference=image, os_disk=disk)
    console = models.BootDiagnostics(enabled=True)
    diagnostics = models.DiagnosticsProfile(boot_diagnostics=console)
    hardware = models.HardwareProfile(vm_size=market.instance_type)
    connection = _connection(request, plan, settings, index)
    properties = models.VirtualMachineProperties(
        hardware_profile=hardware,
        proximity_placement_group=near,
        capacity_reservation=reserved,
        storage_profile=storage,
        os_profile=system,
        network_profile=connection,
        diagnostics_profile=diagnostics,
        **_purchase(request.bid),
    )

    identities = {plan.identity: models.UserAssignedIdentitiesValue()}
    identity = models.VirtualMachineIdentity(
        type="UserAssigned", user_assigned_identities=identities
    )
    zones = None if market.zone == NO_ZONE else [zone_of(market)]
    tags = plan.order.written(settings.tags, index)
    return models.VirtualMachine(
        location=market.region, tags=tags, zones=zones, identity=identity, properties=properties
    )


def _purchase(bid: int | None) -> dict[str, Any]:
    """How a machine is paid for. An eviction deletes a spot machine."""
    if bid is None:
        return {"priority": "Regular"}

    most = bid // _NANOS_OF_PRICE * _NANOS_OF_PRICE / NANOS_PER_DOLLAR
    if not most:
        problem = (
            f"a bid of {bid} nano-dollars an hour is below 0.00001 USD, the lowest that Azure takes"
        )
        raise BadRequest(problem)

    return {
        "priority": "Spot",
        "eviction_policy": "Delete",
        "billing_profile": models.BillingProfile(max_price=most),
    }


def _disk(
    request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int
) -> models.OSDisk:
    keys = settings.disk_encryption_set
    size_gb = disk_gib(
        request.market.instance_type,
        request.disk_gib,
        plan.least_gib,
        is_usual=not (request.image or settings.image)
        or plan.image.get("offer") == _OFFER_WITH_DRIVERS,
    )
    encryption = models.DiskEncryptionSetParameters(id=keys) if keys else None
    managed = models.ManagedDiskParameters(
        storage_account_type=settings.disk_type, disk_encryption_set=encryption
    )
    return models.OSDisk(
        name=f"{machine_name(request.token, index)}-disk",
        create_option="FromImage",
        delete_option="Delete",
        managed_disk=managed,
        disk_size_gb=size_gb,
    )


def disk_gib(size: str, wanted: int | None, least: int, *, is_usual: bool) -> int | None:
    """The size of a machine's disk, as it is ordered and billed: the one that a job names, or the
    usual one, or that of an image of the user's own if neither holds it, which has `least` GiB.
    None leaves it to an image that is not one of the usual ones, and whose size is not known."""
    if wanted is None and not is_usual and not least:
        return None
    return max(wanted or (USUAL_DISK_GIB if _WITH_GPUS.match(size) else UBUNTU_GIB), least)


def _connection(
    request: MachineRequest, plan: DeploymentPlan, settings: AzureMachineSettings, index: int
) -> models.NetworkProfile:
    """The interface and the address that are made, and deleted, with the machine."""
    name, subnet = machine_name(request.token, index), request.network or settings.subnet
    own = f"{network_id(plan.group_id, request.market.region)}/subnets/{_SUBNET}"
    tags = checked({**settings.tags, **run_tags(request.tags)})
    kind = models.PublicIPAddressSku(name="Standard", tier="Regional")
    lasting = models.VirtualMachinePublicIPAddressConfigurationProperties(
        delete_option="Delete", public_ip_allocation_method="Static"
    )
    public = models.VirtualMachinePublicIPAddressConfiguration(
        name=f"{name}-address", sku=kind, tags=tags, properties=lasting
    )

    inner = models.SubResource(id=subnet or own)
    shown = public if settings.public_ip else None
    address = models.VirtualMachineNetworkInterfaceIPConfigurationProperties(
        primary=True, subnet=inner, public_ip_address_configuration=shown
    )

    first = models.VirtualMachineNetworkInterfaceIPConfiguration(name="first", properties=address)
    rules = settings.security_group if subnet else None
    group = models.SubResource(id=rules) if rules else None
    interface = models.VirtualMachineNetworkInterfaceConfigurationProperties(
        primary=True,
        delete_option="Delete",
        ip_configurations=[first],
        network_security_group=group,
    )

    made = models.VirtualMachineNetworkInterfaceConfiguration(
        name=f"{name}-nic", tags=tags, properties=interface
    )
    return models.NetworkProfile(
        network_api_version=_INTERFACES_VERSION, network_interface_configurations=[made]
    )


def _literal(value: Any) -> Any:  # noqa: ANN401  # JSON is any value
    """A template with all texts escaped: Azure would evaluate a text in brackets as an
    expression."""
    if isinstance(value, Mapping):
        return {name: _literal(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    bracketed = isinstance(value, str) and value.startswith("[") and value.endswith("]")
    return f"[{value}" if bracketed else value


GROUP_TAG, GROUP_MARK = "spotctl-group", "machines"
"""The tag that marks the resource groups that spotctl made."""
_TAG_PREFIX = "spotctl-order-"
_MARKET, _BID, _COUNT, _TOKEN, _FINGERPRINT, _IDENTITY, _NAMES, INDEX = (
    f"{_TAG_PREFIX}{name}"
    for name in ("market", "bid", "count", "token", "fingerprint", "identity", "tags", "index")
)
_ON_DEMAND = "on demand"
_MAX_TAGS, _LONGEST_VALUE = 50, 256
_GROUP_STEM = "spotctl-"


@dataclass(frozen=True, slots=True)
class AzureOrder:
    """A request for machines, as the tags of its deployment and of each of its machines record
    it."""

    token: str
    market: Market
    bid: int | None
    count: int
    fingerprint: str
    identity: str
    tags: Mapping[str, str]

    @property
    def machine_names(self) -> tuple[str, ...]:
        return tuple(machine_name(self.token, index) for index in range(self.count))

    @classmethod
    def of(cls, request: MachineRequest, identity: str) -> AzureOrder:
        fingerprint, tags = fingerprint_of(request), dict(request.tags)
        return cls(
            request.token, request.market, request.bid, request.count, fingerprint, identity, tags
        )

    @classmethod
    def read(cls, tags: Mapping[str, str]) -> AzureOrder | None:
        """The order that tags describe; None: spotctl did not write them."""
        try:
            own = {str(name): tags[name] for name in json.loads(tags[_NAMES])}
            market, count = Market.parse(tags[_MARKET]), int(tags[_COUNT])
            bid = None if tags[_BID] == _ON_DEMAND else int(tags[_BID])
            token, print_, identity = tags[_TOKEN], tags[_FINGERPRINT], tags[_IDENTITY]
            return cls(token, market, bid, count, print_, identity, own)
        except (BadMarket, KeyError, TypeError, ValueError):
            return None

    def written(self, company: Mapping[str, str], index: int | None = None) -> dict[str, str]:
        """All tags of a deployment, or of its machine with this index."""
        tags = {**company, **self.tags}
        tags[_TOKEN], tags[_MARKET] = self.token, str(self.market)
        tags[_BID] = _ON_DEMAND if self.bid is None else str(self.bid)
        tags[_COUNT], tags[_FINGERPRINT] = str(self.count), self.fingerprint
        tags[_IDENTITY] = self.identity
        tags[_NAMES] = json.dumps(sorted(self.tags))
        if index is not None:
            tags[INDEX] = str(index)
        return checked(tags)


def checked(tags: dict[str, str]) -> dict[str, str]:
    """The tags, if Azure accepts them; otherwise BadRequest."""
    long = [name for name, value in tags.items() if len(value) > _LONGEST_VALUE]
    if long or len(tags) > _MAX_TAGS:
        problem = (
            f"the value of tag {long[0]} is too long" if long else f"{len(tags)} tags are too many"
        )
        cure = (
            f"Azure takes up to {_MAX_TAGS} tags, with values of up to {_LONGEST_VALUE} characters"
        )
        raise BadRequest(f"{problem}; {cure}")

    return tags


def group_name(tags: Mapping[str, str]) -> str:
    """The resource group for machines with these tags, named after their run."""
    shared = run_tags(tags)
    run = re.sub(r"[^A-Za-z0-9_-]", "-", shared.get(RUN_TAG, ""))[:48]
    return f"{_GROUP_STEM}{run}{'-' if run else ''}{_digest(sorted(shared.items()))[:10]}"


def deployment_name(token: str) -> str:
    """The deployment that serves a token."""
    return f"{_GROUP_STEM}{_digest(token)[:16]}"


def machine_name(token: str, index: int) -> str:
    """The name of a virtual machine, which is also its host name."""
    return f"{deployment_name(token)}-{index}"


def zone_of(market: Market) -> str:
    """The number of a market's zone in its region, with which Azure names zones; `-` if the market
    has no zone.
    """
    return market.zone.removeprefix(f"{market.region}-")


def fingerprint_of(request: MachineRequest) -> str:
    """A hash of the parts of a request that must not change when it is repeated."""
    payload = None if request.payload is None else request.payload.in_former_words()
    places = (request.image, request.identity, request.disk_gib, request.network)
    fixed = [
        str(request.market),
        request.count,
        request.bid,
        sorted(request.tags.items()),
        payload,
        places,
    ]

    # Requests that earlier versions made keep their fingerprint.
    fixed += ["close"] if request.close else []
    return _digest(fixed)[:16]


@dataclass(frozen=True, slots=True)
class MachineId:
    """`azure:REGION:GROUP/NAME`: enough to find and delete a machine without any other
    knowledge."""

    region: str
    group: str
    name: str

    def __str__(self) -> str:
        return f"azure:{self.region}:{self.group}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> MachineId | None:
        """The machine of an id; None: spotctl has not made such a machine in Azure."""
        form = rf"azure:([a-z0-9]+):({_GROUP_STEM}[\w-]+)/({_GROUP_STEM}[\w-]+)"
        matched = re.fullmatch(form, text, re.ASCII)
        return None if matched is None else cls(*matched.groups())


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
