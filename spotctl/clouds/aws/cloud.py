"""The descriptor of AWS, its settings, and the regions that this version knows; others may have
opened since.

Imports no SDK. By default machines use the account's default network, rules made for each run, and
an image that fits the type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pricing_data.known_clouds import CloudMarkets
from pricing_data.units import MINUTE
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

if TYPE_CHECKING:
    from stamina import RetryingCaller


REGIONS = frozenset(
    """
    us-east-1 us-east-2 us-west-1 us-west-2 ca-central-1 ca-west-1 mx-central-1 sa-east-1 eu-west-1 eu-west-2
    eu-west-3 eu-central-1 eu-central-2 eu-north-1 eu-south-1 eu-south-2 ap-south-1 ap-south-2 ap-east-1
    ap-east-2 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-southeast-1 ap-southeast-2 ap-southeast-3
    ap-southeast-4 ap-southeast-5 ap-southeast-7 me-south-1 me-central-1 il-central-1 af-south-1 us-gov-east-1
    us-gov-west-1 cn-north-1 cn-northwest-1
    """.split()
)


def partition_of(region: str) -> tuple[str, str]:
    """The partition of a region, which has accounts of its own: the part of its resources' names
    that says so, and a region that each such account has
    (https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/partitions.html).

    >>> partition_of("cn-northwest-1"), partition_of("us-gov-east-1"), partition_of("eu-west-1")
    (('aws-cn', 'cn-north-1'), ('aws-us-gov', 'us-gov-west-1'), ('aws', 'us-east-1'))
    """
    if region.startswith("cn-"):
        return "aws-cn", "cn-north-1"
    if region.startswith("us-gov-"):
        return "aws-us-gov", "us-gov-west-1"
    return "aws", "us-east-1"


@dataclass(frozen=True, slots=True)
class AwsMachineSettings:
    """`[aws]`. The lists of subnets and security groups cover all regions; each entry is used in
    its own region.

    Without `security_groups`, each run has one of its own, which admits ssh from `ssh_from`
    (address ranges such as 203.0.113.7/32) and everything from machines of the run. With
    `private_ssh`, machines that have a public address are nevertheless reached at their private
    one. `roles` are the IAM roles that machines may have. `tags` are the company's, on everything
    that is made. Without `regions`, machines are looked for in all regions that the account has
    enabled.
    """

    regions: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    ssh_from: tuple[str, ...] = ()
    public_ip: bool = True
    private_ssh: bool = False
    kms_key: str | None = None
    image: str | None = None
    roles: tuple[str, ...] = ("spotctl",)
    tags: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ssh_from", address_ranges(self.ssh_from))


PRICE_LIST_REGION: Final = "us-east-1"
"""The Price List is in few regions; each has the prices of all."""


PRICE_LIST = "https://pricing.us-east-1.amazonaws.com"
LOCATIONS = {
    "us-east-1": "US East (N. Virginia)",
    "us-east-2": "US East (Ohio)",
    "us-west-1": "US West (N. California)",
    "us-west-2": "US West (Oregon)",
    "ca-central-1": "Canada (Central)",
    "eu-central-1": "EU (Frankfurt)",
    "eu-north-1": "EU (Stockholm)",
    "eu-west-1": "EU (Ireland)",
    "eu-west-2": "EU (London)",
    "eu-west-3": "EU (Paris)",
    "ap-northeast-1": "Asia Pacific (Tokyo)",
    "ap-northeast-2": "Asia Pacific (Seoul)",
    "ap-south-1": "Asia Pacific (Mumbai)",
    "ap-southeast-1": "Asia Pacific (Singapore)",
    "ap-southeast-2": "Asia Pacific (Sydney)",
    "sa-east-1": "South America (Sao Paulo)",
}
"""The larger regions, as AWS's price pages name them."""


@dataclass(frozen=True, slots=True)
class AwsSettings:
    """Retries and timeouts for AWS. boto3 finds credentials, profile, default region and endpoints.

    Its own variables name them: `AWS_PROFILE`, `AWS_ENDPOINT_URL`, `AWS_ENDPOINT_URL_EC2`,
    `AWS_ENDPOINT_URL_PRICING`. `max_attempts` includes the first attempt. botocore retries
    throttling and lost connections with its own delays; `backoff_seconds` is the first delay before
    other retries: of a truncated answer, or of the Spot Advisor's file.
    """

    price_list_url: str = PRICE_LIST
    spot_advisor_url: str = "https://spot-bid-advisor.s3.amazonaws.com/spot-advisor-data.json"
    max_attempts: int = 8
    timeout_seconds: float = 30.0
    backoff_seconds: float = 0.5

    def retrying(self) -> RetryingCaller:
        """Retries a function with growing delays."""
        from stamina import RetryingCaller

        return RetryingCaller(
            attempts=self.max_attempts,
            timeout=None,
            wait_initial=self.backoff_seconds,
            wait_jitter=self.backoff_seconds,
        )


ACCOUNT = CloudAccount(
    "run aws configure, or set AWS_PROFILE; then spotctl setup aws",
    "docs/aws.md#once-per-account",
    variables=(
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ROLE_ARN",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ),
    files=(
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", ""),
        ("AWS_CONFIG_FILE", "~/.aws/config", ""),
    ),
)

CLOUD = Cloud(
    name="aws",
    words=CloudWords("AWS", "AWS", "Amazon Elastic Compute Cloud"),
    markets=CloudMarkets(
        region=r"[a-z]{2,3}(-[a-z]+)+-\d+",
        # There are also local zones, wavelength zones and zone ids.
        zone="{region}([a-z]|-[a-z0-9-]+)|[a-z]+[0-9]+-([a-z0-9]+-)*az[0-9]+",
        known_regions=REGIONS,
        zone_id=r"[a-z]+[0-9]+-([a-z0-9]+-)*az[0-9]+",
        region_of_zone=lambda zone: zone[:-1] if zone[-2:-1].isdigit() else zone,
        rank=1,
        repeats_prices=True,
    ),
    settings=CloudSettings(
        AwsMachineSettings,
        {"aws_price_list_url": text, "aws_spot_advisor_url": text},
        image="image",
        networks=("security_groups",),
    ),
    job=JobKeys(
        "ami",
        "On AWS: an image id, or auto.",
        "ami-0123456789abcdef0",
        "instance profile",
        "us-east-1",
        reservations=UsedReservations(
            form=r"cr-[0-9a-f]+",
            example="cr-0123456789abcdef0",
            zone="us-east-1a",
            # EC2 begins to terminate the machines of a Capacity Block half an hour before the block
            # ends.
            block_ends_early=30 * MINUTE,
            close=True,
        ),
    ),
    packages=("boto3",),
    account=ACCOUNT,
    policies=("aws", "aws-try", "aws-try-role"),
)
