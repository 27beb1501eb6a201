"""The minimal permissions that spotctl needs in each cloud, and their policy documents. Pure.

The permissions for AWS and Azure are in `spotctl.clouds.aws.permissions` and `spotctl.clouds.azure.permissions`.
"""

from __future__ import annotations

from typing import Any

from spotctl.clouds.gcp import methods

GCP_PRICES = (
    "compute.advice.capacityHistory",
    "compute.machineTypes.list",
    "compute.regions.list",
    "compute.zones.list",
)
GCP = tuple(sorted({*GCP_PRICES, *methods.PERMISSIONS}))


def gcp() -> dict[str, Any]:
    """A custom role, as `gcloud iam roles create spotctl --project PROJECT --file FILE` reads it."""
    return {
        "title": "spotctl",
        "description": "The minimal permissions that spotctl needs to rent machines.",
        "stage": "GA",
        "includedPermissions": list(GCP),
    }
