"""`GcpCalls`: the calls to Compute Engine, the permissions that they need, and what a refusal
means.

The SDK follows pages, repeats failed calls (`GcpSession`), and waits for operations where they are.
Its own futures are not used: they would poll Google's public address even where another one is set.

`spotctl doctor --policy gcp` prints the permissions. Their source is the section "IAM Permissions"
of each method's page in the Compute Engine API reference
(https://cloud.google.com/compute/docs/reference/rest/v1).

Compute Engine refuses at the call, with a `reason` (`quotaExceeded`), or later, in the operation
that the call began, with a `code` (`QUOTA_EXCEEDED`). Codes that are not in the table end as
UnknownRefusal with Google's own words. Refusals about reservations have codes that mean something
else in other messages, so their words decide.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from pricing_data.units import MINUTE
from spotctl.clouds.errors import (
    MADE_WITHIN,
    ApiCall,
    NoCapacity,
    NotFound,
    NotHere,
    NotPermitted,
    NotYet,
    PartlyListed,
    ProviderError,
    QuotaReached,
    Refusal,
    Scope,
    Throttled,
    Unanswered,
    UnknownRefusal,
    error_of_call,
    in_contract,
    refused,
)
from spotctl.clouds.gcp import orders
from spotctl.clouds.gcp.inventory import failure_of, is_pending
from spotctl.clouds.gcp.session import GcpSession, UnreachedScopes
from spotctl.home.errors import BadRequest, SpotctlError

WAIT_SECONDS = 60.0
"""The longest wait for an operation. The run's loop must renew leases in between, and will ask
again."""
_IMAGE = re.compile(
    r"projects/(?P<project>[^/]+)/global/images/(?P<family>family/)?(?P<name>[^/]+)$"
)


class GcpCalls:
    """Answers are the SDK's messages. A missing resource raises NotFound, or is None where the
    method says so.
    """

    def __init__(self, session: GcpSession) -> None:
        self.session = session
        self._least_gib: dict[str, int] = {}

    # The SDK's messages.
    def call(self, method: Method, what: str, **request: object) -> Any:  # noqa: ANN401
        with in_contract(of_call):
            message = {"project": self.session.project, **request}
            call = _described(method, what)
            return self.session.answer(call, method.service, method.name, message)

    # The SDK's messages.
    def unless_missing(self, method: Method, what: str, **request: object) -> Any | None:  # noqa: ANN401
        """The answer of the method; None if the resource does not exist."""
        try:
            return self.call(method, what, **request)
        except NotFound:
            return None

    # The SDK's messages.
    def image(self, path: str) -> Any:  # noqa: ANN401
        """An image, or the newest of a family. BadRequest: it does not exist, or the path names
        none."""
        where = _IMAGE.search(path)
        if where is None:
            problem = (
                f"image {path!r} is not projects/PROJECT/global/images/NAME, or .../family/NAME"
            )
            raise BadRequest(problem)

        method, named = GET_IMAGE, "image"
        if where["family"]:
            method, named = GET_IMAGE_OF_FAMILY, "family"
        asked = {"project": where["project"], named: where["name"]}
        try:
            return self.call(method, f"image {path}", **asked)
        except NotFound as error:
            raise BadRequest(str(error)) from error

    def least_gib(self, image: str | None) -> int:
        """The size of an image that the job or the settings name; 0 if neither does, since the
        usual disks hold the usual images, or if it may not be read."""
        if not image:
            return 0
        if image not in self._least_gib:
            self._least_gib[image] = 0
            with suppress(NotPermitted):
                self._least_gib[image] = int(self.image(image).disk_size_gb)
        return self._least_gib[image]

    def listed(self, method: Method, what: str, chosen: str) -> list[Any]:
        """All items that match a filter: all pages, or an error."""
        with in_contract(of_call):
            request = {"project": self.session.project, "filter": chosen}
            pages = self.session.pages(_described(method, what), method.service, request)
            return [item for page in pages for item in page]

    def listed_everywhere(
        self, method: Method, what: str, chosen: str
    ) -> tuple[list[Any], PartlyListed | None]:
        """All items that match a filter, in all zones and regions, and the error of those that did
        not answer.
        """
        items: list[Any] = []
        with in_contract(of_call):
            request = {"project": self.session.project, "filter": chosen}
            listed = self.session.scoped(_described(method, what), method.service, request)
            try:
                for item in listed:
                    items.append(item)  # noqa: PERF402 - items listed before an error are kept
            except UnreachedScopes as error:
                parts = [orders.machine_id(scope, "") for scope in error.scopes]
                return items, PartlyListed(Unanswered(str(error)), items, parts)

        return items, None

    # The SDK's messages.
    def wait_for(self, operation: str, what: str, place: str | None = None) -> Any:  # noqa: ANN401
        """Returns an operation of a zone, of a region, or without either once it has ended, even if
        it failed.

        Unanswered: it takes too long.
        """
        method, where = WAIT_GLOBALLY, dict[str, str]()
        # The name of a zone is that of its region with one more part.
        if place is not None and place.count("-") > 1:
            method, where = WAIT_IN_ZONE, {"zone": place}
        elif place is not None:
            method, where = WAIT_IN_REGION, {"region": place}

        give_up = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < give_up:
            answer = self.call(method, what, operation=operation, **where)
            if not is_pending(answer):
                return answer
        raise Unanswered(f"gcp: {what}: operation {operation} has not ended; try again later")

    def finish(self, operation: str, what: str, place: str | None = None) -> None:
        """Waits for an operation; raises the operation's error if it failed."""
        ended = self.wait_for(operation, what, place)
        if (failure := failure_of(ended)) is not None:
            raise of_operation(what, *failure)


def _described(method: Method, what: str) -> ApiCall:
    return ApiCall(what, " and ".join(method.permissions))


class Method(NamedTuple):
    """A method of a service's client in the SDK, and the permissions that it needs."""

    service: str
    name: str
    permissions: tuple[str, ...]


INSERT_INSTANCE = Method(
    "Instances",
    "insert_unary",
    (
        "compute.instances.create",
        "compute.disks.create",
        "compute.disks.setLabels",
        "compute.images.useReadOnly",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setServiceAccount",
        "compute.instances.setTags",
        "compute.networks.use",
        "compute.resourcePolicies.use",
        "compute.subnetworks.use",
        "compute.subnetworks.useExternalIp",
    ),
)
GET_INSTANCE = Method("Instances", "get", ("compute.instances.get",))
LIST_INSTANCES = Method("Instances", "aggregated_list", ("compute.instances.list",))
DELETE_INSTANCE = Method("Instances", "delete_unary", ("compute.instances.delete",))
READ_CONSOLE = Method(
    "Instances", "get_serial_port_output", ("compute.instances.getSerialPortOutput",)
)
WAIT_IN_ZONE = Method("ZoneOperations", "wait", ("compute.zoneOperations.get",))
WAIT_IN_REGION = Method("RegionOperations", "wait", ("compute.regionOperations.get",))
WAIT_GLOBALLY = Method("GlobalOperations", "wait", ("compute.globalOperations.get",))
LIST_OPERATIONS = Method(
    "GlobalOperations",
    "aggregated_list",
    ("compute.globalOperations.list", "compute.zoneOperations.list"),
)
GET_PROJECT = Method("Projects", "get", ("compute.projects.get",))
GET_REGION = Method("Regions", "get", ("compute.regions.get",))
GET_MACHINE_TYPE = Method("MachineTypes", "get", ("compute.machineTypes.get",))
GET_SUBNETWORK = Method("Subnetworks", "get", ("compute.subnetworks.get",))
LIST_FIREWALLS = Method("Firewalls", "list", ("compute.firewalls.list",))
INSERT_FIREWALL = Method(
    "Firewalls", "insert_unary", ("compute.firewalls.create", "compute.networks.updatePolicy")
)
PATCH_FIREWALL = Method(
    "Firewalls", "patch_unary", ("compute.firewalls.update", "compute.networks.updatePolicy")
)
DELETE_FIREWALL = Method(
    "Firewalls", "delete_unary", ("compute.firewalls.delete", "compute.networks.updatePolicy")
)
LIST_POLICIES = Method("ResourcePolicies", "aggregated_list", ("compute.resourcePolicies.list",))
INSERT_POLICY = Method("ResourcePolicies", "insert_unary", ("compute.resourcePolicies.create",))
DELETE_POLICY = Method("ResourcePolicies", "delete_unary", ("compute.resourcePolicies.delete",))
LIST_DISKS = Method("Disks", "aggregated_list", ("compute.disks.list",))
DELETE_DISK = Method("Disks", "delete_unary", ("compute.disks.delete",))
LIST_ADDRESSES = Method("Addresses", "aggregated_list", ("compute.addresses.list",))
DELETE_ADDRESS = Method("Addresses", "delete_unary", ("compute.addresses.delete",))

METHODS = tuple(value for value in globals().values() if isinstance(value, Method))

GET_NETWORK = Method("Networks", "get", ("compute.networks.get",))
"""Needed to check orders before they are sent."""

GET_IMAGE = Method("Images", "get", ("compute.images.get",))
GET_IMAGE_OF_FAMILY = Method("Images", "get_from_family", ("compute.images.getFromFamily",))
SIMULATE_EVICTION = Method(
    "Instances", "simulate_maintenance_event_unary", ("compute.instances.simulateMaintenanceEvent",)
)
TRIAL_PERMISSIONS = tuple(
    sorted(
        {
            name
            for method in (GET_IMAGE, GET_IMAGE_OF_FAMILY, SIMULATE_EVICTION)
            for name in method.permissions
        }
    )
)
"""Needed by `spotctl try --full`, besides what the launcher needs."""

PERMISSIONS = tuple(sorted({permission for method in METHODS for permission in method.permissions}))
"""Needed by the launcher. A machine's service account needs compute.instances.delete, with which
the machine deletes itself when its lease ends."""


PRICES = (
    "compute.advice.capacityHistory",
    "compute.machineTypes.list",
    "compute.regions.list",
    "compute.zones.list",
)
ALL = tuple(
    sorted(
        {
            *PRICES,
            *PERMISSIONS,
            *GET_NETWORK.permissions,
            *GET_IMAGE.permissions,
            *GET_IMAGE_OF_FAMILY.permissions,
        }
    )
)


MACHINES = ("compute.instances.delete",)


_POLICIES = {
    "gcp": ("spotctl", "The minimal permissions that spotctl needs to rent machines.", ALL),
    "gcp-machines": ("spotctl-machine", "Lets spotctl's machines delete themselves.", MACHINES),
    "gcp-try": (
        "spotctl-try",
        "Lets spotctl try look up images and simulate evictions.",
        TRIAL_PERMISSIONS,
    ),
}


def role(policy: str, _: object = None) -> dict[str, Any]:
    """A custom role, as `gcloud iam roles create spotctl --project PROJECT --file FILE` reads it.

    It is the launcher's, that of the machines' service account, or what `spotctl try --full` needs
    besides. It is the same for all settings.
    """
    title, description, permissions = _POLICIES[policy]
    return {
        "title": title,
        "description": description,
        "stage": "GA",
        "includedPermissions": list(permissions),
    }


_DOCS = "https://cloud.google.com/compute/docs"
_CREATION = f"{_DOCS}/troubleshooting/troubleshooting-vm-creation"
_STOCKOUT = f"{_DOCS}/troubleshooting/troubleshooting-resource-availability"
_BULK = f"{_DOCS}/troubleshooting/troubleshooting-bulk-vm-creation"
_CONSUMPTION = "https://cloud.google.com/ai-hypercomputer/docs/consumption-models"
_QUOTA = "https://cloud.google.com/docs/quotas/troubleshoot"
_RATE = f"{_DOCS}/api-rate-limits"
_GLOBAL = "https://cloud.google.com/storage/docs/json_api/v1/status-codes"
"""The reasons that all of Google's JSON APIs share."""
_INFO = "https://github.com/googleapis/googleapis/blob/master/google/api/error_reason.proto"
_AUTOSCALER = "https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/gce/autoscaling_gce_client.go"
_SKYPILOT_RESERVED = "https://github.com/skypilot-org/skypilot/issues/3327"
_RESERVATIONS = f"{_DOCS}/troubleshooting/troubleshooting-reservation-consumption"
_SKYPILOT = (
    "https://github.com/skypilot-org/skypilot, seen when a machine was preempted while it was "
    "created"
)
_SKYPILOT_CODES = (
    "https://github.com/skypilot-org/skypilot/blob/master/sky/backends/cloud_vm_ray_backend.py"
)
_POLICY = (
    "https://cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints"
)
_LOCATIONS = "https://cloud.google.com/resource-manager/docs/organization-policy/defining-locations"
_OUTSIDE = "https://github.com/gardener/gardener-extension-provider-gcp/issues/415"
_ADDRESSES = "https://github.com/kelseyhightower/kubernetes-the-hard-way/issues/553"
_NO_DEFAULT = (
    "https://github.com/terraform-google-modules/terraform-google-project-factory/issues/313"
)
_NEW_ACCOUNT = "https://cloud.google.com/iam/docs/service-accounts-create"
_DISKS = f"{_DOCS}/disks/hyperdisks"
_SPOT = f"{_DOCS}/instances/spot"

QUOTAS = "https://console.cloud.google.com/iam-admin/quotas"
RAISE_COMMAND = (
    "gcloud beta quotas preferences create --project={project} --service=compute.googleapis.com "
    "--quota-id={quota}-per-project-region --dimensions=region={region} --preferred-value={limit}"
)
"""Asks for a higher quota of a metric, in which the quota's id has - for _:
https://cloud.google.com/sdk/gcloud/reference/beta/quotas/preferences/create"""
_RAISE_QUOTA = f"request more at {QUOTAS}, or with " + RAISE_COMMAND.format(
    project="PROJECT", quota="METRIC-WITH-DASHES", region="REGION", limit="LIMIT"
)
_GRANT = "spotctl doctor --policy gcp prints the permissions that are needed"
_ACT_AS = "grant yourself roles/iam.serviceAccountUser on the service account of the machines"
_ENABLE = "enable the API and billing of the project at https://console.cloud.google.com"
_CORRECT_ID = "correct the id among the job's reservations"
_MATCH = "its zone, type, GPUs, local SSDs and CPU platform must be those of the job's machines"
_CHECK = "check the [gcp] settings and the job's image, identity and network"
_PRIVATE = (
    "the organisation admits no public addresses: set public_ip = false in [gcp], with Cloud NAT "
    "and a way to private addresses, or have the project exempted"
)
_ELSEWHERE = "the organisation does not allow this location: name others under regions"
_RULED = "an organization policy forbids it, which only its administrators can change"
_FEW_ADDRESSES = (
    "each machine has a public address: use fewer machines or more regions, set public_ip = false "
    f"in [gcp], or {_RAISE_QUOTA}"
)
_OWN_ACCOUNT = (
    "spotctl setup gcp makes a service account for the machines, or set service_account in [gcp] to "
    "yours"
)
_NEW = (
    f"Google may need {MADE_WITHIN // MINUTE} minutes to know a new service account, and spotctl "
    "tries again as long."
    " If it is not new, correct service_account in [gcp] or the job's identity (gcloud iam "
    "service-accounts list)"
)
_OF_DEFAULT = r"-compute@developer\.gserviceaccount\.com"
_OF_ACCOUNT = r"service ?account"


class NameTaken(ProviderError):
    """Something of this name exists: an earlier attempt created it."""


_MACHINE, _ZONE, _REGION, _ACCOUNT, _MOMENT = (
    Scope.MACHINE,
    Scope.ZONE,
    Scope.REGION,
    Scope.ACCOUNT,
    Scope.MOMENT,
)

_NOT_ON_DEMAND = "the type is not sold on demand"
_ONLY_SPOT = r"STANDARD \S+ VM is not supported|use Spot|only supports? Spot"

IN_DETAIL = (
    *(
        refusal
        for code in ("conditionNotMet", "CONDITION_NOT_MET")
        for refusal in (
            Refusal(code, NotHere, _REGION, _ELSEWHERE, _LOCATIONS, r"gcp\.resourceLocations"),
            Refusal(
                code, NotPermitted, Scope.ORGANISATION, _PRIVATE, _OUTSIDE, r"vmExternalIpAccess"
            ),
        )
    ),
    *(
        Refusal(code, QuotaReached, _REGION, _FEW_ADDRESSES, _ADDRESSES, r"IN_USE_ADDRESSES")
        for code in ("QUOTA_EXCEEDED", "quotaExceeded")
    ),
    *(
        refusal
        for code in (
            "SERVICE_ACCOUNT_NOT_FOUND",
            "RESOURCE_NOT_FOUND",
            "INVALID_FIELD_VALUE",
            "BAD_REQUEST",
            "notFound",
            "invalid",
            "badRequest",
        )
        for refusal in (
            Refusal(code, BadRequest, _ACCOUNT, _OWN_ACCOUNT, _NO_DEFAULT, _OF_DEFAULT),
            Refusal(code, NotYet, _MOMENT, _NEW, _NEW_ACCOUNT, _OF_ACCOUNT),
        )
    ),
    *(
        refusal
        for code in (
            "invalid",
            "INVALID_FIELD_VALUE",
            "invalidUsage",
            "INVALID_USAGE",
            "badRequest",
            "BAD_REQUEST",
        )
        for refusal in (
            Refusal(
                code,
                NotFound,
                _MACHINE,
                "the type takes no such disks",
                _DISKS,
                r"disk type|\[(pd|hyperdisk)-",
            ),
            Refusal(code, NotFound, _MACHINE, _NOT_ON_DEMAND, _CONSUMPTION, _ONLY_SPOT),
            Refusal(
                code,
                NotFound,
                _MACHINE,
                "the type is not sold as spot",
                _SPOT,
                r"provisioningModel|\bSpot\b",
            ),
        )
    ),
    Refusal("UNSUPPORTED_OPERATION", NotFound, _MACHINE, _NOT_ON_DEMAND, _CONSUMPTION, _ONLY_SPOT),
    Refusal(
        "UNSUPPORTED_OPERATION",
        NotFound,
        _MACHINE,
        "the type is not sold as spot",
        _SPOT,
        r"\bSpot VM",
    ),
    Refusal(
        "notFound", NotFound, _MACHINE, "the zone has no such GPUs", _STOCKOUT, r"acceleratorTypes/"
    ),
)
"""The meaning of codes in some messages only."""

REFUSALS = (
    Refusal("ZONE_RESOURCE_POOL_EXHAUSTED", NoCapacity, _MACHINE, "", _STOCKOUT),
    Refusal("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", NoCapacity, _MACHINE, "", _STOCKOUT),
    Refusal("RESOURCE_POOL_EXHAUSTED", NoCapacity, _MACHINE, "", _AUTOSCALER),
    Refusal("stockout", NoCapacity, _MACHINE, "", _STOCKOUT),
    Refusal("insufficientCapacity", NoCapacity, _MACHINE, "", _BULK),
    Refusal("VM_MIN_COUNT_NOT_REACHED", NoCapacity, _MACHINE, "", _BULK),
    Refusal("UNSUPPORTED_OPERATION", NoCapacity, _MACHINE, "", _SKYPILOT),
    Refusal("QUOTA_EXCEEDED", QuotaReached, Scope.TYPE, _RAISE_QUOTA, _CREATION),
    Refusal("quotaExceeded", QuotaReached, Scope.TYPE, _RAISE_QUOTA, _BULK),
    Refusal("RESOURCE_QUOTA_EXCEEDED", QuotaReached, Scope.TYPE, _RAISE_QUOTA, _INFO),
    Refusal("limitExceeded", QuotaReached, Scope.TYPE, _RAISE_QUOTA, _QUOTA),
    Refusal("IP_SPACE_EXHAUSTED", QuotaReached, _REGION, "use a larger subnetwork", _AUTOSCALER),
    Refusal(
        "IP_SPACE_EXHAUSTED_WITH_DETAILS",
        QuotaReached,
        _REGION,
        "use a larger subnetwork",
        _AUTOSCALER,
    ),
    Refusal("rateLimitExceeded", Throttled, _MOMENT, "", _RATE),
    Refusal("userRateLimitExceeded", Throttled, _MOMENT, "", _GLOBAL),
    Refusal("RATE_LIMIT_EXCEEDED", Throttled, _MOMENT, "", _INFO),
    Refusal("RESOURCE_OPERATION_RATE_EXCEEDED", Throttled, _MOMENT, "", _SKYPILOT_CODES),
    Refusal("VPC_NOT_FOUND", BadRequest, _ACCOUNT, "correct network in [gcp]", _SKYPILOT_CODES),
    Refusal("resourceNotReady", Throttled, _MOMENT, "", _CREATION),
    Refusal("RESOURCE_NOT_READY", Throttled, _MOMENT, "", _CREATION),
    Refusal("PERMISSIONS_ERROR", NotPermitted, _ACCOUNT, _GRANT, _AUTOSCALER),
    Refusal("SERVICE_ACCOUNT_ACCESS_DENIED", NotPermitted, _ACCOUNT, _ACT_AS, _CREATION),
    Refusal("SERVICE_ACCOUNT_NOT_FOUND", BadRequest, _ACCOUNT, _CHECK, _CREATION),
    Refusal("forbidden", NotPermitted, _ACCOUNT, _GRANT, _GLOBAL),
    Refusal("insufficientPermissions", NotPermitted, _ACCOUNT, _GRANT, _GLOBAL),
    Refusal(
        "ACCESS_TOKEN_SCOPE_INSUFFICIENT",
        NotPermitted,
        _ACCOUNT,
        "sign in with the cloud-platform scope",
        _INFO,
    ),
    Refusal("accessNotConfigured", NotPermitted, _ACCOUNT, _ENABLE, _GLOBAL),
    Refusal("SERVICE_DISABLED", NotPermitted, _ACCOUNT, _ENABLE, _INFO),
    Refusal("BILLING_DISABLED", NotPermitted, _ACCOUNT, _ENABLE, _INFO),
    Refusal("CONSUMER_SUSPENDED", NotPermitted, _ACCOUNT, _ENABLE, _INFO),
    Refusal("CONSUMER_INVALID", NotPermitted, _ACCOUNT, "check the project", _INFO),
    Refusal("CONDITION_NOT_MET", NotPermitted, Scope.ORGANISATION, _RULED, _AUTOSCALER),
    Refusal("conditionNotMet", NotPermitted, Scope.ORGANISATION, _RULED, _POLICY),
    Refusal(
        "VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT",
        NotPermitted,
        Scope.ORGANISATION,
        _PRIVATE,
        _AUTOSCALER,
    ),
    Refusal("alreadyExists", NameTaken, _MACHINE, "", _GLOBAL),
    Refusal("RESOURCE_ALREADY_EXISTS", NameTaken, _MACHINE, "", _CREATION),
    Refusal(
        "resourceInUseByAnotherResource",
        Unanswered,
        _MOMENT,
        "machines that use it are still ending",
        _GLOBAL,
    ),
    Refusal(
        "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE",
        Unanswered,
        _MOMENT,
        "machines that use it are still ending",
        _AUTOSCALER,
    ),
    Refusal("RESOURCE_NOT_FOUND", BadRequest, _ACCOUNT, _CHECK, _CREATION),
    Refusal("INVALID_FIELD_VALUE", BadRequest, _ACCOUNT, _CHECK, _CREATION),
    Refusal("INVALID_USAGE", BadRequest, _ACCOUNT, _CHECK, _CREATION),
    Refusal("invalidUsage", BadRequest, _ACCOUNT, _CHECK, _CREATION),
    Refusal("invalid", BadRequest, _ACCOUNT, _CHECK, _BULK),
    Refusal("INTERNAL_ERROR", NoCapacity, _MACHINE, "", _CREATION),
)


RESERVATION_REFUSALS = (
    Refusal(
        "",
        NoCapacity,
        _MACHINE,
        "its machines are in use",
        _AUTOSCALER,
        r"reservations? .* does not have (available resources for the request|sufficient capacity)",
    ),
    Refusal(
        "",
        NoCapacity,
        _MACHINE,
        "it is not ready",
        _AUTOSCALER,
        r"requires reservation to be in READY state",
    ),
    Refusal(
        "", NotFound, _MACHINE, _CORRECT_ID, _AUTOSCALER, r"reservations? .* do(es)? not exist"
    ),
    Refusal(
        "",
        NotFound,
        _MACHINE,
        "it must have been made with --require-specific-reservation",
        _SKYPILOT_RESERVED,
        r"specificReservationRequired is not set",
    ),
    Refusal(
        "",
        NotFound,
        _MACHINE,
        _MATCH,
        _AUTOSCALER,
        r"no available resources in specified reservations",
    ),
    Refusal("", NotFound, _MACHINE, _MATCH, _RESERVATIONS, r"resource\.reservationAffinity"),
)
"""Refusals of reservations: Google says them with various codes, so only their texts count."""

_TABLE = (*RESERVATION_REFUSALS, *IN_DETAIL, *REFUSALS)

of_call = partial(error_of_call, _TABLE)
"""The error for a call that Google refused."""


def of_operation(what: str, code: str, message: str) -> SpotctlError:
    """The error for an operation that Google accepted, and that failed."""
    problem = f"gcp: {what}: {message.strip() or 'no reason was given'} ({code})"
    return refused(_TABLE, code, problem, message) or UnknownRefusal(problem, code)
