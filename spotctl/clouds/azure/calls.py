"""Every call that spotctl makes to Azure's Resource Manager for machines, with the permissions that it needs.

The policy that `spotctl doctor --policy` prints is the union of these permissions: only calls in this
table can be made, and the policy contains no permission that no call needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pricing_data.errors import UnknownResource
from spotctl.clouds.api_calls import ApiCall

if TYPE_CHECKING:
    from spotctl.clouds.azure.session import ArmAnswer, AzureSession

Body = Mapping[str, Any]

# The versions of the SDK models with which tests check our requests; older ones may lack fields that we send.
COMPUTE_VERSION: Final = "2026-04-01"
NETWORK_VERSION: Final = "2026-03-01"
_RESOURCES_VERSION: Final = "2025-04-01"
_DEPLOYMENTS_VERSION: Final = "2026-06-01"
_DISKS_VERSION: Final = "2025-01-02"
_IDENTITY_VERSION: Final = "2023-01-31"
_LOG_VERSION: Final = "2015-04-01"
_AUTHORIZATION_VERSION: Final = "2022-04-01"

_GROUP = "/subscriptions/{subscription}/resourceGroups/{group}"
_DEPLOYMENTS = _GROUP + "/providers/Microsoft.Resources/deployments"
_MACHINES = _GROUP + "/providers/Microsoft.Compute/virtualMachines"
_RESERVATIONS = (
    "/subscriptions/{owner}/resourceGroups/{group}/providers/Microsoft.Compute/capacityReservationGroups/{name}"
    "/capacityReservations"
)
_LOG = "/subscriptions/{subscription}/providers/Microsoft.Insights/eventtypes/management/values"

_DELETE_MACHINE: Final = (
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/disks/delete",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/publicIPAddresses/delete",
)
MACHINE_PERMISSIONS: Final = _DELETE_MACHINE
"""Needed by the machines' managed identity, with which a machine deletes itself and its disk, interface and address."""


class ArmCall(Enum):
    """A call to Resource Manager: its method, its path, the version of its API, and the permissions that it needs."""

    def __init__(self, method: str, path: str, version: str, permissions: tuple[str, ...]) -> None:
        self.method, self.path, self.version, self.permissions = method, path, version, permissions


class TrialOperation(ArmCall):
    """The calls that only `spotctl try --full` makes."""

    VALIDATE = (
        "POST",
        _DEPLOYMENTS + "/{name}/validate",
        _DEPLOYMENTS_VERSION,
        ("Microsoft.Resources/deployments/validate/action",),
    )
    SIMULATE_EVICTION = (
        "POST",
        _MACHINES + "/{name}/simulateEviction",
        COMPUTE_VERSION,
        ("Microsoft.Compute/virtualMachines/simulateEviction/action",),
    )


class Operation(ArmCall):
    """A method, a path, the version of its API, and the permissions that the call needs."""

    LIST_GROUPS = (
        "GET",
        "/subscriptions/{subscription}/resourceGroups",
        _RESOURCES_VERSION,
        ("Microsoft.Resources/subscriptions/resourceGroups/read",),
    )
    GET_GROUP = ("GET", _GROUP, _RESOURCES_VERSION, ("Microsoft.Resources/subscriptions/resourceGroups/read",))
    PUT_GROUP = ("PUT", _GROUP, _RESOURCES_VERSION, ("Microsoft.Resources/subscriptions/resourceGroups/write",))
    DELETE_GROUP = ("DELETE", _GROUP, _RESOURCES_VERSION, ("Microsoft.Resources/subscriptions/resourceGroups/delete",))
    LIST_RESOURCES = (
        "GET",
        _GROUP + "/resources",
        _RESOURCES_VERSION,
        ("Microsoft.Resources/subscriptions/resourceGroups/read",),
    )
    LIST_DEPLOYMENTS = ("GET", _DEPLOYMENTS, _DEPLOYMENTS_VERSION, ("Microsoft.Resources/deployments/read",))
    GET_DEPLOYMENT = ("GET", _DEPLOYMENTS + "/{name}", _DEPLOYMENTS_VERSION, ("Microsoft.Resources/deployments/read",))
    LIST_STEPS = (
        "GET",
        _GROUP + "/deployments/{name}/operations",
        _DEPLOYMENTS_VERSION,
        ("Microsoft.Resources/deployments/operations/read",),
    )
    DEPLOY = (
        "PUT",
        _DEPLOYMENTS + "/{name}",
        _DEPLOYMENTS_VERSION,
        (
            "Microsoft.Resources/deployments/write",
            "Microsoft.Compute/virtualMachines/write",
            "Microsoft.Compute/disks/write",
            "Microsoft.Compute/proximityPlacementGroups/write",
            "Microsoft.Compute/capacityReservationGroups/deploy/action",
            "Microsoft.Compute/diskEncryptionSets/read",
            "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
            "Microsoft.Network/networkInterfaces/write",
            "Microsoft.Network/networkInterfaces/join/action",
            "Microsoft.Network/networkSecurityGroups/write",
            "Microsoft.Network/networkSecurityGroups/join/action",
            "Microsoft.Network/publicIPAddresses/write",
            "Microsoft.Network/publicIPAddresses/join/action",
            "Microsoft.Network/virtualNetworks/write",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
        ),
    )
    LIST_RESERVATIONS = (
        "GET",
        _RESERVATIONS,
        COMPUTE_VERSION,
        ("Microsoft.Compute/capacityReservationGroups/capacityReservations/read",),
    )
    GET_RESERVATION = (
        "GET",
        _RESERVATIONS + "/{member}",
        COMPUTE_VERSION,
        ("Microsoft.Compute/capacityReservationGroups/capacityReservations/read",),
    )
    LIST_MACHINES = ("GET", _MACHINES, COMPUTE_VERSION, ("Microsoft.Compute/virtualMachines/read",))
    GET_MACHINE = ("GET", _MACHINES + "/{name}", COMPUTE_VERSION, ("Microsoft.Compute/virtualMachines/read",))
    DELETE_MACHINE = ("DELETE", _MACHINES + "/{name}", COMPUTE_VERSION, _DELETE_MACHINE)
    CONSOLE = (
        "POST",
        _MACHINES + "/{name}/retrieveBootDiagnosticsData",
        COMPUTE_VERSION,
        ("Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",),
    )
    LIST_INTERFACES = (
        "GET",
        _GROUP + "/providers/Microsoft.Network/networkInterfaces",
        NETWORK_VERSION,
        ("Microsoft.Network/networkInterfaces/read",),
    )
    LIST_ADDRESSES = (
        "GET",
        _GROUP + "/providers/Microsoft.Network/publicIPAddresses",
        NETWORK_VERSION,
        ("Microsoft.Network/publicIPAddresses/read",),
    )
    GET_NETWORK = (
        "GET",
        _GROUP + "/providers/Microsoft.Network/virtualNetworks/{name}",
        NETWORK_VERSION,
        ("Microsoft.Network/virtualNetworks/read",),
    )
    DELETE_DISK = (
        "DELETE",
        _GROUP + "/providers/Microsoft.Compute/disks/{name}",
        _DISKS_VERSION,
        ("Microsoft.Compute/disks/delete",),
    )
    DELETE_INTERFACE = (
        "DELETE",
        _GROUP + "/providers/Microsoft.Network/networkInterfaces/{name}",
        NETWORK_VERSION,
        ("Microsoft.Network/networkInterfaces/delete",),
    )
    DELETE_ADDRESS = (
        "DELETE",
        _GROUP + "/providers/Microsoft.Network/publicIPAddresses/{name}",
        NETWORK_VERSION,
        ("Microsoft.Network/publicIPAddresses/delete",),
    )
    DELETE_NETWORK = (
        "DELETE",
        _GROUP + "/providers/Microsoft.Network/virtualNetworks/{name}",
        NETWORK_VERSION,
        ("Microsoft.Network/virtualNetworks/delete",),
    )
    GET_RULES = (
        "GET",
        _GROUP + "/providers/Microsoft.Network/networkSecurityGroups/{name}",
        NETWORK_VERSION,
        ("Microsoft.Network/networkSecurityGroups/read",),
    )
    PUT_RULES = (
        "PUT",
        _GROUP + "/providers/Microsoft.Network/networkSecurityGroups/{name}",
        NETWORK_VERSION,
        ("Microsoft.Network/networkSecurityGroups/write",),
    )
    DELETE_RULES = (
        "DELETE",
        _GROUP + "/providers/Microsoft.Network/networkSecurityGroups/{name}",
        NETWORK_VERSION,
        ("Microsoft.Network/networkSecurityGroups/delete",),
    )
    LIST_USAGES = (
        "GET",
        "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{region}/usages",
        COMPUTE_VERSION,
        ("Microsoft.Compute/locations/usages/read",),
    )
    READ_LOG = ("GET", _LOG, _LOG_VERSION, ("Microsoft.Insights/eventtypes/values/read",))
    LIST_ROLES = (
        "GET",
        "/subscriptions/{subscription}/providers/Microsoft.Authorization/roleDefinitions",
        _AUTHORIZATION_VERSION,
        ("Microsoft.Authorization/roleDefinitions/read",),
    )
    LIST_ASSIGNMENTS = (
        "GET",
        "/subscriptions/{subscription}/providers/Microsoft.Authorization/roleAssignments",
        _AUTHORIZATION_VERSION,
        ("Microsoft.Authorization/roleAssignments/read",),
    )
    ASSIGN_ROLE = (
        "PUT",
        _GROUP + "/providers/Microsoft.Authorization/roleAssignments/{name}",
        _AUTHORIZATION_VERSION,
        ("Microsoft.Authorization/roleAssignments/write",),
    )
    GET_IDENTITY = (
        "GET",
        "{identity}",
        _IDENTITY_VERSION,
        ("Microsoft.ManagedIdentity/userAssignedIdentities/read",),
    )


SIZES_PERMISSION: Final = "Microsoft.Compute/skus/read"


def permissions() -> tuple[str, ...]:
    """All permissions that spotctl needs to rent machines, sorted."""
    needed = {permission for operation in Operation for permission in operation.permissions}
    return tuple(sorted({SIZES_PERMISSION, *needed}))


class AzureCalls:
    """Sends the calls above. Raises the errors of `AzureSession` (`CloudError`)."""

    def __init__(self, session: AzureSession) -> None:
        self._session = session

    @property
    def endpoint(self) -> str:
        """The host that answers."""
        return self._session.host

    @property
    def subscription(self) -> str:
        return self._session.subscription

    def send(self, operation: ArmCall, body: object = None, /, query: Body | None = None, **places: str) -> ArmAnswer:
        """The answer to one call; `places` are the parts of its path."""
        call = ApiCall(_title(operation, places), " and ".join(operation.permissions))
        path = operation.path.format(subscription=self.subscription, **places)
        return self._session.send(
            call, operation.method, path, body, **{"api-version": operation.version, **(query or {})}
        )

    def follow(self, operation: ArmCall, answer: ArmAnswer) -> ArmAnswer:
        """The answer behind the link of a call that Azure is still carrying out."""
        call = ApiCall(_title(operation, {}), " and ".join(operation.permissions))
        return self._session.send(call, "GET", answer.headers["Location"])

    def find(self, operation: ArmCall, /, query: Body | None = None, **places: str) -> Body | None:
        """The body of the answer to a call; None: the resource does not exist."""
        try:
            return self.send(operation, query=query, **places).body
        except UnknownResource:
            return None

    def pages(self, operation: ArmCall, /, query: Body | None = None, **places: str) -> Iterator[Body]:
        """Everything that a call lists."""
        answer = self.send(operation, query=query, **places).body
        while True:
            yield from answer.get("value") or ()
            link = answer.get("nextLink")
            if not link:
                return
            call = ApiCall(_title(operation, places), " and ".join(operation.permissions))
            answer = self._session.send(call, operation.method, link).body

    def listed(self, operation: ArmCall, /, query: Body | None = None, **places: str) -> list[Body]:
        """Everything that a call lists; nothing, if the group does not exist."""
        try:
            return list(self.pages(operation, query=query, **places))
        except UnknownResource:
            return []

    def console(self, group: str, name: str) -> str:
        """A machine's serial console output, as far as Azure has it by now."""
        answer = self.send(Operation.CONSOLE, query={"sasUriExpirationTimeInMinutes": "5"}, group=group, name=name)
        link = answer.body.get("serialConsoleLogBlobUri")
        if not link:
            return ""
        try:
            return self._session.download(ApiCall(f"console of {group}/{name}", "a signed link"), link).decode(
                errors="replace"
            )
        except UnknownResource:
            return ""

    def sizes(self, region: str) -> Iterator[Any]:
        """The machine sizes of a region, as the SDK describes them."""
        call = ApiCall(f"Azure's machine sizes in {region}", SIZES_PERMISSION)
        for page in self._session.pages(
            call, lambda compute: compute.resource_skus.list(filter=f"location eq '{region}'")
        ):
            yield from page


def _title(operation: ArmCall, places: Mapping[str, str]) -> str:
    where = "/".join(value.rpartition("/")[2] for value in places.values())
    return f"Azure: {operation.name.lower().replace('_', ' ')}{' ' if where else ''}{where}"
