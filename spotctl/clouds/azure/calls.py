"""Every call to Azure's Resource Manager for machines, with the permissions that it needs, and what
a refusal means.

The policy that `spotctl doctor --policy` prints is the union of these permissions: only calls in
this table can be made, and the policy contains no permission that no call needs. Another table
converts Azure's error codes to errors of the provider contract, with the source of each code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pricing_data.errors import CloudError, UnknownResource
from pricing_data.units import MINUTE
from spotctl.clouds.errors import (
    MADE_WITHIN,
    ApiCall,
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    NotYet,
    QuotaReached,
    Refusal,
    Scope,
    Throttled,
    Unanswered,
    UnknownRefusal,
    error_of_kind,
    refused,
)
from spotctl.home.errors import BadRequest, SpotctlError

if TYPE_CHECKING:
    from spotctl.clouds.azure.session import ArmAnswer, AzureSession
    from spotctl.home.config import Settings


Body = Mapping[str, Any]

# The versions of the SDK models with which tests check our requests; older ones may lack fields
# that we send.
COMPUTE_VERSION: Final = "2026-04-01"
NETWORK_VERSION: Final = "2026-03-01"
_IDENTITY_VERSION: Final = "2023-01-31"
_GALLERY_VERSION: Final = "2026-03-03"

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
_ROLES, _ASSIGNMENTS = (
    "Microsoft.Authorization/roleDefinitions",
    "Microsoft.Authorization/roleAssignments",
)

MACHINE_PERMISSIONS: Final = tuple(
    f"{kind}/delete" for kind in (_MACHINES, _DISKS, _INTERFACES, _ADDRESSES)
)
"""Needed by the machines' managed identity, with which a machine deletes itself and its disk,
interface and address."""

BY_ID = {
    "read": "get_by_id",
    "write": "begin_create_or_update_by_id",
    "delete": "begin_delete_by_id",
}
_CallRow = tuple[str, tuple[str, ...], str]


def _by_id(action: str, kind: str, version: str = NETWORK_VERSION) -> _CallRow:
    """Reads, writes or deletes a resource of a kind whose own SDK is not installed, by its id."""
    return f"resources.resources.{BY_ID[action]}", (f"{kind}/{action}",), version


class ArmCall(Enum):
    """A method of an SDK's client (`CLIENT.GROUP.METHOD`) with the permissions that it needs.

    Methods for resources of any kind have the `version` of the API of one kind.
    """

    def __init__(self, method: str, permissions: tuple[str, ...], version: str = "") -> None:
        self.method, self.permissions, self.version = method, permissions, version


class TrialOperation(ArmCall):
    """The calls that only `spotctl try --full` makes."""

    VALIDATE = "deployments.deployments.begin_validate", (f"{_DEPLOYMENTS}/validate/action",)
    SIMULATE_EVICTION = (
        "compute.virtual_machines.simulate_eviction",
        (f"{_MACHINES}/simulateEviction/action",),
    )


class CheckOperation(ArmCall):
    """The calls that only checks before a launch make."""

    LIST_IMAGES = (
        "compute.virtual_machine_images.list",
        ("Microsoft.Compute/locations/publishers/artifacttypes/offers/skus/versions/read",),
    )


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
    GET_IMAGE = _by_id("read", "Microsoft.Compute/images", COMPUTE_VERSION)
    GET_IMAGE_VERSION = _by_id(
        "read", "Microsoft.Compute/galleries/images/versions", _GALLERY_VERSION
    )
    LIST_ROLES = "authorization.role_definitions.list", (f"{_ROLES}/read",)
    LIST_ASSIGNMENTS = (
        "authorization.role_assignments.list_for_subscription",
        (f"{_ASSIGNMENTS}/read",),
    )
    ASSIGN_ROLE = "authorization.role_assignments.create", (f"{_ASSIGNMENTS}/write",)
    READ_LOG = "monitor.activity_logs.list", ("Microsoft.Insights/eventtypes/values/read",)


PERMISSIONS: Final = tuple(
    sorted({permission for operation in Operation for permission in operation.permissions})
)
"""Needed to rent machines."""


class AzureCalls:
    """Sends the calls above, with the arguments of the SDK's methods. Raises the errors of
    `AzureSession` (`CloudError`)."""

    def __init__(self, session: AzureSession) -> None:
        self.session = session

    def group_id(self, group: str) -> str:
        """The id of a resource group."""
        return f"{self.session.subscription_id}/resourceGroups/{group}"

    def send(
        self,
        operation: ArmCall,
        *named: object,
        owner: str = "",
        **options: Any,  # noqa: ANN401
    ) -> ArmAnswer:  # as the SDKs declare them
        """The answer to one call. `owner` is a subscription other than the session's."""
        if operation.version:
            options["api_version"] = operation.version
        return self.session.carry_out(
            _described(operation, named), operation.method, *named, owner=owner, **options
        )

    # As the SDKs declare them.
    def find(self, operation: ArmCall, *named: object, **options: Any) -> Body | None:  # noqa: ANN401
        """The body of the answer to a call; None: the resource does not exist."""
        try:
            return self.send(operation, *named, **options).body
        except UnknownResource:
            return None

    def pages(
        self,
        operation: ArmCall,
        *named: object,
        owner: str = "",
        **options: Any,  # noqa: ANN401
    ) -> Iterator[Body]:  # as the SDKs declare them
        """Everything that a call lists."""
        return self.session.items(
            _described(operation, named), operation.method, *named, owner=owner, **options
        )

    # As the SDKs declare them.
    def listed(self, operation: ArmCall, *named: object, **options: Any) -> list[Body]:  # noqa: ANN401
        """Everything that a call lists; nothing, if the group does not exist."""
        try:
            return list(self.pages(operation, *named, **options))
        except UnknownResource:
            return []

    def sizes(self, region: str) -> Iterator[Any]:
        """The machine sizes of a region, as the SDK describes them."""
        call = ApiCall(
            f"Azure's machine sizes in {region}", " and ".join(Operation.LIST_SIZES.permissions)
        )
        return self.session.items(
            call, Operation.LIST_SIZES.method, filter=f"location eq '{region}'"
        )

    def listed_versions(self, region: str, publisher: str, offer: str, sku: str) -> list[str]:
        """The versions of a public image, oldest first; empty if there is no such image."""
        call = _described(CheckOperation.LIST_IMAGES, (region, publisher, offer, sku))
        try:
            return self.session.names(
                call, CheckOperation.LIST_IMAGES.method, region, publisher, offer, sku
            )
        except UnknownResource:
            return []


def _described(operation: ArmCall, named: tuple[object, ...]) -> ApiCall:
    """A call by its title and the names that it is about."""
    names = [name for name in named if isinstance(name, str)]
    where = "/".join(name.rpartition("/")[2] for name in names)
    problem = f"Azure: {operation.name.lower().replace('_', ' ')}{(' ' if where else '')}{where}"
    return ApiCall(problem, " and ".join(operation.permissions))


PRICES: Final = (
    "Microsoft.Compute/skus/read",
    "Microsoft.ResourceGraph/resources/read",
)
"""Needed to fetch prices."""

DOCTOR: Final = (
    "Microsoft.Authorization/permissions/read",
    "Microsoft.Resources/subscriptions/providers/read",
    *(permission for operation in CheckOperation for permission in operation.permissions),
)
"""Needed to check what the account has."""

MACHINE_ROLE: Final = "spotctl-machine"
"""The name of the machines' role."""

ALL: Final = tuple(sorted({*PERMISSIONS, *PRICES, *DOCTOR}))
"""Needed by the launcher."""


TRIAL: Final = tuple(
    sorted(permission for call in TrialOperation for permission in call.permissions)
)
"""Needed by `spotctl try --full`, besides what the launcher needs."""


_POLICIES: Final = {
    "azure": ("spotctl", "The least that spotctl needs to rent machines.", ALL),
    "azure-machines": (
        MACHINE_ROLE,
        "Lets spotctl's machines delete themselves.",
        MACHINE_PERMISSIONS,
    ),
    "azure-try": ("spotctl-try", "Lets spotctl try check orders and simulate evictions.", TRIAL),
}


def role(policy: str, settings: Settings) -> dict[str, Any]:
    """A role, as `az role definition create` reads it: of a user or service principal that
    launches, of the managed identity with which machines delete themselves, or what `spotctl try
    --full` needs besides the launcher's."""
    name, description, actions = _POLICIES[policy]
    subscription = settings.text("azure_subscription") or os.environ.get("AZURE_SUBSCRIPTION_ID")
    return {
        "Name": name,
        "IsCustom": True,
        "Description": description,
        "Actions": list(actions),
        "NotActions": [],
        "DataActions": [],
        "NotDataActions": [],
        "AssignableScopes": [f"/subscriptions/{subscription or 'SUBSCRIPTION'}"],
    }


_DOCS: Final = "learn.microsoft.com/azure/"
_ALLOCATION: Final = _DOCS + "azure-resource-manager/troubleshooting/error-sku-not-available"
_CAPACITY: Final = _DOCS + "virtual-machines/troubleshooting/allocation-failure"
_SPOT: Final = _DOCS + "virtual-machines/error-codes-spot"
_QUOTA: Final = _DOCS + "azure-resource-manager/troubleshooting/error-resource-quota"
_COMMON: Final = _DOCS + "azure-resource-manager/troubleshooting/common-deployment-errors"
_COMPUTE: Final = _DOCS + "virtual-machines/troubleshooting/error-messages"
_THROTTLING: Final = _DOCS + "azure-resource-manager/management/request-limits-and-throttling"
_GENERATIONS: Final = _DOCS + "virtual-machines/generation-2"
_REGIONS: Final = _DOCS + "azure-resource-manager/troubleshooting/error-region-access-policy"
_RESERVATION_DOCS: Final = _DOCS + "virtual-machines/capacity-reservation-overview"
_REGISTRATION: Final = (
    _DOCS + "azure-resource-manager/troubleshooting/error-register-resource-provider"
)

NAMESPACES: Final = ("Microsoft.Compute", "Microsoft.Network", "Microsoft.ManagedIdentity")
"""The resource providers that a subscription must have registered; a new subscription has not."""

REGISTER: Final = (
    f"run once, as an owner: {'; '.join(f'az provider register -n {name}' for name in NAMESPACES)}"
)


_SPOT_LIMITS: Final = _DOCS + "virtual-machines/spot-vms#limitations"
_FREE: Final = "https://github.com/MicrosoftDocs/azure-docs/issues/55435"
_ADDRESSES_SEEN: Final = "https://github.com/giantswarm/azure-operator/issues/163"
_TERMS_SEEN: Final = "https://github.com/hashicorp/terraform-provider-azurerm/issues/1145"
_BEST_REGIONS: Final = "https://github.com/Azure/azure-cli/issues/32567"
_ZONES: Final = "https://github.com/kubernetes-sigs/cluster-api-provider-azure/issues/294"
_OLD_IMAGE: Final = "https://github.com/Orange-Cyberdefense/GOAD/issues/248"
_NEW_IDENTITY: Final = _DOCS + "role-based-access-control/troubleshooting"
_KEY: Final = _DOCS + "virtual-machines/disk-encryption-overview"

RAISE_COMMAND: Final = (
    "az quota create --resource-name {quota} --scope "
    "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{region} "
    "--limit-object value={limit} (after az extension add --name quota)"
)
"""Asks for a higher quota: https://learn.microsoft.com/cli/azure/quota"""
_RAISE_QUOTA: Final = (
    "request more in the Azure portal under Quotas, or with "
    + RAISE_COMMAND.format(
        quota="lowPriorityCores", subscription="SUBSCRIPTION", region="REGION", limit="VCPUS"
    )
)
_NO_SPOT: Final = (
    "free, student and sponsored subscriptions rent no Spot machines: upgrade to pay-as-you-go in "
    "the Azure portal, or rent on demand"
)
_UPGRADE: Final = (
    "the subscription's offer does not allow it: upgrade to pay-as-you-go in the Azure portal"
)
_FEW_ADDRESSES: Final = (
    "each machine has a public address: use fewer machines or more regions, set public_ip = false "
    "in [azure], or request more in the Azure portal under Quotas: Public IP Addresses"
)
_TERMS: Final = (
    "accept the terms of the image's product (az vm image terms accept --urn "
    "PUBLISHER:OFFER:SKU:VERSION), or name"
    " another image"
)
_OTHER_REGION: Final = "the subscription may not use this region: name others under regions"
_ASK: Final = "only who administers the company's policies can allow it"
_NEW: Final = (
    f"Azure may need {MADE_WITHIN // MINUTE} minutes to know a new identity, and spotctl tries "
    "again as long. If it is not new, correct identity in [azure] or in the job (az identity list)"
)
_LEGAL: Final = r"legal terms"

_MACHINE, _ZONE, _REGION, _ACCOUNT, _MOMENT = (
    Scope.MACHINE,
    Scope.ZONE,
    Scope.REGION,
    Scope.ACCOUNT,
    Scope.MOMENT,
)
_IN_DETAIL: Final = (
    Refusal(
        "OperationNotAllowed",
        NoCapacity,
        _MACHINE,
        source=_SPOT,
        text=r"max price .* is lower than the current spot price",
    ),
    Refusal("BadRequest", NotFound, _MACHINE, source=_GENERATIONS, text=r"hypervisor generation"),
    Refusal(
        "InvalidParameter", NotFound, _MACHINE, source=_GENERATIONS, text=r"hypervisor generation"
    ),
    # Azure does not document its codes for reservations that do not have what the machine needs.
    *(
        Refusal(
            code,
            NotFound,
            _MACHINE,
            "correct the job's reservations",
            _RESERVATION_DOCS,
            r"capacity ?reservation",
        )
        for code in ("OperationNotAllowed", "BadRequest", "InvalidParameter", "Conflict")
    ),
    Refusal("BadRequest", NotPermitted, _ACCOUNT, _TERMS, _TERMS_SEEN, _LEGAL),
    Refusal("OperationNotAllowed", QuotaReached, Scope.TYPE, _RAISE_QUOTA, _QUOTA, r"quota"),
    Refusal(
        "OperationNotAllowed",
        Throttled,
        _MOMENT,
        source=_THROTTLING,
        text=r"too many requests|rate limit",
    ),
    Refusal(
        "OperationNotAllowed",
        QuotaReached,
        _ACCOUNT,
        _NO_SPOT,
        _SPOT_LIMITS,
        r"\bspot\b|low.?priority",
    ),
    Refusal(
        "OperationNotAllowed",
        NotPermitted,
        _ACCOUNT,
        _UPGRADE,
        _FREE,
        r"free (trial|account|subs)|student|offer",
    ),
    Refusal(
        "RequestDisallowedByPolicy",
        NotHere,
        Scope.ORGANISATION,
        _ASK,
        _REGIONS,
        r"allowed locations|location",
    ),
    Refusal("MissingSubscriptionRegistration", NotPermitted, _ACCOUNT, REGISTER, _REGISTRATION),
    Refusal("SubscriptionNotRegistered", NotPermitted, _ACCOUNT, REGISTER, _REGISTRATION),
)
_CODES: Final = {
    # No machine of this kind, here and now, or ever.
    (NoCapacity, _MACHINE, "", _ALLOCATION): "SkuNotAvailable",
    (NoCapacity, _MACHINE, "", _CAPACITY): """
        AllocationFailed ZonalAllocationFailed OverconstrainedAllocationRequest OverconstrainedZonalAllocationRequest
    """,
    (NoCapacity, _MACHINE, "", _SPOT): """
        VMSizeIsNotPermittedToEnableSpot AzureSpotIsNotSupportedForThisVMSize SpotPriceGreaterThanProvidedMaxPrice
    """,
    (NotHere, _REGION, "", _COMMON): "LocationNotAvailableForResourceType",
    (NotHere, _ZONE, "other zones are tried, and the region without a zone", _ZONES): """
        AvailabilityZoneNotSupported InvalidAvailabilityZone ResourceTypeNotSupportAvailabilityZones
        ZonesNotAvailableForSku
    """,
    # The account's limits and rights.
    (
        QuotaReached,
        Scope.TYPE,
        _RAISE_QUOTA,
        _QUOTA,
    ): "QuotaExceeded ResourceQuotaExceeded ResourceGroupQuotaExceeded",
    (QuotaReached, _REGION, _FEW_ADDRESSES, _ADDRESSES_SEEN): """
        PublicIPCountLimitReached StaticPublicIPCountLimitReached IPv4StandardSkuPublicIpCountLimitReached
    """,
    (QuotaReached, _ACCOUNT, "", _COMMON): "DeploymentQuotaExceeded",
    (QuotaReached, _MACHINE, "", _ALLOCATION): "NotAvailableForSubscription",
    (QuotaReached, _ACCOUNT, _NO_SPOT, _SPOT): "AzureSpotFeatureNotEnabledForSubscription",
    (NotPermitted, _ACCOUNT, "", _COMMON): """
        AuthorizationFailed LinkedAuthorizationFailed ScopeLocked ReadOnlyDisabledSubscription DisallowedOperation
        SubscriptionNotFound
    """,
    (NotPermitted, Scope.ORGANISATION, _ASK, _COMMON): "RequestDisallowedByPolicy",
    (NotPermitted, _ACCOUNT, _TERMS, _TERMS_SEEN): """
        MarketplacePurchaseEligibilityFailed ResourcePurchaseValidationFailed ResourcePurchaseCanceled
    """,
    (
        NotPermitted,
        _ACCOUNT,
        "let the disk encryption set use its key",
        _KEY,
    ): "KeyVaultAccessForbidden",
    (NotPermitted, _ACCOUNT, "register the feature for the subscription", _COMMON): """
        SubscriptionNotRegisteredForFeature
    """,
    (NotHere, _REGION, _OTHER_REGION, _BEST_REGIONS): "RequestDisallowedByAzure",
    (LoginNeeded, _ACCOUNT, "", _COMMON): "InvalidAuthenticationToken ExpiredAuthenticationToken",
    # The same call succeeds after a pause.
    (Throttled, _MOMENT, "", _THROTTLING): "TooManyRequests SubscriptionRequestsThrottled",
    (
        Throttled,
        _MOMENT,
        "",
        _COMMON,
    ): "ResourceGroupBeingDeleted AnotherOperationInProgress RetryableError Conflict",
    (NotYet, _MOMENT, _NEW, _NEW_IDENTITY): "PrincipalNotFound",
    # It may have been carried out.
    (Unanswered, _MOMENT, "", _COMMON): "DeploymentActive",
    (Unanswered, _MOMENT, "", _COMPUTE): """
        InternalServerError InternalExecutionError NetworkingInternalOperationError OperationPreempted
    """,
    # What the request or the settings name does not exist, or cannot be had together.
    (BadRequest, _ACCOUNT, "", _COMPUTE): """
        InvalidParameter PropertyChangeNotAllowed PlatformImageNotFound ImageNotFound VMMarketplaceInvalidInput
    """,
    (BadRequest, _ACCOUNT, "", _COMMON): """
        BadRequest InvalidResourceReference LinkedInvalidPropertyId FailedIdentityOperation
    """,
    (BadRequest, _ACCOUNT, "name a newer version of the image", _OLD_IMAGE): """
        ImageVersionDeprecated
    """,
    (BadRequest, _ACCOUNT, "", _SPOT): "MaxPriceValueInvalid",
}
REFUSALS: Final = (
    *_IN_DETAIL,
    *(Refusal(code, *meaning) for meaning, codes in _CODES.items() for code in codes.split()),
)
"""The first that fits decides, so those that depend on a text come first."""


def of_deployment(code: str, text: str) -> SpotctlError:
    """The error for a deployment that Azure refused with this code."""
    return refused(REFUSALS, code, text, text, any_case=True) or UnknownRefusal(text, code)


@contextmanager
def translated(subject: str = "") -> Iterator[None]:
    """Turns errors of Azure's calls into those of the provider contract, with Azure's own words."""
    try:
        yield
    except CloudError as error:
        text = f"{subject}: {error}" if subject else str(error)
        known = refused(REFUSALS, error.code, text, text, any_case=True)
        raise (known or error_of_kind(error, text)) from error
