"""What exists in a simulated Azure subscription, in the form in which Resource Manager shows it."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pricing_data.units import HOUR, MINUTE, NANOS_PER_DOLLAR, to_datetime
from tests.cloud.api import Rented, now_micros
from tests.cloud.host import Addresses

Body = dict[str, Any]

VMS = "Microsoft.Compute/virtualMachines"
DISKS = "Microsoft.Compute/disks"
INTERFACES = "Microsoft.Network/networkInterfaces"
ADDRESSES = "Microsoft.Network/publicIPAddresses"
RULES = "Microsoft.Network/networkSecurityGroups"
PLACEMENT = "Microsoft.Compute/proximityPlacementGroups"
GROUPS = "Microsoft.Resources/resourceGroups"


class Refused(Exception):
    """A request that Azure answers with an error."""

    def __init__(self, code: str, message: str, status: int = 400, **more: object) -> None:
        super().__init__(message)
        self.status = status
        self.error: Body = {"code": code, "message": message, **more}


def moment(micros: int) -> str:
    """A time as Resource Manager writes it, with seven decimals."""
    return f"{to_datetime(micros):%Y-%m-%dT%H:%M:%S.%f}0Z"


@dataclass
class Item:
    """A resource in a group; `body` is what was asked for."""

    group: Group
    kind: str
    name: str
    body: Body
    made: int = field(default_factory=now_micros)
    state: str = "Succeeded"
    made_with: str = ""

    @property
    def id(self) -> str:
        return f"{self.group.id}/providers/{self.kind}/{self.name}"

    @property
    def tags(self) -> Mapping[str, str]:
        tags: Mapping[str, str] = self.body.get("tags") or {}
        return tags

    def shown(self) -> Body:
        """As a GET returns it."""
        body = copy.deepcopy(self.body)
        properties = body.get("properties", {}) | {"provisioningState": self.state}
        return body | {
            "id": self.id,
            "name": self.name,
            "type": self.kind,
            "properties": properties,
        }


@dataclass
class Bill:
    """The cost of a machine: full minutes, at the price at its start."""

    market: str
    spot: bool
    nanos_per_hour: int
    started: int
    ended: int | None = None
    reason: str = ""

    def end(self, reason: str) -> None:
        if self.ended is None:
            self.ended, self.reason = now_micros(), reason

    @property
    def usd(self) -> float:
        until = now_micros() if self.ended is None else self.ended
        return (
            self.nanos_per_hour
            / NANOS_PER_DOLLAR
            * ((until - self.started) // MINUTE * MINUTE)
            / HOUR
        )


_AGENT: Mapping[bool, Body] = {
    False: {
        "vmAgentVersion": "Unknown",
        "statuses": [
            {
                "code": "ProvisioningState/Unavailable",
                "level": "Warning",
                "displayStatus": "Not Ready",
                "message": "VM status blob is found but not yet populated.",
            }
        ],
    },
    True: {
        "vmAgentVersion": "2.9.1.1",
        "statuses": [
            {
                "code": "ProvisioningState/succeeded",
                "level": "Info",
                "displayStatus": "Ready",
                "message": "Guest Agent is running",
            }
        ],
    },
}
"""The agent in an instance view, as the examples of Azure's SDK show it
(https://github.com/Azure/azure-sdk-for-go/blob/main/sdk/resourcemanager/compute/armcompute)."""


@dataclass
class Vm(Item):
    """A virtual machine. `power` is empty until it was allocated; `events` are announced in its
    metadata.
    """

    host_name: str = ""
    addresses: Addresses = field(default_factory=lambda: Addresses("", ""))
    power: str = ""
    identities: dict[str, Body] = field(default_factory=dict)
    interfaces: list[Item] = field(default_factory=list)
    bill: Bill | None = None
    events: list[Body] = field(default_factory=list)
    incarnation: int = 1
    vm_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    hidden: int = 0

    @property
    def properties(self) -> Body:
        properties: Body = self.body["properties"]
        return properties

    @property
    def is_spot(self) -> bool:
        return self.properties.get("priority") == "Spot"

    @property
    def max_price(self) -> float:
        return float((self.properties.get("billingProfile") or {}).get("maxPrice", -1))

    def shown(self, *, status: bool = False, booted: bool = False) -> Body:
        """With its `status`, also that of the agent of its image, which reports once the machine
        has `booted`.
        """
        body = super().shown()
        properties = body["properties"] | {"vmId": self.vm_id, "timeCreated": moment(self.made)}
        properties.get("osProfile", {}).pop("customData", None)
        delete = self._interface_deletion()
        properties["networkProfile"] = {
            "networkInterfaces": [
                {"id": one.id, "properties": {"primary": True, "deleteOption": delete}}
                for one in self.interfaces
            ]
        }
        if self.identities:
            body["identity"] = {"type": "UserAssigned", "userAssignedIdentities": self.identities}
        if status:
            codes = [
                f"ProvisioningState/{self.state.lower()}",
                *([f"PowerState/{self.power}"] if self.power else []),
            ]
            properties["instanceView"] = {
                "statuses": [{"code": code, "level": "Info"} for code in codes],
                "vmAgent": _AGENT[booted],
            }
        return body | {"properties": properties}

    def _interface_deletion(self) -> str:
        wanted = self.properties.get("networkProfile", {}).get(
            "networkInterfaceConfigurations"
        ) or [{}]
        return str(wanted[0].get("properties", {}).get("deleteOption", "Detach"))

    @property
    def deleted_with_it(self) -> Iterator[tuple[str, bool]]:
        """The kinds of what was made with it, and whether they go with it."""
        disk = self.properties["storageProfile"]["osDisk"]
        yield DISKS, disk.get("deleteOption") == "Delete"
        yield INTERFACES, self._interface_deletion() == "Delete"
        profile = (
            self.properties.get("networkProfile", {}).get("networkInterfaceConfigurations") or []
        )
        for one in profile:
            for ip in one["properties"]["ipConfigurations"]:
                wanted = ip.get("properties", {}).get("publicIPAddressConfiguration")
                yield (
                    ADDRESSES,
                    bool(wanted) and wanted.get("properties", {}).get("deleteOption") == "Delete",
                )

    def rented(self) -> Rented | None:
        if self.bill is None:
            return None
        return Rented(
            id=f"{self.group.name}/{self.name}",
            market=self.bill.market,
            spot=self.bill.spot,
            state="gone" if self.bill.ended is not None else self.power or self.state,
            private=self.addresses.private,
            public=self.addresses.public,
            started=self.bill.started,
            ended=self.bill.ended,
            reason=self.bill.reason,
            usd=self.bill.usd,
            tags=dict(self.tags),
        )


@dataclass
class Deployment:
    """A deployment and what became of each of its resources: the code and message of an error, or
    None.
    """

    group: Group
    name: str
    tags: Mapping[str, str]
    steps: list[tuple[str, Body | None]] = field(default_factory=list)
    polls: int = 0
    begun: int = field(default_factory=now_micros)

    @property
    def id(self) -> str:
        return f"{self.group.id}/providers/Microsoft.Resources/deployments/{self.name}"

    @property
    def state(self) -> str:
        if self.polls > 0:
            return "Running"
        return "Failed" if any(error for _, error in self.steps) else "Succeeded"

    def shown(self) -> Body:
        properties: Body = {
            "provisioningState": self.state,
            "timestamp": moment(self.begun + 1_000_000),
            "duration": "PT1S",
            "mode": "Incremental",
            "outputResources": [{"id": id_} for id_, error in self.steps if not error],
        }
        if self.state == "Failed":
            details = [
                {"code": error["code"], "message": error["message"]}
                for _, error in self.steps
                if error
            ]
            message = (
                "At least one resource deployment operation failed. Please list deployment "
                "operations for details."
            )
            properties["error"] = {
                "code": "DeploymentFailed",
                "message": message,
                "details": details,
            }
        return {"id": self.id, "name": self.name, "tags": dict(self.tags), "properties": properties}

    def operations(self) -> list[Body]:
        return [
            {
                "id": f"{self.id}/operations/{number}",
                "operationId": str(number),
                "properties": {
                    "provisioningOperation": "Create",
                    "provisioningState": "Failed"
                    if error
                    else "Running"
                    if self.polls > 0
                    else "Succeeded",
                    "targetResource": {
                        "id": id_,
                        "resourceType": id_.split("/providers/")[1].rpartition("/")[0],
                    },
                    **({"statusMessage": {"status": "Failed", "error": error}} if error else {}),
                },
            }
            for number, (id_, error) in enumerate(self.steps)
        ]


@dataclass
class Group:
    """A resource group. Names are not case-sensitive."""

    subscription: str
    name: str
    location: str
    tags: Mapping[str, str]
    items: dict[tuple[str, str], Item] = field(default_factory=dict)
    deployments: dict[str, Deployment] = field(default_factory=dict)
    state: str = "Succeeded"

    @property
    def id(self) -> str:
        return f"/subscriptions/{self.subscription}/resourceGroups/{self.name}"

    def shown(self) -> Body:
        return {
            "id": self.id,
            "name": self.name,
            "type": GROUPS,
            "location": self.location,
            "tags": dict(self.tags),
            "properties": {"provisioningState": self.state},
        }

    def put(self, item: Item) -> None:
        self.items[item.kind.lower(), item.name.lower()] = item

    def get(self, kind: str, name: str) -> Item | None:
        return self.items.get((kind.lower(), name.lower()))

    def drop(self, item: Item) -> None:
        self.items.pop((item.kind.lower(), item.name.lower()), None)

    def of_kind(self, kind: str) -> list[Item]:
        return [item for (own, _), item in self.items.items() if own == kind.lower()]

    def owned_by(self, vm: Vm) -> Iterator[Item]:
        """What was made with a machine."""
        return (item for item in list(self.items.values()) if item.made_with == vm.vm_id)
