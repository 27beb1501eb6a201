"""Checks of Azure: subscription, clock, permissions and spot quota."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from spotctl.clouds.azure.calls import (
    ALL,
    NAMESPACES,
    REGISTER,
    AzureCalls,
    Operation,
    role,
)
from spotctl.clouds.azure.cloud import AzureMachineSettings, AzureSettings
from spotctl.clouds.azure.provider import ON_DEMAND_QUOTA, SPOT_QUOTA
from spotctl.clouds.azure.session import AzureSession
from spotctl.clouds.doctor import TIMEOUT_SECONDS, Finding, Level, permissions, quota, skew
from spotctl.clouds.errors import Answers, ApiCall
from spotctl.home import account_quotas
from spotctl.home.config import Settings, is_traced
from spotctl.home.quotas import Quota, QuotaUnit
from spotctl.home.wall_clock import wall_us

SETUP = "run az login, and set AZURE_SUBSCRIPTION_ID"
_PERMISSIONS_VERSION = "2022-04-01"
_ANY_LOCATION = "eastus"


is_configured = partial(
    is_traced,
    variables=("AZURE_CLIENT_ID", "AZURE_SUBSCRIPTION_ID"),
    files=(("AZURE_CONFIG_DIR", "~/.azure", "azureProfile.json"),),
    names=("azure_subscription", "azure_management_endpoint"),
)


def findings(settings: Settings, answers: Answers) -> Iterator[Finding]:
    """Raises `CloudError` if further checks are impossible."""
    session = AzureSession.sign_in(
        AzureSettings(
            subscription=settings.text("azure_subscription"),
            management_endpoint=settings.text("azure_management_endpoint"),
            managed_identity=settings.flag("azure_managed_identity"),
            timeout_seconds=TIMEOUT_SECONDS,
            retries=1,
        ),
        answers=answers,
    )

    call = ApiCall("Azure permissions", "Microsoft.Authorization/permissions/read")
    # The SDK of roles lists the permissions for a resource group only, and there may be none yet.
    own = f"{session.subscription_id}/providers/Microsoft.Authorization/permissions"
    answer = session.carry_out(
        call, "resources.resources.get_by_id", own, api_version=_PERMISSIONS_VERSION
    )
    yield Finding("azure", "credentials", Level.GOOD, f"subscription {session.subscription}")
    yield skew("azure", answer.date)
    grants: list[dict[str, Any]] = answer.body["value"]
    missing = [
        action
        for action in ALL
        if not any(
            _matches(grant.get("actions", ()), action)
            and not _matches(grant.get("notActions", ()), action)
            for grant in grants
        )
    ]

    yield permissions("azure", missing, len(ALL))

    # The subscription must be registered for what machines consist of.
    call = ApiCall("Azure resource providers", "Microsoft.Resources/subscriptions/providers/read")
    states = {
        name: session.carry_out(call, "resources.providers.get", name).body for name in NAMESPACES
    }
    missing = [
        name for name, state in states.items() if state.get("registrationState") != "Registered"
    ]

    if missing:
        yield Finding(
            "azure", "providers", Level.FAILS, f"not registered: {', '.join(missing)}", REGISTER
        )
    else:
        yield Finding("azure", "providers", Level.GOOD, "registered")

    yield from _quotas(session, settings)
    yield _identity(session, settings.table("azure", AzureMachineSettings).identity)


def _matches(patterns: Sequence[str], action: str) -> bool:
    """Azure's patterns support only `*`, and ignore case."""
    return any(fnmatchcase(action.lower(), pattern.lower()) for pattern in patterns)


def _quotas(session: AzureSession, settings: Settings) -> Iterator[Finding]:
    location = os.environ.get("AZURE_DEFAULTS_LOCATION") or _ANY_LOCATION
    call = ApiCall(f"Azure quotas in {location}", "Microsoft.Compute/locations/usages/read")
    pages = session.pages(call, Operation.LIST_USAGES.method, location)
    limits = {
        usage.name.value: usage.limit for page in pages for usage in page if usage.name is not None
    }

    for what, name, title in (
        ("spot", SPOT_QUOTA, "Spot vCPUs"),
        ("on-demand", ON_DEMAND_QUOTA, "vCPUs"),
    ):
        limit = limits.get(name)
        if limit is not None:
            stated = Quota(
                "azure", location, None, int(limit), QuotaUnit.VCPUS, spot=name == SPOT_QUOTA
            )
            account_quotas.keep(settings, [stated], wall_us())
        cure = f"request more in the Azure portal under Quotas: Total Regional {title}"
        yield quota("azure", f"{what} quota in {location}", limit, cure)


def _identity(session: AzureSession, identity: str | None) -> Finding:
    """Checks that the managed identity exists with which machines delete themselves."""
    if identity is None:
        return Finding(
            "azure",
            "identity",
            Level.NOTE,
            "not set, so no machines can be rented",
            "see docs/azure.md",
        )

    calls, name = AzureCalls(session), identity.rpartition("/")[2]
    known = calls.find(Operation.GET_IDENTITY, identity)
    if known is None:
        cure = "create it with az identity create, or correct identity in [azure]"
        return Finding("azure", "identity", Level.FAILS, f"{identity} does not exist", cure)

    principal = known["properties"]["principalId"]
    # The role at the subscription reaches the machines of everyone; earlier instructions had users
    # assign it there.
    if calls.listed(Operation.LIST_ASSIGNMENTS, filter=f"atScope() and assignedTo('{principal}')"):
        everywhere = f"--assignee {principal} --scope /subscriptions/{session.subscription}"
        cure = (
            f"az role assignment delete {everywhere}: each run assigns the role for its own group"
        )
        return Finding(
            "azure", "identity", Level.NOTE, f"{name} has a role in the whole subscription", cure
        )

    return Finding("azure", "identity", Level.GOOD, name)


POLICIES = {policy: partial(role, policy) for policy in ("azure", "azure-machines", "azure-try")}
"""The roles of the launcher, of the managed identity of the machines, and what `spotctl try --full`
needs besides."""
