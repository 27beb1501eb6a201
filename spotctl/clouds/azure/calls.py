"""Every call that spotctl makes to Azure's Resource Manager for machines, with the permissions that it needs.

The policy that `spotctl doctor --policy` prints is the union of these permissions: only calls in this
table can be made, and the policy contains no permission that no call needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pricing_data.errors import UnknownResource
from spotctl.clouds.errors import ApiCall

if TYPE_CHECKING:
    from spotctl.clouds.azure.session import ArmAnswer, AzureSession

Body = Mapping[str, Any]

# The versions of the SDK models with which tests check our requests; older ones may lack fields that we send.
COMPUTE_VERSION: Final = "2026-04-01"
NETWORK_VERSION: Final = "2026-03-01"
_IDENTITY_VERSION: Final = "2023-01-31"
_LOG_VERSION: Final = "2015-04-01"
_AUTHORIZATION_VERSION: Final = "2022-04-01"

_SUBSCRIPTION = "/subscriptions/{subscription}"
_GROUP = f"{_SUBSCRIPTION}/resourceGroups/{{group}}"
_DEPLOYMENTS, _MACHINES, _DISKS = (
    "Microsoft.Resources/deployments",
    "Microsoft.Compute/virtualMachines",
    "Microsoft.Compute/disks",
)
_INTERFACES, _ADDRESSES, _NETWORKS, _RULES = (
    "Microsoft.Network/networkInterfaces",
    "Microsoft.Network/publicIPAddresses",
    "Microsoft.Network/virtualNetworks",
    "Microsoft.Network/networkSecurityGroups",
)
_ROLES, _ASSIGNMENTS = "Microsoft.Authorization/roleDefinitions", "Microsoft.Authorization/roleAssignments"

_READ_GROUPS = ("Microsoft.Resources/subscriptions/resourceGroups/read",)
_READ_RESERVATIONS = ("Microsoft.Compute/capacityReservationGroups/capacityReservations/read",)
MACHINE_PERMISSIONS: Final = tuple(f"{kind}/delete" for kind in (_MACHINES, _DISKS, _INTERFACES, _ADDRESSES))
"""Needed by the machines' managed identity, with which a machine deletes itself and its disk, interface and address."""

_CallRow = tuple[str, str, str, tuple[str, ...]]
_SdkRow = tuple[str, str, str, tuple[str, ...], str]
_VERBS = {"GET": "read", "PUT": "write", "DELETE": "delete"}


def _listing(kind: str, version: str, scope: str = _GROUP) -> _CallRow:
    """Lists the resources of a kind."""
    return "GET", f"{scope}/providers/{kind}", version, (f"{kind}/read",)


def _resource(method: str, kind: str, version: str) -> _CallRow:
    """Reads, writes or deletes a resource of a group."""
    return method, f"{_GROUP}/providers/{kind}/{{name}}", version, (f"{kind}/{_VERBS[method]}",)


def _sdk(sdk: str, *permissions: str) -> _SdkRow:
    """A method of an SDK's client."""
    return "", "", "", permissions, sdk


class ArmCall(Enum):
    """A call to Resource Manager, and the permissions that it needs: `CLIENT.GROUP.METHOD` of an SDK (`sdk`), or
    for resources whose SDK is not installed, its method, its path and the version of its API."""

    def __init__(self, method: str, path: str, version: str, permissions: tuple[str, ...], sdk: str = "") -> None:
        self.method, self.path, self.version, self.permissions = method, path, version, permissions
        self.sdk = sdk


class TrialOperation(ArmCall):
    """The calls that only `spotctl try --full` makes."""

    VALIDATE = _sdk("deployments.deployments.begin_validate", f"{_DEPLOYMENTS}/validate/action")
    SIMULATE_EVICTION = _sdk("compute.virtual_machines.simulate_eviction", f"{_MACHINES}/simulateEviction/action")


class Operation(ArmCall):
    """All other calls."""

    LIST_GROUPS = _sdk("resources.resource_groups.list", *_READ_GROUPS)
    GET_GROUP = _sdk("resources.resource_groups.get", *_READ_GROUPS)
    PUT_GROUP = _sdk(
        "resources.resource_groups.create_or_update", "Microsoft.Resources/subscriptions/resourceGroups/write"
    )
    DELETE_GROUP = _sdk(
        "resources.resource_groups.begin_delete", "Microsoft.Resources/subscriptions/resourceGroups/delete"
    )
    LIST_RESOURCES = _sdk("resources.resources.list_by_resource_group", *_READ_GROUPS)
    LIST_DEPLOYMENTS = _sdk("deployments.deployments.list_by_resource_group", f"{_DEPLOYMENTS}/read")
    GET_DEPLOYMENT = _sdk("deployments.deployments.get", f"{_DEPLOYMENTS}/read")
    LIST_STEPS = _sdk("deployments.deployment_operations.list", f"{_DEPLOYMENTS}/operations/read")
    DEPLOY = _sdk(
        "deployments.deployments.begin_create_or_update",
        f"{_DEPLOYMENTS}/write",
        f"{_MACHINES}/write",
        f"{_DISKS}/write",
        "Microsoft.Compute/proximityPlacementGroups/write",
        "Microsoft.Compute/capacityReservationGroups/deploy/action",
        "Microsoft.Compute/diskEncryptionSets/read",
        "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
        f"{_INTERFACES}/write",
        f"{_INTERFACES}/join/action",
        f"{_RULES}/write",
        f"{_RULES}/join/action",
        f"{_ADDRESSES}/write",
        f"{_ADDRESSES}/join/action",
        f"{_NETWORKS}/write",
        f"{_NETWORKS}/subnets/join/action",
    )
    LIST_RESERVATIONS = _sdk("compute.capacity_reservations.list_by_capacity_reservation_group", *_READ_RESERVATIONS)
    GET_RESERVATION = _sdk("compute.capacity_reservations.get", *_READ_RESERVATIONS)
    LIST_MACHINES = _sdk("compute.virtual_machines.list", f"{_MACHINES}/read")
    GET_MACHINE = _sdk("compute.virtual_machines.get", f"{_MACHINES}/read")
    DELETE_MACHINE = _sdk("compute.virtual_machines.begin_delete", *MACHINE_PERMISSIONS)
    CONSOLE = _sdk(
        "compute.virtual_machines.retrieve_boot_diagnostics_data", f"{_MACHINES}/retrieveBootDiagnosticsData/action"
    )
    LIST_INTERFACES = _listing(_INTERFACES, NETWORK_VERSION)
    LIST_ADDRESSES = _listing(_ADDRESSES, NETWORK_VERSION)
    GET_NETWORK = _resource("GET", _NETWORKS, NETWORK_VERSION)
    DELETE_DISK = _sdk("compute.disks.begin_delete", f"{_DISKS}/delete")
    DELETE_INTERFACE = _resource("DELETE", _INTERFACES, NETWORK_VERSION)
    DELETE_ADDRESS = _resource("DELETE", _ADDRESSES, NETWORK_VERSION)
    DELETE_NETWORK = _resource("DELETE", _NETWORKS, NETWORK_VERSION)
    GET_RULES = _resource("GET", _RULES, NETWORK_VERSION)
    PUT_RULES = _resource("PUT", _RULES, NETWORK_VERSION)
    DELETE_RULES = _resource("DELETE", _RULES, NETWORK_VERSION)
    LIST_USAGES = _sdk("compute.usage.list", "Microsoft.Compute/locations/usages/read")
    READ_LOG = (
        "GET",
        f"{_SUBSCRIPTION}/providers/Microsoft.Insights/eventtypes/management/values",
        _LOG_VERSION,
        ("Microsoft.Insights/eventtypes/values/read",),
    )
    LIST_ROLES = _listing(_ROLES, _AUTHORIZATION_VERSION, _SUBSCRIPTION)
    LIST_ASSIGNMENTS = _listing(_ASSIGNMENTS, _AUTHORIZATION_VERSION, _SUBSCRIPTION)
    ASSIGN_ROLE = _resource("PUT", _ASSIGNMENTS, _AUTHORIZATION_VERSION)
    GET_IDENTITY = (
        "GET",
        "{identity}",
        _IDENTITY_VERSION,
        ("Microsoft.ManagedIdentity/userAssignedIdentities/read",),
    )


_OPTIONS: Final = {
    "$filter": "filter",
    "$expand": "expand",
    "sasUriExpirationTimeInMinutes": "sas_uri_expiration_time_in_minutes",
}
"""What the SDKs call the parameters of a request."""

SIZES_PERMISSION: Final = "Microsoft.Compute/skus/read"


def permissions() -> tuple[str, ...]:
    """All permissions that spotctl needs to rent machines, sorted."""
    needed = {permission for operation in Operation for permission in operation.permissions}
    return tuple(sorted({SIZES_PERMISSION, *needed}))


class AzureCalls:
    """Sends the calls above. Raises the errors of `AzureSession` (`CloudError`)."""

    def __init__(self, session: AzureSession) -> None:
        self.session = session

    def send(self, operation: ArmCall, body: object = None, /, query: Body | None = None, **places: str) -> ArmAnswer:
        """The answer to one call; `places` are the parts of its path."""
        call = ApiCall(_title(operation, places), " and ".join(operation.permissions))
        if operation.sdk:
            owner, named = places.pop("owner", ""), [*places.values(), *([] if body is None else [body])]
            options = {_OPTIONS[name]: value for name, value in (query or {}).items()}
            return self.session.carry_out(call, operation.sdk, named, options, owner)
        path = operation.path.format(subscription=self.session.subscription, **places)
        return self.session.send(
            call, operation.method, path, body, **{"api-version": operation.version, **(query or {})}
        )

    def find(self, operation: ArmCall, /, query: Body | None = None, **places: str) -> Body | None:
        """The body of the answer to a call; None: the resource does not exist."""
        try:
            return self.send(operation, query=query, **places).body
        except UnknownResource:
            return None

    def pages(self, operation: ArmCall, /, query: Body | None = None, **places: str) -> Iterator[Body]:
        """Everything that a call lists."""
        if operation.sdk:
            owner, options = places.pop("owner", ""), {_OPTIONS[name]: value for name, value in (query or {}).items()}
            call = ApiCall(_title(operation, places), " and ".join(operation.permissions))
            yield from self.session.items(call, operation.sdk, list(places.values()), options, owner)
            return
        answer = self.send(operation, query=query, **places).body
        while True:
            yield from answer.get("value") or ()
            link = answer.get("nextLink")
            if not link:
                return
            call = ApiCall(_title(operation, places), " and ".join(operation.permissions))
            answer = self.session.send(call, operation.method, link).body

    def listed(self, operation: ArmCall, /, query: Body | None = None, **places: str) -> list[Body]:
        """Everything that a call lists; nothing, if the group does not exist."""
        try:
            return list(self.pages(operation, query=query, **places))
        except UnknownResource:
            return []

    def console(self, group: str, name: str) -> str:
        """A machine's serial console output, as far as Azure has it by now."""
        answer = self.send(Operation.CONSOLE, query={"sasUriExpirationTimeInMinutes": 5}, group=group, name=name)
        link = answer.body.get("serialConsoleLogBlobUri")
        if not link:
            return ""
        try:
            return self.session.download(ApiCall(f"console of {group}/{name}", "a signed link"), link).decode(
                errors="replace"
            )
        except UnknownResource:
            return ""

    def sizes(self, region: str) -> Iterator[Any]:
        """The machine sizes of a region, as the SDK describes them."""
        call = ApiCall(f"Azure's machine sizes in {region}", SIZES_PERMISSION)
        for page in self.session.pages(
            call, lambda compute: compute.resource_skus.list(filter=f"location eq '{region}'")
        ):
            yield from page


def _title(operation: ArmCall, places: Mapping[str, str]) -> str:
    where = "/".join(value.rpartition("/")[2] for value in places.values())
    return f"Azure: {operation.name.lower().replace('_', ' ')}{' ' if where else ''}{where}"
