"""The descriptor of Google Cloud, its settings, and the regions that this version knows. Imports no
SDK.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pricing_data.known_clouds import CloudMarkets
from pricing_data.units import DAY
from spotctl.home.cloud import (
    Cloud,
    CloudAccount,
    CloudSettings,
    CloudWords,
    JobKeys,
    UsedReservations,
    address_ranges,
    text,
)

REGIONS = frozenset(
    """
    us-central1 us-east1 us-east4 us-east5 us-south1 us-west1 us-west2 us-west3 us-west4 northamerica-northeast1
    northamerica-northeast2 northamerica-south1 southamerica-east1 southamerica-west1 europe-central2
    europe-north1 europe-north2 europe-southwest1 europe-west1 europe-west2 europe-west3 europe-west4
    europe-west6 europe-west8 europe-west9 europe-west10 europe-west12 asia-east1 asia-east2 asia-northeast1
    asia-northeast2 asia-northeast3 asia-south1 asia-south2 asia-southeast1 asia-southeast2 australia-southeast1
    australia-southeast2 me-central1 me-central2 me-west1 africa-south1
    """.split()
)


_LABEL_KEY, _LABEL_VALUE = re.compile(r"[a-z][a-z0-9_-]{0,62}"), re.compile(r"[a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class GcpMachineSettings:
    """`[gcp]`. Networks are named as Google does: `default`, or
    `projects/P/regions/R/subnetworks/S`.

    Machines are in `subnetwork`, or else in `network`. With `network_tags` they carry these tags,
    and the network's own firewall rules apply to them; otherwise each run gets rules that admit its
    own machines, and ssh from `ssh_from` (address ranges such as 203.0.113.7/32). Without
    `public_ip`, or with `private_ssh`, the launcher must be able to reach private addresses.
    `labels` are the company's, on everything that has labels. `disk_gib` is for jobs that name no
    size. A machine is ended by Google itself after `longest_hours`, whatever its lease says.
    """

    network: str = "default"
    subnetwork: str | None = None
    network_tags: tuple[str, ...] = ()
    ssh_from: tuple[str, ...] = ()
    public_ip: bool = True
    private_ssh: bool = False
    service_account: str | None = None
    image: str | None = None
    disk_gib: int = 50
    kms_key: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    longest_hours: int = 168

    def __post_init__(self) -> None:
        object.__setattr__(self, "ssh_from", address_ranges(self.ssh_from))
        for key, value in self.labels.items():
            if not (_LABEL_KEY.fullmatch(key) and _LABEL_VALUE.fullmatch(value)) or key.startswith(
                "spotctl-"
            ):
                problem = (
                    "labels of up to 63 lowercase letters, digits, _ and -, whose keys start "
                    f"with a letter but not with spotctl-, not {key} = {value!r}"
                )
                raise ValueError(problem)

        if not 1 <= self.longest_hours <= 2880:
            problem = (
                "from 1 to 2880 in longest_hours (Google's limit is 120 days), not "
                f"{self.longest_hours}"
            )
            raise ValueError(problem)
        if self.disk_gib < 10:
            raise ValueError(f"10 or more in disk_gib, which the image needs, not {self.disk_gib}")


@dataclass(frozen=True, slots=True)
class GcpSettings:
    """Project, endpoints, retries and timeouts for Google Cloud; `None` means the SDK's default.

    The project defaults to `GOOGLE_CLOUD_PROJECT`, then to that of the default credentials. An
    endpoint that starts with `http://` is called without credentials. A throttled or failed call is
    retried after `first_retry_seconds`, then with growing delays, until `retry_deadline_seconds`
    have passed; a server that accepts no connection is given up after `connection_attempts`.
    """

    project: str | None = None
    compute_endpoint: str | None = None
    billing_endpoint: str | None = None
    resource_manager_endpoint: str | None = None
    iam_endpoint: str | None = None
    service_usage_endpoint: str | None = None
    call_timeout_seconds: float = 60.0
    first_retry_seconds: float = 1.0
    retry_deadline_seconds: float = 60.0
    connection_attempts: int = 3

    @property
    def api_key(self) -> str:
        """The key with which the price list is read; empty if there is none, or if a project is
        set.
        """
        has_project = self.project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        return "" if has_project else os.environ.get("GOOGLE_API_KEY", "").strip()


ACCOUNT = CloudAccount(
    "run gcloud auth application-default login, and set GOOGLE_CLOUD_PROJECT; then spotctl setup "
    "gcp",
    "docs/google-cloud.md#once-per-project",
    variables=("GOOGLE_APPLICATION_CREDENTIALS",),
    files=(("CLOUDSDK_CONFIG", "~/.config/gcloud", "application_default_credentials.json"),),
    names=("gcp_compute_endpoint",),
)

CLOUD = Cloud(
    name="gcp",
    words=CloudWords(
        "Google Cloud",
        "Google Cloud",
        "Compute Engine",
        "Google Cloud takes no bids: a machine costs the current spot price, and no price change "
        "evicts it; Google takes machines back when it needs them",
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
            "gcp_service_usage_endpoint": text,
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
    packages=("google-cloud-compute",),
    extras=(("google.cloud.billing", "gcp-pricing", "on-demand prices of gcp"),),
    account=ACCOUNT,
    policies=("gcp", "gcp-machines", "gcp-try"),
)
