"""The descriptor of Azure."""

from __future__ import annotations

from pricing_data.known_clouds import CloudMarkets
from spotctl.clouds.azure.region_names import REGIONS, spelled
from spotctl.clouds.azure.settings import AzureMachineSettings
from spotctl.home.cloud import Cloud, CloudPackages, CloudSettings, CloudWords, JobKeys, UsedReservations
from spotctl.home.cloud_settings import flag, text

CLOUD = Cloud(
    name="azure",
    words=CloudWords("Azure", "Microsoft", "Virtual Machines"),
    markets=CloudMarkets(
        region=r"[a-z]+\d*",
        zone="({region}-)?[0-9]",
        known_regions=REGIONS,
        spell=spelled,
        region_of_zone=lambda zone: zone.partition("-")[0].lower(),
        rank=3,
    ),
    settings=CloudSettings(
        AzureMachineSettings,
        {
            "azure_subscription": text,
            "azure_management_endpoint": text,
            "azure_retail_prices_url": text,
            "azure_managed_identity": flag,
        },
        variables={"azure_subscription": "AZURE_SUBSCRIPTION_ID"},
        on_machines={"azure_managed_identity": True},
        identity="identity",
        image="image",
        networks=("subnet", "security_group"),
    ),
    job=JobKeys(
        "azure",
        "On Azure: publisher:offer:sku:version, an image's resource id, or auto.",
        "canonical:ubuntu-24_04-lts:server:latest",
        "managed identity",
        "eastus",
        # Machines name a group of reservations, in which Azure chooses the one of their size and zone.
        reservations=UsedReservations(
            form=r"/subscriptions/[-A-Za-z0-9]+/resource[Gg]roups/[-A-Za-z0-9._()]+/providers/Microsoft\.Compute"
            r"/[Cc]apacityReservationGroups/[A-Za-z0-9][-A-Za-z0-9._]*",
            example="/subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Compute"
            "/capacityReservationGroups/NAME",
            zone="eastus-1, or eastus for one without a zone",
            regional=True,
        ),
    ),
    packages=CloudPackages(
        "azure-mgmt-compute",
        (
            "azure-identity",
            "azure-mgmt-authorization",
            "azure-mgmt-monitor",
            "azure-mgmt-resource",
            "azure-mgmt-resource-deployments",
            "azure-mgmt-resourcegraph",
        ),
    ),
    policies=("azure", "azure-machines", "azure-try"),
)
