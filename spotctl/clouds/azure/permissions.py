"""The least that spotctl and its machines may do in Azure, as custom roles. Pure, and derived from the calls.

Each run makes its own resource group, so the launcher's role is assigned at the subscription. The launcher assigns the
machines' role for each group.
"""

from __future__ import annotations

from typing import Any, Final

from spotctl.clouds.azure.calls import MACHINE_PERMISSIONS, TrialOperation, permissions

PRICES: Final = (
    "Microsoft.Compute/skus/read",
    "Microsoft.ResourceGraph/resources/read",
)
"""Needed to fetch prices."""

DOCTOR: Final = ("Microsoft.Authorization/permissions/read", "Microsoft.Resources/subscriptions/providers/read")
"""Needed to check what the account has."""

MACHINE_ROLE: Final = "spotctl-machine"
"""The name of the machines' role."""

ALL: Final = tuple(sorted({*permissions(), *PRICES, *DOCTOR}))
"""Needed by the launcher."""


TRIAL: Final = tuple(sorted(permission for call in TrialOperation for permission in call.permissions))
"""Needed by `spotctl try --full`, besides what the launcher needs."""


def trial_role(subscription: str) -> dict[str, Any]:
    """The role that `spotctl try --full` needs besides the launcher's."""
    return _role("spotctl-try", "Lets spotctl try check orders and simulate evictions.", TRIAL, subscription)


def launcher_role(subscription: str) -> dict[str, Any]:
    """The role of a user or service principal that launches, as `az role definition create` reads it."""
    return _role("spotctl", "The least that spotctl needs to rent machines.", ALL, subscription)


def machine_role(subscription: str) -> dict[str, Any]:
    """The role of the managed identity of the machines, which delete themselves with it."""
    return _role(MACHINE_ROLE, "Lets spotctl's machines delete themselves.", MACHINE_PERMISSIONS, subscription)


def _role(name: str, description: str, actions: tuple[str, ...], subscription: str) -> dict[str, Any]:
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
