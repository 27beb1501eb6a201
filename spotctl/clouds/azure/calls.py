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
_RESOURCES_VERSION: Final = "2025-04-01"
_DEPLOYMENTS_VERSION: Final = "2026-06-01"
_DISKS_VERSION: Final = "2025-01-02"
_IDENTITY_VERSION: Final = "2023-01-31"
_LOG_VERSION: Final = "2015-04-01"
_AUTHORIZATION_VERSION: Final = "2022-04-01"

_SUBSCRIPTION = "/subscriptions/{subscription}"
_GROUP = f"{_SUBSCRIPTION}/resourceGroups/{{group}}"
_RESERVATIONS = (
    "/subscriptions/{owner}/resourceGroups/{group}/providers/Microsoft.Compute/capacityReservationGroups/{name}"
    "/capacityReservations"
)
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
_VERBS = {"GET": "read", "PUT": "write", "DELETE": "delete"}


def _listing(kind: str, version: str, scope: str = _GROUP) -> _CallRow:
    """Lists the resources of a kind."""
    return "GET", f"{scope}/providers/{kind}", version, (f"{kind}/read",)


def _resource(method: str, kind: str, version: str) -> _CallRow:
    """Reads, writes or deletes a resource of a group."""
    return method, f"{_GROUP}/providers/{kind}/{{name}}", version, (f"{kind}/{_VERBS[method]}",)


def _action(kind: str, action: str, version: str) -> _CallRow:
    """Has a resource of a group do something."""
    return "POST", f"{_GROUP}/providers/{kind}/{{name}}/{action}", version, (f"{kind}/{action}/action",)


class ArmCall(Enum):
    """A call to Resource Manager: its method, its path, the version of its API, and the permissions that it needs."""

    def __init__(self, method: str, path: str, version: str, permissions: tuple[str, ...]) -> None:
        self.method, self.path, self.version, self.permissions = method, path, version, permissions


class TrialOperation(ArmCall):
    """The calls that only `spotctl try --full` makes."""

    VALIDATE = _action(_DEPLOYMENTS, "validate", _DEPLOYMENTS_VERSION)
    SIMULATE_EVICTION = _action(_MACHINES, "simulateEviction", COMPUTE_VERSION)


class Operation(ArmCall):
    """All other calls."""

    LIST_GROUPS = ("GET", f"{_SUBSCRIPTION}/resourceGroups", _RESOURCES_VERSION, _READ_GROUPS)
    GET_GROUP = ("GET", _GROUP, _RESOURCES_VERSION, _READ_GROUPS)
    PUT_GROUP = ("PUT", _GROUP, _RESOURCES_VERSION, ("Microsoft.Resources/subscriptions/resourceGroups/write",))
    DELETE_GROUP = ("DELETE", _GROUP, _RESOURCES_VERSION, ("Microsoft.Resources/subscriptions/resourceGroups/delete",))
    LIST_RESOURCES = ("GET", f"{_GROUP}/resources", _RESOURCES_VERSION, _READ_GROUPS)
    LIST_DEPLOYMENTS = _listing(_DEPLOYMENTS, _DEPLOYMENTS_VERSION)
    GET_DEPLOYMENT = _resource("GET", _DEPLOYMENTS, _DEPLOYMENTS_VERSION)
    LIST_STEPS = (
        "GET",
        f"{_GROUP}/deployments/{{name}}/operations",
        _DEPLOYMENTS_VERSION,
        (f"{_DEPLOYMENTS}/operations/read",),
    )
    DEPLOY = (
        "PUT",
        f"{_GROUP}/providers/{_DEPLOYMENTS}/{{name}}",
        _DEPLOYMENTS_VERSION,
        (
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
        ),
    )
    LIST_RESERVATIONS = ("GET", _RESERVATIONS, COMPUTE_VERSION, _READ_RESERVATIONS)
    GET_RESERVATION = ("GET", f"{_RESERVATIONS}/{{member}}", COMPUTE_VERSION, _READ_RESERVATIONS)
    LIST_MACHINES = _listing(_MACHINES, COMPUTE_VERSION)
    GET_MACHINE = _resource("GET", _MACHINES, COMPUTE_VERSION)
    DELETE_MACHINE = ("DELETE", f"{_GROUP}/providers/{_MACHINES}/{{name}}", COMPUTE_VERSION, MACHINE_PERMISSIONS)
    CONSOLE = _action(_MACHINES, "retrieveBootDiagnosticsData", COMPUTE_VERSION)
    LIST_INTERFACES = _listing(_INTERFACES, NETWORK_VERSION)
    LIST_ADDRESSES = _listing(_ADDRESSES, NETWORK_VERSION)
    GET_NETWORK = _resource("GET", _NETWORKS, NETWORK_VERSION)
    DELETE_DISK = _resource("DELETE", _DISKS, _DISKS_VERSION)
    DELETE_INTERFACE = _resource("DELETE", _INTERFACES, NETWORK_VERSION)
    DELETE_ADDRESS = _resource("DELETE", _ADDRESSES, NETWORK_VERSION)
    DELETE_NETWORK = _resource("DELETE", _NETWORKS, NETWORK_VERSION)
    GET_RULES = _resource("GET", _RULES, NETWORK_VERSION)
    PUT_RULES = _resource("PUT", _RULES, NETWORK_VERSION)
    DELETE_RULES = _resource("DELETE", _RULES, NETWORK_VERSION)
    LIST_USAGES = (
        "GET",
        f"{_SUBSCRIPTION}/providers/Microsoft.Compute/locations/{{region}}/usages",
        COMPUTE_VERSION,
        ("Microsoft.Compute/locations/usages/read",),
    )
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
