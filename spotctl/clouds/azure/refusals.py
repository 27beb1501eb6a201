"""Converts Azure's error codes to errors of the provider contract: one table, with the source of each code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from pricing_data.errors import CloudError
from spotctl.clouds.errors import (
    LoginNeeded,
    NoCapacity,
    NotFound,
    NotPermitted,
    QuotaReached,
    Throttled,
    Unanswered,
    UnknownRefusal,
    error_of_kind,
)
from spotctl.home.errors import BadRequest, SpotctlError

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
_RESERVATIONS: Final = _DOCS + "virtual-machines/capacity-reservation-overview"
_REGISTRATION: Final = _DOCS + "azure-resource-manager/troubleshooting/error-register-resource-provider"

NAMESPACES: Final = ("Microsoft.Compute", "Microsoft.Network", "Microsoft.ManagedIdentity")
"""The resource providers that a subscription must have registered; a new subscription has not."""

REGISTER: Final = f"run once, as an owner: {'; '.join(f'az provider register -n {name}' for name in NAMESPACES)}"


class AzureRefusal(NamedTuple):
    """One of Azure's error codes and the cure; if `text` is given, only in messages that match it."""

    code: str
    meaning: type[SpotctlError]
    source: str
    text: str = ""
    cure: str = ""


_IN_DETAIL: Final = (
    AzureRefusal("OperationNotAllowed", NoCapacity, _SPOT, r"max price .* is lower than the current spot price"),
    AzureRefusal("BadRequest", NotFound, _GENERATIONS, r"hypervisor generation"),
    AzureRefusal("InvalidParameter", NotFound, _GENERATIONS, r"hypervisor generation"),
    # Azure does not document its codes for reservations that do not have what the machine needs.
    *(
        AzureRefusal(code, NotFound, _RESERVATIONS, r"capacity ?reservation", "correct the job's reservations")
        for code in ("OperationNotAllowed", "BadRequest", "InvalidParameter", "Conflict")
    ),
    AzureRefusal("OperationNotAllowed", QuotaReached, _QUOTA, r"quota"),
    AzureRefusal("MissingSubscriptionRegistration", NotPermitted, _REGISTRATION, cure=REGISTER),
    AzureRefusal("SubscriptionNotRegistered", NotPermitted, _REGISTRATION, cure=REGISTER),
    AzureRefusal("OperationNotAllowed", Throttled, _THROTTLING, r"too many requests|rate limit"),
)
_CODES: Final = {
    # No machine of this kind, here and now, or ever.
    (NoCapacity, _ALLOCATION): "SkuNotAvailable",
    (NoCapacity, _CAPACITY): """
        AllocationFailed ZonalAllocationFailed OverconstrainedAllocationRequest OverconstrainedZonalAllocationRequest
    """,
    (NoCapacity, _SPOT): """
        VMSizeIsNotPermittedToEnableSpot AzureSpotIsNotSupportedForThisVMSize SpotPriceGreaterThanProvidedMaxPrice
    """,
    (NotFound, _COMMON): "LocationNotAvailableForResourceType",
    # The account's limits and rights.
    (QuotaReached, _QUOTA): "QuotaExceeded ResourceQuotaExceeded PublicIPCountLimitReached ResourceGroupQuotaExceeded",
    (QuotaReached, _COMMON): "DeploymentQuotaExceeded",
    (QuotaReached, _ALLOCATION): "NotAvailableForSubscription",
    (QuotaReached, _SPOT): "AzureSpotFeatureNotEnabledForSubscription",
    (NotPermitted, _COMMON): """
        AuthorizationFailed LinkedAuthorizationFailed RequestDisallowedByPolicy ScopeLocked ReadOnlyDisabledSubscription
        DisallowedOperation SubscriptionNotFound
    """,
    (NotPermitted, _REGIONS): "RequestDisallowedByAzure",
    (LoginNeeded, _COMMON): "InvalidAuthenticationToken ExpiredAuthenticationToken",
    # The same call succeeds after a pause.
    (Throttled, _THROTTLING): "TooManyRequests SubscriptionRequestsThrottled",
    (Throttled, _COMMON): "ResourceGroupBeingDeleted AnotherOperationInProgress RetryableError Conflict",
    # It may have been carried out.
    (Unanswered, _COMMON): "DeploymentActive",
    (Unanswered, _COMPUTE): """
        InternalServerError InternalExecutionError NetworkingInternalOperationError OperationPreempted
    """,
    # What the request or the settings name does not exist, or cannot be had together.
    (BadRequest, _COMPUTE): """
        InvalidParameter PropertyChangeNotAllowed PlatformImageNotFound ImageNotFound VMMarketplaceInvalidInput
    """,
    (BadRequest, _COMMON): "BadRequest InvalidResourceReference LinkedInvalidPropertyId FailedIdentityOperation",
    (BadRequest, _SPOT): "MaxPriceValueInvalid",
}
REFUSALS: Final = (
    *_IN_DETAIL,
    *(AzureRefusal(code, meaning, source) for (meaning, source), codes in _CODES.items() for code in codes.split()),
)
"""The first that fits decides, so those that depend on a text come first."""


def refused(code: str, text: str) -> SpotctlError:
    """The error for one of Azure's errors. UnknownRefusal: the error is not in the table."""
    for refusal in REFUSALS:
        if refusal.code.lower() == code.lower() and re.search(refusal.text, text, re.IGNORECASE):
            return refusal.meaning(f"{text}; {refusal.cure}" if refusal.cure else text)
    return UnknownRefusal(text, code)


@contextmanager
def translated(subject: str = "") -> Iterator[None]:
    """Turns errors of Azure's calls into those of the provider contract, with Azure's own words."""
    try:
        yield
    except CloudError as error:
        text = f"{subject}: {error}" if subject else str(error)
        known = refused(error.code, text)
        raise (error_of_kind(error, text) if isinstance(known, UnknownRefusal) else known) from error
