"""What machines know of their cloud."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from spotctl.agent.cloud_parts import STORAGE, cloud_part
from spotctl.clouds.aws.storage import AwsKeys
from tests.servers.loopback import serving
from tests.servers.objects import AzureDialect, S3Dialect


@dataclass
class Renewing:
    """An identity whose credentials expire after a number of seconds."""

    seconds: float
    fetched: int = 0

    def keys(self) -> AwsKeys:
        self.fetched += 1
        return AwsKeys("A", "S", "T", time.time() + self.seconds)

    def region(self) -> str:
        return "eu-west-1"

    def token(self) -> tuple[str, float]:
        self.fetched += 1
        return "token", self.seconds


@pytest.mark.parametrize("cloud", ["aws", "gcp", "azure"])
def test_credentials_are_used_until_they_are_about_to_expire(
    cloud: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = cloud_part(cloud, STORAGE)
    assert part is not None
    name = "bucket@account" if cloud == "azure" else "bucket"
    dialect = AzureDialect if cloud == "azure" else S3Dialect
    with serving(dialect("bucket", lambda _: None)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", server.url)
        monkeypatch.setenv("AZURE_STORAGE_BLOB_ENDPOINT", server.url)
        lasting, short = Renewing(3600.0), Renewing(60.0)
        buckets = [part.bucket(name, who) for who in (lasting, short)]
        for _ in range(3):
            for bucket in buckets:
                bucket.put("x", b"")
            # obstore asks for credentials at most ten times a second.
            time.sleep(0.15)
    assert (lasting.fetched, short.fetched) == (1, 3)
