"""Who asks an object store: the machine's own identity, from the metadata services of the three
clouds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from spotctl.agent.data.locations import MACHINE
from spotctl.agent.data.stores import StoreRefused
from spotctl.clouds.aws.storage import AwsKeys
from tests.servers.loopback import LoopbackServer, Reply, Request, serving


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
