"""The descriptor of Azure, its settings, and the regions that this version knows; others may have
opened since.

Imports no SDK. Files spell regions in many ways.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import permutations

from pricing_data.errors import MissingCredentials
from pricing_data.known_clouds import CloudMarkets
from spotctl.home.cloud import (
    Cloud,
    CloudAccount,
    CloudSettings,
    CloudWords,
    JobKeys,
    UsedReservations,
    address_ranges,
    flag,
    text,
)

REGIONS = frozenset(
    """
    australiacentral australiacentral2 australiaeast australiasoutheast austriaeast belgiumcentral brazilsouth
    brazilsoutheast canadacentral canadaeast centralindia centralus chilecentral eastasia eastus eastus2 eastus3
    francecentral francesouth germanynorth germanywestcentral indonesiacentral israelcentral italynorth
    japaneast japanwest jioindiacentral jioindiawest koreacentral koreasouth malaysiawest mexicocentral
    newzealandnorth northcentralus northeurope norwayeast norwaywest polandcentral qatarcentral southafricanorth
    southafricawest southcentralus southeastasia southindia spaincentral swedencentral swedensouth
    switzerlandnorth switzerlandwest uaecentral uaenorth uksouth ukwest westcentralus westeurope westindia
    westus westus2 westus3
    """.split()
)


def spelled(region: str) -> str:
    """A region in the spelling of Azure's API (armRegionName); files write `us_east`, price sheets
    `East US`.

    >>> spelled("us_east"), spelled("South Central US")
    ('eastus', 'southcentralus')
    """
    words = [word for word in re.split(r"[\s_-]+|(?<=[a-z])(?=\d)", region.lower()) if word]
    joined = "".join(words)
    if joined in REGIONS or len(words) > 5:
        return joined
    return next((name for name in map("".join, permutations(words)) if name in REGIONS), joined)


@dataclass(frozen=True, slots=True)
class AzureMachineSettings:
    """`[azure]`. `identity`, `subnet`, `security_group` and `disk_encryption_set` are resource ids.

    `identity` is the user-assigned managed identity of the machines: with it, a machine deletes
    itself at the end of its lease. Without a `subnet`, a run gets a network of its own. Without a
    `security_group`, that network's rules admit its own machines, and ssh from `ssh_from`. Without
    `public_ip`, or with `private_ssh`, machines are reached at their private address; without the
    first, they need another way to the internet. `image` is a resource id or
    `publisher:offer:sku:version`; by default Ubuntu, with NVIDIA's drivers on machines with GPUs.
    `tags` are the company's, on everything that is made.
    """

    identity: str | None = None
    subnet: str | None = None
    security_group: str | None = None
    ssh_from: tuple[str, ...] = ()
    public_ip: bool = True
    private_ssh: bool = False
    image: str | None = None
    disk_type: str = "StandardSSD_LRS"
    disk_encryption_set: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ssh_from", address_ranges(self.ssh_from))


AZURE_SIGN_IN = (
    "set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run `az login`, and set "
    "AZURE_SUBSCRIPTION_ID"
)
_AZURE_MANAGEMENT_ENDPOINT = "https://management.azure.com"


@dataclass(frozen=True, slots=True)
class AzureSettings:
    """Subscription, endpoints, retries and timeouts for Azure.

    `subscription` defaults to AZURE_SUBSCRIPTION_ID. A `management_endpoint` that starts with
    `http://` is called without credentials. `managed_identity` is for machines inside Azure;
    elsewhere it waits for a metadata server that does not exist (AZURE_TOKEN_CREDENTIALS, if set,
    decides instead). A Retry-After above `longest_wait_seconds` makes the public price list fail at
    once; the SDK obeys any.
    """

    subscription: str | None = None
    management_endpoint: str | None = None
    retail_prices_url: str = "https://prices.azure.com/api/retail/prices"
    managed_identity: bool = False
    retries: int = 5
    backoff_seconds: float = 0.8
    longest_wait_seconds: float = 120.0
    timeout_seconds: float = 60.0

    def chosen_subscription(self) -> str:
        """The subscription set here or in the environment."""
        chosen = (self.subscription or os.environ.get("AZURE_SUBSCRIPTION_ID", "")).strip()
        if not chosen:
            raise MissingCredentials("no Azure subscription is set", AZURE_SIGN_IN)
        return chosen

    @property
    def endpoint(self) -> str:
        """The management endpoint in use, without a trailing slash."""
        return (self.management_endpoint or _AZURE_MANAGEMENT_ENDPOINT).rstrip("/")


ACCOUNT = CloudAccount(
    "run az login, and set AZURE_SUBSCRIPTION_ID; then spotctl setup azure",
    "docs/azure.md#once-per-subscription",
    variables=("AZURE_CLIENT_ID", "AZURE_SUBSCRIPTION_ID"),
    files=(("AZURE_CONFIG_DIR", "~/.azure", "azureProfile.json"),),
    names=("azure_subscription", "azure_management_endpoint"),
)

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
        # Machines name a group of reservations, in which Azure chooses the one of their size and
        # zone.
        reservations=UsedReservations(
            form=r"/subscriptions/[-A-Za-z0-9]+/resource[Gg]roups/[-A-Za-z0-9._()]+/providers/Microsoft\.Compute"
            r"/[Cc]apacityReservationGroups/[A-Za-z0-9][-A-Za-z0-9._]*",
            example="/subscriptions/SUBSCRIPTION/resourceGroups/GROUP/providers/Microsoft.Compute"
            "/capacityReservationGroups/NAME",
            zone="eastus-1, or eastus for one without a zone",
            regional=True,
        ),
    ),
    packages=(
        "azure-mgmt-compute",
        "azure-identity",
        "azure-mgmt-authorization",
        "azure-mgmt-monitor",
        "azure-mgmt-resource",
        "azure-mgmt-resource-deployments",
        "azure-mgmt-resourcegraph",
    ),
    account=ACCOUNT,
    policies=("azure", "azure-machines", "azure-try"),
)
