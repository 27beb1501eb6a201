"""The descriptor of Google Cloud."""

from __future__ import annotations

from pricing_data.known_clouds import CloudMarkets
from pricing_data.units import DAY
from spotctl.clouds.gcp.region_names import REGIONS
from spotctl.clouds.gcp.settings import GcpMachineSettings
from spotctl.home.cloud import (
    Cloud,
    CloudPackages,
    CloudSettings,
    CloudWords,
    JobKeys,
    OptionalPackage,
    UsedReservations,
)
from spotctl.home.cloud_settings import text

CLOUD = Cloud(
    name="gcp",
    words=CloudWords(
        "Google Cloud",
        "Google Cloud",
        "Compute Engine",
        "Google Cloud takes no bids: a machine costs the current spot price, and no price change evicts it;"
        " Google takes machines back when it needs them",
    ),
    markets=CloudMarkets(
        region=r"[a-z]+-[a-z]+\d+",
        zone="{region}-[a-z0-9]+",
        known_regions=REGIONS,
        region_of_zone=lambda zone: zone.rpartition("-")[0] or zone,
        rank=2,
        takes_bids=False,
        # Google changes its prices a few times a year.
        longest_pause=200 * DAY,
    ),
    settings=CloudSettings(
        GcpMachineSettings,
        {
            "gcp_project": text,
            "gcp_compute_endpoint": text,
            "gcp_billing_endpoint": text,
            "gcp_resource_manager_endpoint": text,
            "gcp_iam_endpoint": text,
        },
        variables={"gcp_project": "GOOGLE_CLOUD_PROJECT"},
        identity="service_account",
        image="image",
        networks=("network_tags", "network"),
    ),
    job=JobKeys(
        "gcp",
        "On Google Cloud: the path of an image or family, or auto.",
        "projects/my-project/global/images/mine",
        "service account",
        "us-central1",
        # A reservation of another project, which is shared with this one, is named by its path.
        reservations=UsedReservations(
            form=r"(projects/[a-z0-9][-a-z0-9.:]*/reservations/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?",
            example="my-reservation or projects/OWNER/reservations/my-reservation",
            zone="us-central1-a",
        ),
    ),
    packages=CloudPackages(
        "google-cloud-compute",
        optional=(OptionalPackage("google.cloud.billing", "gcp-pricing", "on-demand prices of gcp"),),
    ),
    policies=("gcp", "gcp-machines", "gcp-try"),
)
