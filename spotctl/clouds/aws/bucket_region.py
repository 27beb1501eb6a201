"""Where a bucket of S3 is."""

import os

from spotctl.agent.data.blobs.http import bucket_region
from spotctl.clouds.aws.storage import S3, AwsIdentity


def region_of(name: str, who: AwsIdentity) -> str:  # noqa: ARG001 - S3 tells everyone
    """The region of a bucket; empty if S3 does not say."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or S3
    return bucket_region(f"{endpoint.rstrip('/')}/{name}")
