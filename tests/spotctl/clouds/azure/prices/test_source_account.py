"""Credentials, tokens and sign-in errors of Azure."""

from __future__ import annotations

import logging
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError
from azure.identity import CredentialUnavailableError
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pricing_data.errors import CloudError, MissingCredentials, NoAnswer
from pricing_data.sources.base import FetchRequest
from pricing_data.units import DAY, parse_time
from spotctl.clouds.azure.prices import AzureSource
from spotctl.clouds.azure.session import AzureSession
from tests.servers.azure import (
    SUBSCRIPTION,
    AzureWorld,
    eviction_row,
    retail_item,
    running_azure,
    sku,
)

NOW = parse_time("2026-03-01T12:00:00Z")
REQUEST = FetchRequest(since=NOW - 30 * DAY, until=NOW, regions=("eastus",))
CURES = (
    "AZURE_TENANT_ID",
    "AZURE_CLIENT_ID",
    "AZURE_CLIENT_SECRET",
    "az login",
    "AZURE_SUBSCRIPTION_ID",
)


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> Iterator[AzureWorld]:
    logger = logging.getLogger("azure")
    level = logger.level
    logger.setLevel(logging.NOTSET)
    with running_azure(monkeypatch) as world:
        world.cloud.retail.append(
            retail_item("eastus", "Standard_D2s_v3", 10**8, NOW - DAY, kind="Spot")
        )
        world.cloud.skus.append(sku("eastus", "Standard_D2s_v3", vCPUs="2", MemoryGB="8"))
        world.cloud.spot.append(eviction_row("eastus", "Standard_D2s_v3", "0-5"))
        yield world
    logger.setLevel(level)


class Credential:
    """Returns numbered tokens, or raises the given error."""

    def __init__(self, failure: Exception | None = None, seconds: float = 3600) -> None:
        self.failure = failure
        self.seconds = seconds
        self.asked: list[tuple[str, ...]] = []

    def get_token(self, *scopes: str, **_: object) -> AccessToken:
        self.asked.append(scopes)
        if self.failure:
            raise self.failure
        return AccessToken(f"token-{len(self.asked)}", int(time.time() + self.seconds))


def missing_part(azure: AzureWorld, source: AzureSource) -> CloudError | None:
    """The error of the account's single task; asserts that the price list was fetched."""
    result = azure.pull(REQUEST, source)
    assert result["eastus", "prices"].error is None
    assert len(result["eastus", "prices"].observed) == 2
    assert len(result) == 2
    return result["-", "spot history, eviction rates, machine types"].error


def test_no_subscription_says_how_to_choose_one(azure: AzureWorld) -> None:
    error = missing_part(azure, AzureSource(azure.settings(subscription=None)))
    assert isinstance(error, MissingCredentials)
    assert "no Azure subscription" in str(error)


def test_the_subscription_defaults_to_the_environment(
    azure: AzureWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_SUBSCRIPTION_ID", SUBSCRIPTION)
    result = azure.pull(REQUEST, AzureSource(azure.settings(subscription=None)))
    assert [found.name for found in result["eastus", "machine types"].all.types] == [
        "Standard_D2s_v3"
    ]


@pytest.mark.parametrize("kind", [CredentialUnavailableError, ClientAuthenticationError])
def test_credentials_that_fail_are_missing_credentials(
    azure: AzureWorld, kind: type[ClientAuthenticationError]
) -> None:
    credential = Credential(kind(message="the secret is expired\nTrace ID: 1"))
    source = AzureSource(azure.settings(management_endpoint="https://127.0.0.1:9"), credential)
    error = missing_part(azure, source)
    assert isinstance(error, MissingCredentials)
    assert all(cure in str(error) for cure in CURES)
    assert "the secret is expired" in str(error)
    assert "\n" not in str(error)
    assert credential.asked == [("https://127.0.0.1:9/.default",)]


def test_an_unreachable_sign_in_is_not_missing_credentials(azure: AzureWorld) -> None:
    credential = Credential(ServiceRequestError("no route to login"))
    source = AzureSource(azure.settings(management_endpoint="https://127.0.0.1:9"), credential)
    assert isinstance(missing_part(azure, source), NoAnswer)


def test_without_credentials_no_metadata_server_is_contacted_and_nothing_is_logged(
    azure: AzureWorld,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with caplog.at_level(logging.WARNING):
        error = missing_part(azure, AzureSource(azure.settings(management_endpoint=None)))
    assert isinstance(error, MissingCredentials)
    attempts = str(error.__cause__)
    assert "EnvironmentCredential" in attempts
    assert "AzureCliCredential" in attempts
    assert "ManagedIdentityCredential" not in attempts
    assert [record for record in caplog.records if record.name.startswith("azure")] == []


def test_unusable_settings_in_the_environment_are_missing_credentials(
    azure: AzureWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "nonsense")
    error = missing_part(azure, AzureSource(azure.settings(management_endpoint=None)))
    assert isinstance(error, MissingCredentials)
    assert "nonsense" in str(error)


def test_a_chosen_log_level_is_kept(azure: AzureWorld) -> None:
    logging.getLogger("azure").setLevel(logging.DEBUG)
    azure.pull(REQUEST)
    assert logging.getLogger("azure").level == logging.DEBUG


def test_no_token_is_requested_or_sent_over_plain_http(azure: AzureWorld) -> None:
    credential = Credential(AssertionError("asked for a token"))
    result = azure.pull(REQUEST, AzureSource(azure.settings(), credential))
    assert all(found.error is None for found in result.values())
    assert credential.asked == []
    assert not any("authorization" in request.headers for request in azure.server.requests)


def test_one_token_serves_all_tasks_over_tls(
    azure: AzureWorld, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    credential = Credential()
    with behind_tls(azure.server.url, tmp_path) as (url, seen):
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "certificate.pem"))
        result = azure.pull(
            REQUEST, AzureSource(azure.settings(management_endpoint=url), credential)
        )
    assert all(found.error is None for found in result.values())
    assert set(seen) == {"Bearer token-1"}
    assert len(seen) == 3
    assert len(result["eastus", "eviction rates"].all.interruptions) == 1


def test_constructing_a_source_imports_no_sdk() -> None:
    check = (
        "import sys, spotctl.clouds.azure.prices as azure; azure.AzureSource();"
        "print(sorted({'azure', 'httpx', 'stamina', 'requests', 'pandas'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


@contextmanager
def behind_tls(url: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A TLS proxy of the server at `url`, and the Authorization headers that it received and
    removed.
    """
    import httpx

    seen: list[str] = []

    class Relay(BaseHTTPRequestHandler):
        def relay(self) -> None:
            seen.append(self.headers["Authorization"])
            del self.headers["Authorization"]
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answer = httpx.request(
                self.command, url + self.path, headers=dict(self.headers), content=body
            )
            self.send_response(answer.status_code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = relay  # noqa: N815  # the base class's names

        # The base class's name.
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def certificate(folder: Path) -> Path:
    """A key and a self-signed certificate of 127.0.0.1 in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    today = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "certificate.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + signed.public_bytes(serialization.Encoding.PEM)
    )
    return path


@pytest.mark.parametrize(
    ("setting", "variable", "probed"), [(False, "", False), (True, "", True), (False, "prod", True)]
)
def test_a_managed_identity_is_used_only_on_request(
    azure: AzureWorld, monkeypatch: pytest.MonkeyPatch, setting: bool, variable: str, probed: bool
) -> None:
    def chain(exclude_managed_identity_credential: bool = False) -> Credential:
        assert probed is not exclude_managed_identity_credential
        return Credential()

    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", variable)
    monkeypatch.setattr("azure.identity.DefaultAzureCredential", chain)
    AzureSession.sign_in(azure.settings(management_endpoint=None, managed_identity=setting), None)
