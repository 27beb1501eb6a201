"""Who asks an object store: the machine's own identity, from the metadata services of the three
clouds.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from spotctl.agent.cloud_parts import STORAGE, cloud_part
from spotctl.agent.data.locations import MACHINE
from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.aws.storage import AwsKeys
from tests.servers.loopback import LoopbackServer, Reply, Request, serving
from tests.servers.objects import AzureDialect, S3Dialect


@dataclass
class Metadata:
    """What the three services tell a machine; an empty `role` is a machine without an identity."""

    role: str = "trainer"
    asked: list[str] = field(default_factory=list)

    def answer(self, request: Request) -> Reply:
        self.asked.append(request.path)
        if request.path == "/latest/api/token":
            return Reply(200, b"t-1") if request.method == "PUT" else Reply(405)
        if request.path.startswith("/latest/"):
            return (
                self._aws(request)
                if request.headers.get("x-aws-ec2-metadata-token") == "t-1"
                else Reply(401)
            )
        google = request.headers.get("metadata-flavor") == "Google" and request.path.endswith(
            "default/token"
        )
        azure = request.headers.get("metadata") == "true" and request.query.get("resource") == [
            "https://storage.azure.com/"
        ]
        if self.role and (google or azure):
            # Google says the seconds as a number, Azure as text.
            return Reply.of_json(
                {"access_token": "earned", "expires_in": 3600 if google else "3600"}
            )
        return Reply(404)

    def _aws(self, request: Request) -> Reply:
        path = request.path.removeprefix("/latest/meta-data/")
        keys = {
            "AccessKeyId": "A",
            "SecretAccessKey": "S",
            "Token": "T",
            "Expiration": "2030-03-17T17:46:40Z",
        }
        if path == "iam/security-credentials/":
            return Reply(200, self.role.encode()) if self.role else Reply(404)
        if path == f"iam/security-credentials/{self.role}":
            return Reply.of_json(keys)
        return Reply(200, b"eu-west-1") if path == "placement/region" else Reply(404)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metadata]:
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_REGION",
        "AWS_DEFAULT_REGION",
        "GOOGLE_OAUTH_ACCESS_TOKEN",
    ):
        monkeypatch.delenv(name, raising=False)
    metadata = Metadata()
    with serving(metadata) as server:
        point(server, monkeypatch)
        yield metadata


def point(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    host = server.url.removeprefix("http://")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url)
    monkeypatch.setenv("GCE_METADATA_HOST", host)
    monkeypatch.setenv("AZURE_METADATA_HOST", host)


@pytest.mark.usefixtures("service")
def test_the_role_of_an_instance() -> None:
    assert MACHINE("aws").keys() == AwsKeys("A", "S", "T", 1_900_000_000.0)
    assert MACHINE("aws").region() == "eu-west-1"


@pytest.mark.usefixtures("service")
def test_the_environment_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-2")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    assert MACHINE("aws").keys() == AwsKeys("own", "secret")
    assert MACHINE("aws").region() == "us-west-2"


@pytest.mark.usefixtures("service")
def test_tokens_of_google_and_azure() -> None:
    assert MACHINE("gcp").token() == ("earned", 3600.0)
    assert MACHINE("azure").token() == ("earned", 3600.0)


def test_a_machine_without_an_identity_is_told_so(service: Metadata) -> None:
    service.role = ""
    with pytest.raises(StoreRefused, match="name an instance profile under identity:"):
        MACHINE("aws").keys()
    with pytest.raises(StoreRefused, match="no service account"):
        MACHINE("gcp").token()
    with pytest.raises(StoreRefused, match="no managed identity"):
        MACHINE("azure").token()


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
