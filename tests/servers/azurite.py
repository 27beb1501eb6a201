"""Azurite, Microsoft's own emulator of Blob Storage: `npm install azurite`, and `azurite-blob` on
the PATH.

It takes tokens only over TLS.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import shutil
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.servers.processes import listening

CONTAINER = "results"
LOCATION = f"az://{CONTAINER}@devstoreaccount1"

_COMMAND = "azurite-blob"
_HOME = "127.0.0.1"


@dataclass(frozen=True)
class Azurite:
    """Azurite with an empty container. `certificate` is its own authority."""

    port: int
    certificate: Path

    def account(self, host: str = _HOME) -> str:
        """The address of the account, for computers that have this name for the one of Azurite."""
        return f"https://{host}:{self.port}/devstoreaccount1"


@contextmanager
def azurite(folder: Path, *names: str) -> Iterator[Azurite]:
    """Azurite, which other computers call by these names."""
    command = shutil.which(_COMMAND)
    if command is None:
        pytest.skip(f"needs {_COMMAND} of npm's package azurite on the PATH")
    certificate, key = _certificate(folder, names)
    memory = (
        "--inMemoryPersistence",
        "--disableTelemetry",
        "--disableProductStyleUrl",
        "--oauth",
        "basic",
    )
    words = [command, "--blobPort", "0", *memory, "--cert", str(certificate), "--key", str(key)]
    with listening(words, folder / "azurite.log") as port:
        running = Azurite(port, certificate)
        headers = {"Authorization": f"Bearer {new_token()}", "x-ms-version": "2023-11-03"}
        url = f"{running.account()}/{CONTAINER}?restype=container"
        made = httpx.put(
            url, headers=headers, verify=ssl.create_default_context(cafile=certificate)
        )
        made.raise_for_status()
        yield running


def new_token() -> str:
    """Azurite checks a token's audience, issuer and times, and no signature."""
    now = int(time.time())
    claims = {"aud": "https://storage.azure.com", "nbf": now - 5, "iat": now - 5, "exp": now + 3600}
    issuer = {"iss": "https://sts.windows.net/00000000-0000-0000-0000-000000000000/"}
    parts = ({"alg": "RS256", "typ": "JWT"}, claims | issuer)
    encoded = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts
    ]
    return ".".join([*encoded, "c2ln"])


class AzuriteUser:
    """See `StoreIdentity` and `TokenIdentity`."""

    def __call__(self, _: str) -> AzuriteUser:
        return self

    def token(self) -> tuple[str, float]:
        return new_token(), 3600.0


def _certificate(folder: Path, names: tuple[str, ...]) -> tuple[Path, Path]:
    """A certificate for these names and this computer's own address that is its own authority, and
    its key.
    """
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "azurite")])
    hosts = [x509.IPAddress(ipaddress.ip_address(_HOME)), *map(x509.DNSName, names)]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=2))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "certificate.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(key.private_bytes(pem, form, plain))
    return folder / "certificate.pem", folder / "key.pem"
