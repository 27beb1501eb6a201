"""What is asked of Azure: the subscription's spot quota, what time it is, and what we may do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import AzureError, ClientAuthenticationError, HttpResponseError
from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.core.rest import HttpRequest
from azure.identity import DefaultAzureCredential
from azure.mgmt.compute import ComputeManagementClient

from pricing_data.errors import AccessDenied, MissingCredentials, SourceError, SourceUnavailable
from pricing_data.sources.azure.account import NoToken
from pricing_data.sources.azure.settings import SIGN_IN, AzureSettings
from spotctl.doctor import policies
from spotctl.doctor.findings import Finding, Level
from spotctl.doctor.verdicts import TIMEOUT_SECONDS, permissions, quota, skew

if TYPE_CHECKING:
    from spotctl.config import Settings

_AUTHORIZATION_VERSION = "2022-04-01"
_SPOT_QUOTA = "lowPriorityCores"
_ANY_LOCATION = "eastus"


def findings(settings: Settings) -> Iterator[Finding]:
    """Raises `SourceError` where nothing more can be asked."""
    asked = AzureSettings(
        subscription=settings.azure_subscription, management_endpoint=settings.azure_management_endpoint
    )
    subscription = asked.chosen_subscription()
    try:
        with _client(asked, subscription, managed=settings.azure_managed_identity) as client:
            yield from _allowed(client, asked, subscription)
            yield _quota(client)
    except (AzureError, ValueError) as error:
        raise _meaning(error, subscription) from error


def _allowed(client: ComputeManagementClient, asked: AzureSettings, subscription: str) -> Iterator[Finding]:
    path = f"/subscriptions/{subscription}/providers/Microsoft.Authorization/permissions"
    request = HttpRequest("GET", f"{asked.endpoint}{path}", params={"api-version": _AUTHORIZATION_VERSION})
    answer = client.send_request(request)
    answer.raise_for_status()
    yield Finding("azure", "credentials", Level.GOOD, f"subscription {subscription}")
    yield skew("azure", answer.headers["date"])
    grants: list[dict[str, Any]] = answer.json()["value"]
    missing = [action for action in policies.AZURE if not any(_grants(one, action) for one in grants)]
    yield permissions("azure", missing, len(policies.AZURE))


def _grants(grant: dict[str, Any], action: str) -> bool:
    return _fits(grant.get("actions", ()), action) and not _fits(grant.get("notActions", ()), action)


def _fits(patterns: Sequence[str], action: str) -> bool:
    """Azure's patterns know `*` alone, and no case."""
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)


def _quota(client: ComputeManagementClient) -> Finding:
    location = os.environ.get("AZURE_DEFAULTS_LOCATION") or _ANY_LOCATION
    limits = {usage.name.value: usage.limit for usage in client.usage.list(location) if usage.name is not None}
    found = limits.get(_SPOT_QUOTA)
    cure = "ask for more under Quotas in the Azure portal: Total Regional Spot vCPUs"
    return quota("azure", f"spot quota in {location}", None if found is None else float(found), cure)


def _client(asked: AzureSettings, subscription: str, *, managed: bool) -> ComputeManagementClient:
    options: dict[str, Any] = {
        "credential_scopes": [f"{asked.endpoint}/.default"],
        "retry_total": 1,
        "connection_timeout": TIMEOUT_SECONDS,
        "read_timeout": TIMEOUT_SECONDS,
    }
    if not asked.sends_tokens:
        options["authentication_policy"] = SansIOHTTPPolicy()
        return ComputeManagementClient(NoToken(), subscription, asked.endpoint, **options)
    chosen = managed or os.environ.get("AZURE_TOKEN_CREDENTIALS")
    credential = DefaultAzureCredential(**({} if chosen else {"exclude_managed_identity_credential": True}))
    return ComputeManagementClient(credential, subscription, asked.endpoint, **options)


def _meaning(error: Exception, subscription: str) -> SourceError:
    said = (" ".join(str(error).split()) or type(error).__name__)[:200]
    if isinstance(error, ClientAuthenticationError):
        return MissingCredentials(f"azure: {said}; {SIGN_IN}")
    if isinstance(error, HttpResponseError) and error.status_code in (403, 404):
        return AccessDenied(f"azure: subscription {subscription}: {said}; ask for a role there, or choose another")
    return SourceUnavailable(f"azure: {said}; try again later")
