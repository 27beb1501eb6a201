"""The machines of the simulated Azure: how they start and end, what they cost, and their entries in
the activity log."""

from __future__ import annotations

import base64
import copy
import secrets
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import ip_address, ip_network

from pricing_data.units import DAY, NANOS_PER_DOLLAR
from tests.cloud import azure_metadata
from tests.cloud.api import now_micros
from tests.cloud.azure_reservations import DEPLOY, CapacityReservations
from tests.cloud.azure_state import (
    ADDRESSES,
    DISKS,
    INTERFACES,
    PLACEMENT,
    RULES,
    VMS,
    Bill,
    Body,
    Group,
    Item,
    Refused,
    Vm,
    moment,
)
from tests.cloud.buckets import STORAGE_AUDIENCE
from tests.cloud.host import LAPTOP, MachineHost, MachineSpec, MetadataAnswer, MetadataRequest
from tests.cloud.images import images
from tests.servers.azure import (
    SUBSCRIPTION,
    AzureCloud,
    eviction_row,
    family_of,
    price_row,
    retail_item,
    sku,
)

IDENTITY = (
    f"/subscriptions/{SUBSCRIPTION}/resourceGroups/company/providers/Microsoft.ManagedIdentity"
    "/userAssignedIdentities/spotctl"
)
"""A managed identity that exists from the start, whose role lets machines delete themselves."""
IMAGES = images("azure")
LAUNCHER = "launcher@example.com"
GRACE_SECONDS = 10.0
_ON_DEMAND = 5
"""The on-demand price as a multiple of the spot price."""


class Fleet:
    """The machines of a subscription. The attributes are what a test may set.

    `capacity` limits the machines of a size in a region that can still be had, `quota` the spot
    machines of the subscription, `prices` are nano-dollars per hour. A new machine is missing in
    the first `late` listings, and what happens appears in the log after `log_delay_seconds`.
    `addresses` limits the public addresses of a region, `regions` are those that the subscription
    may use, and not every offer `sells_spot`.
    """

    def __init__(self, host: MachineHost) -> None:
        self.host, self.url, self.sizes = host, "", copy.deepcopy([*SIZES])
        self.lock = threading.RLock()
        self.machines: list[Vm] = []
        self.late = 0
        self.capacity: dict[tuple[str, str], int] = {}
        self.quota: int | None = None
        # https://github.com/giantswarm/azure-operator/issues/163,
        # https://github.com/Azure/azure-cli/issues/32567
        self.addresses: int | None = None
        self.regions: frozenset[str] | None = None
        self.sells_spot = True
        self.cores, self.family_cores = 1000, dict[str, int]()
        self.prices: dict[tuple[str, str], int] = {}
        self.log: list[Body] = []
        self.log_delay_seconds = 0.0
        self.tokens: dict[str, str] = {}
        self.storage_tokens: set[str] = set()
        self.new_storage_token: Callable[[], str] = partial(secrets.token_urlsafe, 32)
        self.variables: dict[str, str] = {}
        self.identities = {
            IDENTITY.lower(): {"principalId": str(uuid.uuid4()), "clientId": str(uuid.uuid4())}
        }
        self._numbers: Counter[str] = Counter()
        self.reservations = CapacityReservations(self)

    def alive(self) -> list[Vm]:
        """The machines that are billed."""
        return [vm for vm in self.machines if vm.bill is not None and vm.bill.ended is None]

    def running(self, machine: str) -> Vm:
        name = machine.rpartition("/")[2].lower()
        for vm in self.machines:
            if vm.name.lower() == name and vm.bill is not None and vm.bill.ended is None:
                return vm
        raise KeyError(machine)

    def announce_eviction(self, machine: str, warning_seconds: float | None) -> None:
        """Announces an eviction, and carries it out after the warning; None: at once."""
        with self.lock:
            vm = self.running(machine)
            if not vm.is_spot:
                raise ValueError(f"{machine} is not a spot machine")
            if warning_seconds is None:
                self.evict(vm)
                return
            vm.events, vm.incarnation = (
                [azure_metadata.preemption(vm, warning_seconds)],
                vm.incarnation + 1,
            )
        timer = threading.Timer(warning_seconds, self.evict, [vm])
        timer.daemon = True
        timer.start()

    def check(self, vms: list[Body]) -> None:
        """Refuses machines that cannot be had, before any is made."""
        for one in vms:
            self._check(one)
            self.reservations.check(one)
        held = [vm.body for vm in self.alive()]
        if self.addresses is not None and len(held) + len(vms) > self.addresses:
            text = (
                f"Cannot create more than {self.addresses} public IP addresses with static "
                "allocation method"
            )
            message = f"{text} for this subscription in this region."
            raise invalid_deployment(
                {"code": "StaticPublicIPCountLimitReached", "message": message}
            )
        if not self.sells_spot and _spot(vms):
            message = "Azure Spot is not supported for subscription."
            raise invalid_deployment({"code": "OperationNotAllowed", "message": message})
        if self.quota is not None:
            self._check_quota("LowPriorityCores", self.quota, _spot(held), _spot(vms))
        regular = ([one for one in bodies if one not in _spot(bodies)] for bodies in (held, vms))
        # Reserved machines have counted since they were reserved.
        on_demand, wanted = self.reservations.beyond(*regular)
        # Machines on demand count against the quota of their family, and against that of the
        # region.
        for family, most in self.family_cores.items():
            of_family = [
                [one for one in bodies if family_of(_size(one)) == family]
                for bodies in (on_demand, wanted)
            ]
            self._check_quota(family, most, *of_family)
        self._check_quota("Cores", self.cores, on_demand, wanted)

    def _check_quota(self, name: str, most: int, held: list[Body], wanted: list[Body]) -> None:
        used, more = (sum(self._vcpus(_size(one)) for one in bodies) for bodies in (held, wanted))
        if more and used + more > most:
            message = (
                f"Operation could not be completed as it results in exceeding approved {name} "
                "quota."
                f" Additional details - Current Limit: {most}, Current Usage: {used}, Additional "
                f"Required: {more}."
            )
            raise invalid_deployment({"code": "QuotaExceeded", "message": message})

    def _vcpus(self, size: str) -> int:
        return int(
            next(
                self._capabilities(known)["vCPUs"] for known in self.sizes if known["name"] == size
            )
        )

    @staticmethod
    def _capabilities(size: Body) -> dict[str, str]:
        return {capability["name"]: capability["value"] for capability in size["capabilities"]}

    def _check(self, one: Body) -> None:
        properties, region = one["properties"], one["location"]
        size = properties["hardwareProfile"]["vmSize"]
        if not any(one["name"] == size and region in one["locations"] for one in self.sizes):
            message = f"The requested VM size {size} is not available in location '{region}'."
            raise invalid_deployment({"code": "SkuNotAvailable", "message": message})
        if self.regions is not None and region not in self.regions:
            text = (
                "This policy maintains a set of best available regions where your subscription can "
                "deploy resources."
            )
            message = f"Resource '{one['name']}' was disallowed by Azure: {text}"
            raise invalid_deployment({"code": "RequestDisallowedByAzure", "message": message})
        image = properties["storageProfile"]["imageReference"]
        urn = ":".join(str(image.get(name)) for name in ("publisher", "offer", "sku"))
        if "id" not in image and urn.lower() not in IMAGES:
            message = f"The platform image '{urn}:{image.get('version')}' is not available."
            raise invalid_deployment({"code": "PlatformImageNotFound", "message": message})
        boots = next(self._capabilities(known) for known in self.sizes if known["name"] == size)
        # All of the images are of generation 2.
        if "id" not in image and "V2" not in boots.get("HyperVGenerations", "V1,V2"):
            message = f"The selected VM size '{size}' cannot boot Hypervisor Generation '2'."
            raise invalid_deployment({"code": "BadRequest", "message": message})
        for identity in (one.get("identity") or {}).get("userAssignedIdentities", {}):
            if identity.lower() not in self.identities:
                raise invalid_deployment(
                    {"code": "FailedIdentityOperation", "message": f"{identity} was not found"}
                )
        if (
            not (properties.get("osProfile", {}).get("linuxConfiguration") or {})
            .get("ssh", {})
            .get("publicKeys")
        ):
            raise invalid_deployment(
                {"code": "InvalidParameter", "message": "Authentication using SSH needs a key."}
            )
        spot, limit = (
            properties.get("priority") == "Spot",
            (properties.get("billingProfile") or {}).get("maxPrice", -1),
        )
        if "evictionPolicy" in properties and not spot:
            code = "EvictionPolicyCanBeSetOnlyOnAzureSpotVirtualMachines"
            raise invalid_deployment(
                {"code": code, "message": "Eviction policy can be set only on Azure Spot VMs."}
            )
        price = self.price(region, size) / NANOS_PER_DOLLAR
        if spot and limit != -1 and limit < price:
            message = (
                f"the provided max price '{limit} USD' is lower than the current spot price "
                f"'{price} USD'"
            )
            raise invalid_deployment(
                {"code": "SpotPriceGreaterThanProvidedMaxPrice", "message": message}
            )

    def make(self, group: Group, name: str, body: Body) -> tuple[str, Body | None]:
        vm = Vm(group, VMS, name, copy.deepcopy(body), hidden=self.late)
        group.put(vm)
        region, size = body["location"], body["properties"]["hardwareProfile"]["vmSize"]
        subnet = self._subnet_of(vm)
        _, beyond = self.reservations.beyond([one.body for one in self.alive()], [vm.body])
        left, exists = self.capacity.get((region, size)), bool(subnet) and self._is_placed(vm)
        left = left if beyond else None
        if left == 0 or not exists:
            vm.state = "Failed"
            code = "AllocationFailed" if exists else "InvalidResourceReference"
            return vm.id, {
                "code": code,
                "message": f"Allocation failed. There is not sufficient capacity for {size}.",
            }
        if left is not None:
            self.capacity[region, size] = left - 1
        vm.identities = {
            one: self.identities[one.lower()]
            for one in (body.get("identity") or {}).get("userAssignedIdentities", {})
        }
        self._numbers[name] += 1
        vm.host_name = f"{name}-{self._numbers[name]}"
        data = base64.b64decode(body["properties"]["osProfile"].get("customData", ""))
        inside = f"http://{self.host.reach(int(self.url.rpartition(':')[2]))}"
        addresses = ("AZURE_RESOURCE_MANAGER_URL", "SPOTCTL_AZURE_MANAGEMENT_ENDPOINT")
        environment = {**dict.fromkeys(addresses, inside), **self.variables}
        firewall = partial(self._admits_ssh, vm)
        spec = MachineSpec(vm.host_name, data, partial(self._metadata, vm), environment, firewall)
        self.machines.append(vm)
        vm.addresses = self.host.start(spec, lambda _: self._powered_off(vm))
        vm.power = "running"
        spot = vm.is_spot
        price = self.price(region, size) * (1 if spot else _ON_DEMAND)
        vm.bill = Bill(f"azure/{region}/-/{size}", spot, price, vm.made)
        self._make_parts(vm)
        self.note(vm, "write", "Succeeded", LAUNCHER)
        return vm.id, None

    def _is_placed(self, vm: Vm) -> bool:
        """Whether the placement group of a machine, if it names one, exists in its group."""
        named = str(vm.properties.get("proximityPlacementGroup", {}).get("id", ""))
        return not named or vm.group.get(PLACEMENT, named.rpartition("/")[2]) is not None

    def _subnet_of(self, vm: Vm) -> str:
        """The subnet of a machine, if it exists: that of the company, or one in its own group."""
        (interface,) = vm.properties["networkProfile"]["networkInterfaceConfigurations"]
        subnet = str(interface["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"])
        network, _, name = subnet.rpartition("/subnets/")
        if not network.lower().startswith(vm.group.id.lower()):
            return subnet
        known = vm.group.get("Microsoft.Network/virtualNetworks", network.rpartition("/")[2])
        subnets = [] if known is None else known.body["properties"].get("subnets", [])
        return subnet if name in [one["name"] for one in subnets] else ""

    def _admits_ssh(self, vm: Vm) -> bool:
        """Whether the rules of the run's own network let this computer in; those of a company's
        network do.
        """
        (interface,) = vm.properties["networkProfile"]["networkInterfaceConfigurations"]
        subnet = str(interface["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"])
        known = vm.group.get(
            "Microsoft.Network/virtualNetworks", subnet.partition("/subnets/")[0].rpartition("/")[2]
        )
        if known is None:
            return True
        group = known.body["properties"]["subnets"][0]["properties"]["networkSecurityGroup"]["id"]
        rules = vm.group.get(RULES, group.rpartition("/")[2])
        return rules is None or any(
            ip_address(laptop) in ip_network(source)
            for one in rules.body["properties"]["securityRules"]
            for source in one["properties"]["sourceAddressPrefixes"]
            for laptop in LAPTOP
        )

    def _make_parts(self, vm: Vm) -> None:
        """The disk, the interface and the address that a machine is made with."""
        location, suffix = {"location": vm.body["location"]}, vm.vm_id[:8]
        disk = vm.properties["storageProfile"]["osDisk"]
        vm.group.put(
            Item(
                vm.group,
                DISKS,
                disk.get("name", f"disk-{suffix}"),
                dict(location),
                made_with=vm.vm_id,
            )
        )
        (wanted_interface,) = vm.properties["networkProfile"]["networkInterfaceConfigurations"]
        configuration = wanted_interface["properties"]["ipConfigurations"][0]
        own = {
            "privateIPAddress": vm.addresses.private,
            "subnet": configuration["properties"]["subnet"],
        }
        public = configuration["properties"].get("publicIPAddressConfiguration")
        if public:
            address = Item(
                vm.group,
                ADDRESSES,
                f"{public['name']}-{suffix}",
                dict(location),
                made_with=vm.vm_id,
            )
            address.body["properties"] = {"ipAddress": vm.addresses.public}
            vm.group.put(address)
            own["publicIPAddress"] = {"id": address.id}
        interface = Item(
            vm.group, INTERFACES, f"{wanted_interface['name']}-{suffix}", dict(location)
        )
        interface.made_with = vm.vm_id
        interface.body["properties"] = {
            "virtualMachine": {"id": vm.id},
            "ipConfigurations": [{"name": configuration["name"], "properties": own}],
        }
        vm.group.put(interface)
        vm.interfaces = [interface]

    def _metadata(self, vm: Vm, request: MetadataRequest) -> MetadataAnswer:
        def token(principal: str, resource: str) -> str:
            if resource == STORAGE_AUDIENCE:
                made = self.new_storage_token()
                self.storage_tokens.add(made)
            else:
                made = secrets.token_urlsafe(32)
                self.tokens[made] = principal
            return made

        return azure_metadata.answer(vm, request, token, lambda: self.evict(vm))

    def _powered_off(self, vm: Vm) -> None:
        with self.lock:
            if vm.power == "running":
                vm.power = "stopped"

    def evict(self, vm: Vm) -> None:
        with self.lock:
            if vm.bill is None or vm.bill.ended is not None:
                return
            self.note(vm, "evictSpotVM/action", "Succeeded", "Microsoft.Compute")
            self.end_bill(vm, "evicted")
            self.host.power_off(vm.host_name)
            if vm.properties.get("evictionPolicy") == "Delete":
                self.vanish(vm)
            else:
                vm.power, vm.events = "deallocated", []

    def end_bill(self, vm: Vm, reason: str) -> None:
        vm.state = "Deleting"
        if vm.bill is not None:
            vm.bill.end(reason)

    def stop(self, vm: Vm, grace: float) -> None:
        if vm.host_name and vm.power == "running":
            vm.power = "deallocating"
            self.host.shut_down(vm.host_name, grace)

    def vanish(self, vm: Vm) -> None:
        """Removes a machine, and everything that is deleted with it."""
        vm.state, vm.power = "Deleted", ""
        vm.group.drop(vm)
        gone = {kind for kind, deleted in vm.deleted_with_it if deleted}
        for item in vm.group.owned_by(vm):
            if item.kind in gone:
                vm.group.drop(item)

    def close(self) -> None:
        """Ends the machines."""
        for vm in self.machines:
            if vm.host_name:
                self.host.power_off(vm.host_name)

    def price_lists(self) -> AzureCloud:
        """What the price list and Resource Graph say of these machines: the same prices for two
        weeks.
        """
        lists, now = AzureCloud(skus=self.sizes), now_micros()
        for size in self.sizes:
            (region,), name = size["locations"], size["name"]
            price = self.price(region, name)
            history = [(now - days * DAY, price) for days in range(14)]
            lists.retail.append(retail_item(region, name, _ON_DEMAND * price, now - 14 * DAY))
            lists.retail.append(retail_item(region, name, price, now - 14 * DAY, kind="Spot"))
            lists.spot.append(price_row(region, name, "linux", history))
            lists.spot.append(eviction_row(region, name, "5-10"))
        return lists

    def price(self, region: str, size: str) -> int:
        return self.prices.get((region, size), 10_000_000)

    def note(self, item: Item, operation: str, status: str, caller: str) -> None:
        now = now_micros()
        self.log.append(
            {
                "eventTimestamp": moment(now),
                "operationName": {"value": f"{item.kind}/{operation}", "localizedValue": operation},
                "status": {"value": status, "localizedValue": status},
                "caller": caller,
                "resourceId": item.id,
                "resourceGroupName": item.group.name.upper(),
                "correlationId": str(uuid.uuid4()),
                "visible": now + int(self.log_delay_seconds * 1e6),
            }
        )


def _spot(bodies: list[Body]) -> list[Body]:
    return [one for one in bodies if one["properties"].get("priority") == "Spot"]


def _size(body: Body) -> str:
    return str(body["properties"]["hardwareProfile"]["vmSize"])


def invalid_deployment(cause: Body) -> Refused:
    """How Resource Manager wraps what a resource provider refused beforehand."""
    message = (
        "The template deployment is not valid according to the validation procedure. See inner "
        "errors for details."
    )
    return Refused("InvalidTemplateDeployment", message, details=[cause])


def actions_of(resource: Body) -> Iterator[tuple[str, bool]]:
    """The actions that making a resource needs, and whether each is about another resource."""
    yield f"{resource['type']}/write", False
    text = str(resource.get("properties"))
    if "networkSecurityGroup'" in text:
        yield f"{RULES}/join/action", True
    if resource["type"] != VMS:
        return
    yield "Microsoft.Compute/disks/write", True
    for action in ("write", "join/action"):
        yield f"Microsoft.Network/networkInterfaces/{action}", True
    yield "Microsoft.Network/virtualNetworks/subnets/join/action", True
    if "publicIPAddressConfiguration" in text:
        for action in ("write", "join/action"):
            yield f"Microsoft.Network/publicIPAddresses/{action}", True
    if "proximityPlacementGroup" in text:
        yield f"{PLACEMENT}/write", True
    if "capacityReservationGroup" in text:
        yield DEPLOY, True
    if resource.get("identity"):
        yield "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", True
    if "diskEncryptionSet" in text:
        yield "Microsoft.Compute/diskEncryptionSets/read", True


SIZES = (
    sku(
        "eastus",
        "Standard_D2s_v5",
        vCPUs="2",
        MemoryGB="8",
        CpuArchitectureType="x64",
        LowPriorityCapable="True",
    ),
    sku(
        "eastus",
        "Standard_D4s_v5",
        vCPUs="4",
        MemoryGB="16",
        CpuArchitectureType="x64",
        LowPriorityCapable="True",
    ),
    sku(
        "eastus",
        "Standard_D4ps_v5",
        vCPUs="4",
        MemoryGB="16",
        CpuArchitectureType="Arm64",
        LowPriorityCapable="True",
    ),
    *(
        sku(
            "eastus",
            name,
            vCPUs="24",
            MemoryGB="220",
            GPUs=gpus,
            CpuArchitectureType="x64",
            LowPriorityCapable="True",
        )
        for name, gpus in (
            ("Standard_NC24ads_A100_v4", "1"),
            ("Standard_ND96isr_MI300X_v5", "8"),
            ("Standard_NV36ads_A10_v5", "1"),
            ("Standard_ND40rs_v2", "8"),
        )
    ),
    sku(
        "eastus",
        "Standard_A1_v2",
        vCPUs="1",
        MemoryGB="2",
        CpuArchitectureType="x64",
        HyperVGenerations="V1",
    ),
    sku(
        "eastus",
        "Standard_B2s",
        vCPUs="2",
        MemoryGB="4",
        CpuArchitectureType="x64",
        LowPriorityCapable="False",
    ),
    sku(
        "westus2",
        "Standard_D2s_v5",
        vCPUs="2",
        MemoryGB="8",
        CpuArchitectureType="x64",
        LowPriorityCapable="True",
    ),
)
