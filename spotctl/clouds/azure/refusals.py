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
)
from spotctl.clouds.meanings import error_of_kind
from spotctl.home.errors import BadRequest, SpotctlError

__all__ = ["REFUSALS", "AzureRefusal", "refused", "translated"]

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


REFUSALS: Final = (
    # No machine of this kind, here and now.
    AzureRefusal("SkuNotAvailable", NoCapacity, _ALLOCATION),
    AzureRefusal("AllocationFailed", NoCapacity, _CAPACITY),
    AzureRefusal("ZonalAllocationFailed", NoCapacity, _CAPACITY),
    AzureRefusal("OverconstrainedAllocationRequest", NoCapacity, _CAPACITY),
    AzureRefusal("OverconstrainedZonalAllocationRequest", NoCapacity, _CAPACITY),
    AzureRefusal("VMSizeIsNotPermittedToEnableSpot", NoCapacity, _SPOT),
    AzureRefusal("AzureSpotIsNotSupportedForThisVMSize", NoCapacity, _SPOT),
    AzureRefusal("SpotPriceGreaterThanProvidedMaxPrice", NoCapacity, _SPOT),
    AzureRefusal("OperationNotAllowed", NoCapacity, _SPOT, r"max price .* is lower than the current spot price"),
    # No machine of this kind, ever.
    AzureRefusal("BadRequest", NotFound, _GENERATIONS, r"hypervisor generation"),
    AzureRefusal("InvalidParameter", NotFound, _GENERATIONS, r"hypervisor generation"),
    AzureRefusal("LocationNotAvailableForResourceType", NotFound, _COMMON),
    # Azure does not document its codes for reservations that do not have what the machine needs.
    *(
        AzureRefusal(code, NotFound, _RESERVATIONS, r"capacity ?reservation", "correct the job's reservations")
        for code in ("OperationNotAllowed", "BadRequest", "InvalidParameter", "Conflict")
    ),
    # The account's limits.
    AzureRefusal("QuotaExceeded", QuotaReached, _QUOTA),
    AzureRefusal("OperationNotAllowed", QuotaReached, _QUOTA, r"quota"),
    AzureRefusal("ResourceQuotaExceeded", QuotaReached, _QUOTA),
    AzureRefusal("PublicIPCountLimitReached", QuotaReached, _QUOTA),
    AzureRefusal("ResourceGroupQuotaExceeded", QuotaReached, _QUOTA),
    AzureRefusal("DeploymentQuotaExceeded", QuotaReached, _COMMON),
    AzureRefusal("NotAvailableForSubscription", QuotaReached, _ALLOCATION),
    AzureRefusal("AzureSpotFeatureNotEnabledForSubscription", QuotaReached, _SPOT),
    # The account's rights.
    AzureRefusal("AuthorizationFailed", NotPermitted, _COMMON),
    AzureRefusal("LinkedAuthorizationFailed", NotPermitted, _COMMON),
    AzureRefusal("RequestDisallowedByPolicy", NotPermitted, _COMMON),
    AzureRefusal("RequestDisallowedByAzure", NotPermitted, _REGIONS),
    AzureRefusal("ScopeLocked", NotPermitted, _COMMON),
    AzureRefusal("ReadOnlyDisabledSubscription", NotPermitted, _COMMON),
    AzureRefusal("DisallowedOperation", NotPermitted, _COMMON),
    AzureRefusal("MissingSubscriptionRegistration", NotPermitted, _REGISTRATION, cure=REGISTER),
    AzureRefusal("SubscriptionNotRegistered", NotPermitted, _REGISTRATION, cure=REGISTER),
    AzureRefusal("SubscriptionNotFound", NotPermitted, _COMMON),
    AzureRefusal("InvalidAuthenticationToken", LoginNeeded, _COMMON),
    AzureRefusal("ExpiredAuthenticationToken", LoginNeeded, _COMMON),
    # The same call succeeds after a pause.
    AzureRefusal("TooManyRequests", Throttled, _THROTTLING),
    AzureRefusal("SubscriptionRequestsThrottled", Throttled, _THROTTLING),
    AzureRefusal("OperationNotAllowed", Throttled, _THROTTLING, r"too many requests|rate limit"),
    AzureRefusal("ResourceGroupBeingDeleted", Throttled, _COMMON),
    AzureRefusal("AnotherOperationInProgress", Throttled, _COMMON),
    AzureRefusal("RetryableError", Throttled, _COMMON),
    AzureRefusal("Conflict", Throttled, _COMMON),
    # It may have been carried out.
    AzureRefusal("DeploymentActive", Unanswered, _COMMON),
    AzureRefusal("InternalServerError", Unanswered, _COMPUTE),
    AzureRefusal("InternalExecutionError", Unanswered, _COMPUTE),
    AzureRefusal("NetworkingInternalOperationError", Unanswered, _COMPUTE),
    AzureRefusal("OperationPreempted", Unanswered, _COMPUTE),
    # What the request or the settings name does not exist, or cannot be had together.
    AzureRefusal("InvalidParameter", BadRequest, _COMPUTE),
    AzureRefusal("BadRequest", BadRequest, _COMMON),
    AzureRefusal("PropertyChangeNotAllowed", BadRequest, _COMPUTE),
    AzureRefusal("PlatformImageNotFound", BadRequest, _COMPUTE),
    AzureRefusal("ImageNotFound", BadRequest, _COMPUTE),
    AzureRefusal("VMMarketplaceInvalidInput", BadRequest, _COMPUTE),
    AzureRefusal("InvalidResourceReference", BadRequest, _COMMON),
    AzureRefusal("LinkedInvalidPropertyId", BadRequest, _COMMON),
    AzureRefusal("FailedIdentityOperation", BadRequest, _COMMON),
    AzureRefusal("MaxPriceValueInvalid", BadRequest, _SPOT),
)


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
