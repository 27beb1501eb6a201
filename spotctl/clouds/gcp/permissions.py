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
    return {
        "title": "spotctl-machine",
        "description": "Lets spotctl's machines delete themselves.",
        "stage": "GA",
        "includedPermissions": list(MACHINES),
    }


def trial_role() -> dict[str, Any]:
    """The custom role that `spotctl try --full` needs besides `role`."""
    return {
        "title": "spotctl-try",
        "description": "Lets spotctl try look up images and simulate evictions.",
        "stage": "GA",
        "includedPermissions": list(methods.TRIAL_PERMISSIONS),
    }


def role() -> dict[str, Any]:
    """A custom role, as `gcloud iam roles create spotctl --project PROJECT --file FILE` reads it."""
    return {
        "title": "spotctl",
        "description": "The minimal permissions that spotctl needs to rent machines.",
        "stage": "GA",
        "includedPermissions": list(ALL),
    }
