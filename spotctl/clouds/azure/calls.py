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

_DEPLOYMENTS, _MACHINES, _DISKS, _IDENTITIES = (
    "Microsoft.Resources/deployments",
    "Microsoft.Compute/virtualMachines",
    "Microsoft.Compute/disks",
    "Microsoft.ManagedIdentity/userAssignedIdentities",
)
_INTERFACES, _ADDRESSES, NETWORKS, RULES = (
    "Microsoft.Network/networkInterfaces",
    "Microsoft.Network/publicIPAddresses",
    "Microsoft.Network/virtualNetworks",
    "Microsoft.Network/networkSecurityGroups",
)
_GROUPS = "Microsoft.Resources/subscriptions/resourceGroups"
_RESERVATIONS = "Microsoft.Compute/capacityReservationGroups/capacityReservations"
_ROLES, _ASSIGNMENTS = "Microsoft.Authorization/roleDefinitions", "Microsoft.Authorization/roleAssignments"

MACHINE_PERMISSIONS: Final = tuple(f"{kind}/delete" for kind in (_MACHINES, _DISKS, _INTERFACES, _ADDRESSES))
"""Needed by the machines' managed identity, with which a machine deletes itself and its disk, interface and address."""

_BY_ID = {"read": "get_by_id", "write": "begin_create_or_update_by_id", "delete": "begin_delete_by_id"}
_CallRow = tuple[str, tuple[str, ...], str]


def _by_id(action: str, kind: str, version: str = NETWORK_VERSION) -> _CallRow:
    """Reads, writes or deletes a resource of a kind whose own SDK is not installed, by its id."""
    return f"resources.resources.{_BY_ID[action]}", (f"{kind}/{action}",), version


class ArmCall(Enum):
    """A method of an SDK's client (`CLIENT.GROUP.METHOD`) with the permissions that it needs.

    Methods for resources of any kind have the `version` of the API of one kind.
    """

    def __init__(self, method: str, permissions: tuple[str, ...], version: str = "") -> None:
        self.method, self.permissions, self.version = method, permissions, version


class TrialOperation(ArmCall):
    """The calls that only `spotctl try --full` makes."""

    VALIDATE = "deployments.deployments.begin_validate", (f"{_DEPLOYMENTS}/validate/action",)
    SIMULATE_EVICTION = "compute.virtual_machines.simulate_eviction", (f"{_MACHINES}/simulateEviction/action",)


class Operation(ArmCall):
    """All other calls."""

    LIST_GROUPS = "resources.resource_groups.list", (f"{_GROUPS}/read",)
    GET_GROUP = "resources.resource_groups.get", (f"{_GROUPS}/read",)
    PUT_GROUP = "resources.resource_groups.create_or_update", (f"{_GROUPS}/write",)
    DELETE_GROUP = "resources.resource_groups.begin_delete", (f"{_GROUPS}/delete",)
    LIST_RESOURCES = "resources.resources.list_by_resource_group", (f"{_GROUPS}/read",)
    LIST_DEPLOYMENTS = "deployments.deployments.list_by_resource_group", (f"{_DEPLOYMENTS}/read",)
    GET_DEPLOYMENT = "deployments.deployments.get", (f"{_DEPLOYMENTS}/read",)
    LIST_STEPS = "deployments.deployment_operations.list", (f"{_DEPLOYMENTS}/operations/read",)
    DEPLOY = (
        "deployments.deployments.begin_create_or_update",
        (
            f"{_DEPLOYMENTS}/write",
            f"{_MACHINES}/write",
            f"{_DISKS}/write",
            "Microsoft.Compute/proximityPlacementGroups/write",
            "Microsoft.Compute/capacityReservationGroups/deploy/action",
            "Microsoft.Compute/diskEncryptionSets/read",
            f"{_IDENTITIES}/assign/action",
            f"{_INTERFACES}/write",
            f"{_INTERFACES}/join/action",
            f"{RULES}/write",
            f"{RULES}/join/action",
            f"{_ADDRESSES}/write",
            f"{_ADDRESSES}/join/action",
            f"{NETWORKS}/write",
            f"{NETWORKS}/subnets/join/action",
        ),
    )
    LIST_RESERVATIONS = (
        "compute.capacity_reservations.list_by_capacity_reservation_group",
        (f"{_RESERVATIONS}/read",),
    )
    GET_RESERVATION = "compute.capacity_reservations.get", (f"{_RESERVATIONS}/read",)
    LIST_MACHINES = "compute.virtual_machines.list", (f"{_MACHINES}/read",)
    GET_MACHINE = "compute.virtual_machines.get", (f"{_MACHINES}/read",)
    DELETE_MACHINE = "compute.virtual_machines.begin_delete", MACHINE_PERMISSIONS
    CONSOLE = (
        "compute.virtual_machines.retrieve_boot_diagnostics_data",
        (f"{_MACHINES}/retrieveBootDiagnosticsData/action",),
    )
    LIST_SIZES = "compute.resource_skus.list", ("Microsoft.Compute/skus/read",)
    LIST_USAGES = "compute.usage.list", ("Microsoft.Compute/locations/usages/read",)
    DELETE_DISK = "compute.disks.begin_delete", (f"{_DISKS}/delete",)
    GET_INTERFACE = _by_id("read", _INTERFACES)
    GET_ADDRESS = _by_id("read", _ADDRESSES)
    GET_NETWORK = _by_id("read", NETWORKS)
    GET_RULES = _by_id("read", RULES)
    PUT_RULES = _by_id("write", RULES)
    DELETE_INTERFACE = _by_id("delete", _INTERFACES)
    DELETE_ADDRESS = _by_id("delete", _ADDRESSES)
    DELETE_NETWORK = _by_id("delete", NETWORKS)
    DELETE_RULES = _by_id("delete", RULES)
    GET_IDENTITY = _by_id("read", _IDENTITIES, _IDENTITY_VERSION)
    LIST_ROLES = "authorization.role_definitions.list", (f"{_ROLES}/read",)
    LIST_ASSIGNMENTS = "authorization.role_assignments.list_for_subscription", (f"{_ASSIGNMENTS}/read",)
    ASSIGN_ROLE = "authorization.role_assignments.create", (f"{_ASSIGNMENTS}/write",)
    READ_LOG = "monitor.activity_logs.list", ("Microsoft.Insights/eventtypes/values/read",)


def permissions() -> tuple[str, ...]:
    """All permissions that spotctl needs to rent machines, sorted."""
    return tuple(sorted({permission for operation in Operation for permission in operation.permissions}))


class AzureCalls:
    """Sends the calls above, with the arguments of the SDK's methods. Raises the errors of `AzureSession`
    (`CloudError`)."""

    def __init__(self, session: AzureSession) -> None:
        self.session = session

    def group_id(self, group: str) -> str:
        """The id of a resource group."""
        return f"{self.session.subscription_id}/resourceGroups/{group}"

    def send(self, operation: ArmCall, *named: object, owner: str = "", **options: Any) -> ArmAnswer:  # noqa: ANN401  # as the SDKs declare them
        """The answer to one call. `owner` is a subscription other than the session's."""
        if operation.version:
            options["api_version"] = operation.version
        return self.session.carry_out(_described(operation, named), operation.method, *named, owner=owner, **options)

    def find(self, operation: ArmCall, *named: object, **options: Any) -> Body | None:  # noqa: ANN401  # as the SDKs declare them
        """The body of the answer to a call; None: the resource does not exist."""
        try:
            return self.send(operation, *named, **options).body
        except UnknownResource:
            return None

    def pages(self, operation: ArmCall, *named: object, owner: str = "", **options: Any) -> Iterator[Body]:  # noqa: ANN401  # as the SDKs declare them
        """Everything that a call lists."""
        return self.session.items(_described(operation, named), operation.method, *named, owner=owner, **options)

    def listed(self, operation: ArmCall, *named: object, **options: Any) -> list[Body]:  # noqa: ANN401  # as the SDKs declare them
        """Everything that a call lists; nothing, if the group does not exist."""
        try:
            return list(self.pages(operation, *named, **options))
        except UnknownResource:
            return []

    def sizes(self, region: str) -> Iterator[Any]:
        """The machine sizes of a region, as the SDK describes them."""
        call = ApiCall(f"Azure's machine sizes in {region}", " and ".join(Operation.LIST_SIZES.permissions))
        return self.session.items(call, Operation.LIST_SIZES.method, filter=f"location eq '{region}'")

    def console(self, group: str, name: str) -> str:
        """A machine's serial console output, as far as Azure has it by now."""
        answer = self.send(Operation.CONSOLE, group, name, sas_uri_expiration_time_in_minutes=5)
        link = answer.body.get("serialConsoleLogBlobUri")
        if not link:
            return ""
        try:
            return self.session.download(ApiCall(f"console of {group}/{name}", "a signed link"), link).decode(
                errors="replace"
            )
        except UnknownResource:
            return ""


def _described(operation: ArmCall, named: tuple[object, ...]) -> ApiCall:
    """A call by its title and the names that it is about."""
    names = [name for name in named if isinstance(name, str)]
    where = "/".join(name.rpartition("/")[2] for name in names)
    return ApiCall(
        f"Azure: {operation.name.lower().replace('_', ' ')}{' ' if where else ''}{where}",
        " and ".join(operation.permissions),
    )
