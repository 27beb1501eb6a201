"""Converts Google's refusals to errors of the provider contract. Pure.

Compute Engine refuses at the call, with a `reason` (`quotaExceeded`), or later, in the operation that the call began,
with a `code` (`QUOTA_EXCEEDED`). Codes that are not in the table end as UnknownRefusal with Google's own words.
Refusals about reservations have codes that mean something else in other messages, so their words decide.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pricing_data.errors import CloudError, RequestRejected
from spotctl.clouds.errors import (
    NoCapacity,
    NotFound,
    NotPermitted,
    ProviderError,
    QuotaReached,
    Throttled,
    Unanswered,
    UnknownRefusal,
    error_of_kind,
)
from spotctl.home.errors import BadRequest, SpotctlError

_DOCS = "https://cloud.google.com/compute/docs"
_CREATION = f"{_DOCS}/troubleshooting/troubleshooting-vm-creation"
_STOCKOUT = f"{_DOCS}/troubleshooting/troubleshooting-resource-availability"
_BULK = f"{_DOCS}/troubleshooting/troubleshooting-bulk-vm-creation"
_QUOTA = "https://cloud.google.com/docs/quotas/troubleshoot"
_RATE = f"{_DOCS}/api-rate-limits"
_GLOBAL = "https://cloud.google.com/storage/docs/json_api/v1/status-codes"
"""The reasons that all of Google's JSON APIs share."""
_INFO = "https://github.com/googleapis/googleapis/blob/master/google/api/error_reason.proto"
_AUTOSCALER = "https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/cloudprovider/gce/autoscaling_gce_client.go"
_SKYPILOT_RESERVED = "https://github.com/skypilot-org/skypilot/issues/3327"
_RESERVATIONS = f"{_DOCS}/troubleshooting/troubleshooting-reservation-consumption"
_SKYPILOT = "https://github.com/skypilot-org/skypilot, seen when a machine was preempted while it was created"
_POLICY = "https://cloud.google.com/resource-manager/docs/organization-policy/org-policy-constraints"

_RAISE_QUOTA = "request more at https://console.cloud.google.com/iam-admin/quotas"
_GRANT = "spotctl doctor --policy gcp prints the permissions that are needed"
_ACT_AS = "grant yourself roles/iam.serviceAccountUser on the service account of the machines"
_ENABLE = "enable the API and billing of the project at https://console.cloud.google.com"
_CORRECT_ID = "correct the id among the job's reservations"
_MATCH = "its zone, type, GPUs, local SSDs and CPU platform must be those of the job's machines"
_CHECK = "check the [gcp] settings and the job's image, identity and network"


class NameTaken(ProviderError):
    """Something of this name exists: an earlier attempt created it."""


class GcpRefusal(NamedTuple):
    """One of Google's codes, its error of the contract, the cure, and where the code is documented."""

    code: str
    kind: type[SpotctlError]
    cure: str
    source: str

    def error(self, problem: str) -> SpotctlError:
        return self.kind(f"{problem}; {self.cure}" if self.cure else problem)


REFUSALS = (
    GcpRefusal("ZONE_RESOURCE_POOL_EXHAUSTED", NoCapacity, "", _STOCKOUT),
    GcpRefusal("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", NoCapacity, "", _STOCKOUT),
    GcpRefusal("RESOURCE_POOL_EXHAUSTED", NoCapacity, "", _AUTOSCALER),
    GcpRefusal("insufficientCapacity", NoCapacity, "", _BULK),
    GcpRefusal("UNSUPPORTED_OPERATION", NoCapacity, "", _SKYPILOT),
    GcpRefusal("QUOTA_EXCEEDED", QuotaReached, _RAISE_QUOTA, _CREATION),
    GcpRefusal("quotaExceeded", QuotaReached, _RAISE_QUOTA, _BULK),
    GcpRefusal("RESOURCE_QUOTA_EXCEEDED", QuotaReached, _RAISE_QUOTA, _INFO),
    GcpRefusal("limitExceeded", QuotaReached, _RAISE_QUOTA, _QUOTA),
    GcpRefusal("IP_SPACE_EXHAUSTED", QuotaReached, "the subnetwork has no free address: use a larger one", _AUTOSCALER),
    GcpRefusal("IP_SPACE_EXHAUSTED_WITH_DETAILS", QuotaReached, "use a larger subnetwork", _AUTOSCALER),
    GcpRefusal("rateLimitExceeded", Throttled, "", _RATE),
    GcpRefusal("userRateLimitExceeded", Throttled, "", _GLOBAL),
    GcpRefusal("RATE_LIMIT_EXCEEDED", Throttled, "", _INFO),
    GcpRefusal("resourceNotReady", Throttled, "", _CREATION),
    GcpRefusal("RESOURCE_NOT_READY", Throttled, "", _CREATION),
    GcpRefusal("PERMISSIONS_ERROR", NotPermitted, _GRANT, _AUTOSCALER),
    GcpRefusal("SERVICE_ACCOUNT_ACCESS_DENIED", NotPermitted, _ACT_AS, _CREATION),
    GcpRefusal("forbidden", NotPermitted, _GRANT, _GLOBAL),
    GcpRefusal("insufficientPermissions", NotPermitted, _GRANT, _GLOBAL),
    GcpRefusal("ACCESS_TOKEN_SCOPE_INSUFFICIENT", NotPermitted, "sign in with the cloud-platform scope", _INFO),
    GcpRefusal("accessNotConfigured", NotPermitted, _ENABLE, _GLOBAL),
    GcpRefusal("SERVICE_DISABLED", NotPermitted, _ENABLE, _INFO),
    GcpRefusal("BILLING_DISABLED", NotPermitted, _ENABLE, _INFO),
    GcpRefusal("CONSUMER_SUSPENDED", NotPermitted, _ENABLE, _INFO),
    GcpRefusal("CONSUMER_INVALID", NotPermitted, "check the project", _INFO),
    GcpRefusal("CONDITION_NOT_MET", NotPermitted, "an organization policy forbids it", _AUTOSCALER),
    GcpRefusal("conditionNotMet", NotPermitted, "an organization policy forbids it", _POLICY),
    GcpRefusal("VM_EXTERNAL_IP_ACCESS_POLICY_CONSTRAINT", NotPermitted, "set public_ip = false in [gcp]", _AUTOSCALER),
    GcpRefusal("alreadyExists", NameTaken, "", _GLOBAL),
    GcpRefusal("RESOURCE_ALREADY_EXISTS", NameTaken, "", _CREATION),
    GcpRefusal("resourceInUseByAnotherResource", Unanswered, "machines that use it are still ending", _GLOBAL),
    GcpRefusal("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", Unanswered, "machines that use it are still ending", _AUTOSCALER),
    GcpRefusal("RESOURCE_NOT_FOUND", BadRequest, _CHECK, _CREATION),
    GcpRefusal("INVALID_FIELD_VALUE", BadRequest, _CHECK, _CREATION),
    GcpRefusal("INVALID_USAGE", BadRequest, _CHECK, _CREATION),
    GcpRefusal("invalid", BadRequest, _CHECK, _BULK),
    GcpRefusal("INTERNAL_ERROR", NoCapacity, "", _CREATION),
)


class ReservationRefusal(NamedTuple):
    """Google's words about a reservation, the error of the contract, the cure, and where the words are documented."""

    words: str
    kind: type[SpotctlError]
    cure: str
    source: str


RESERVATION_REFUSALS = (
    ReservationRefusal(
        r"reservations? .* does not have (available resources for the request|sufficient capacity)",
        NoCapacity,
        "its machines are in use",
        _AUTOSCALER,
    ),
    ReservationRefusal(r"requires reservation to be in READY state", NoCapacity, "it is not ready", _AUTOSCALER),
    ReservationRefusal(r"reservations? .* do(es)? not exist", NotFound, _CORRECT_ID, _AUTOSCALER),
    ReservationRefusal(
        r"specificReservationRequired is not set",
        NotFound,
        "it must have been made with --require-specific-reservation",
        _SKYPILOT_RESERVED,
    ),
    ReservationRefusal(r"no available resources in specified reservations", NotFound, _MATCH, _AUTOSCALER),
    ReservationRefusal(r"resource\.reservationAffinity", NotFound, _MATCH, _RESERVATIONS),
)

_BY_CODE = {refusal.code: refusal for refusal in REFUSALS}


def of_call(error: CloudError) -> SpotctlError:
    """The error for a call that Google refused."""
    if (refused := _of_reservation(error.problem, error.problem)) is not None:
        return refused
    known = _BY_CODE.get(error.code)
    if known is not None:
        return known.error(error.problem)
    return BadRequest(str(error)) if isinstance(error, RequestRejected) else error_of_kind(error, str(error))


def of_operation(what: str, code: str, message: str) -> SpotctlError:
    """The error for an operation that Google accepted, and that failed."""
    problem = f"gcp: {what}: {message.strip() or 'no reason was given'} ({code})"
    if (refused := _of_reservation(message, problem)) is not None:
        return refused
    known = _BY_CODE.get(code)
    return UnknownRefusal(problem, code) if known is None else known.error(problem)


def _of_reservation(message: str, problem: str) -> SpotctlError | None:
    """The error for a message about a reservation; None for any other message."""
    for refusal in RESERVATION_REFUSALS:
        if re.search(refusal.words, message, re.IGNORECASE):
            return refusal.kind(f"{problem}; {refusal.cure}")
    return None
