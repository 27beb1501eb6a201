"""The minimal permissions that spotctl needs in Google Cloud, and their document. Pure."""

from __future__ import annotations

from typing import Any

from spotctl.clouds.gcp import methods

PRICES = (
    "compute.advice.capacityHistory",
    "compute.machineTypes.list",
    "compute.regions.list",
    "compute.zones.list",
)
ALL = tuple(sorted({*PRICES, *methods.PERMISSIONS}))


MACHINES = ("compute.instances.delete",)


def machine_role() -> dict[str, Any]:
    """The role of the machines' service account, as `gcloud iam roles create spotctlMachine` reads it."""
    return _role("spotctl-machine", "Lets spotctl's machines delete themselves.", MACHINES)


def trial_role() -> dict[str, Any]:
    """The custom role that `spotctl try --full` needs besides `role`."""
    return _role("spotctl-try", "Lets spotctl try look up images and simulate evictions.", methods.TRIAL_PERMISSIONS)


def role() -> dict[str, Any]:
    """A custom role, as `gcloud iam roles create spotctl --project PROJECT --file FILE` reads it."""
    return _role("spotctl", "The minimal permissions that spotctl needs to rent machines.", ALL)


def _role(title: str, description: str, permissions: tuple[str, ...]) -> dict[str, Any]:
    return {"title": title, "description": description, "stage": "GA", "includedPermissions": list(permissions)}
