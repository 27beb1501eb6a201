"""The descriptor of AWS."""

from __future__ import annotations

from pricing_data.known_clouds import CloudMarkets
from pricing_data.units import MINUTE
from spotctl.clouds.aws.region_names import REGIONS
from spotctl.clouds.aws.settings import AwsMachineSettings
from spotctl.home.cloud import Cloud, CloudPackages, CloudSettings, CloudWords, JobKeys, UsedReservations
from spotctl.home.cloud_settings import text


def _region_of_zone(zone: str) -> str:
    return zone[:-1] if zone[-2:-1].isdigit() else zone


CLOUD = Cloud(
    name="aws",
    words=CloudWords("AWS", "AWS", "Amazon Elastic Compute Cloud"),
    markets=CloudMarkets(
        region=r"[a-z]{2,3}(-[a-z]+)+-\d+",
        # There are also local zones, wavelength zones and zone ids.
        zone="{region}([a-z]|-[a-z0-9-]+)|[a-z]+[0-9]+-([a-z0-9]+-)*az[0-9]+",
        known_regions=REGIONS,
        region_of_zone=_region_of_zone,
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
            # EC2 begins to terminate the machines of a Capacity Block half an hour before the block ends.
            block_ends_early=30 * MINUTE,
            close=True,
        ),
    ),
    packages=CloudPackages("boto3"),
    policies=("aws", "aws-try", "aws-try-role"),
)
