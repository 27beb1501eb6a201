"""The object stores of the simulated Google Cloud and Azure, and how launchers and machines sign in
to them.

Each has one bucket, `RESULTS`. Machines show tokens of their metadata service. A launcher gets its
tokens as the SDKs do: on Google Cloud with the key file of a service account, on Azure from the
identity endpoint of an App Service.
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from tests.cloud.host import MachineHost
from tests.servers.loopback import Reply, Request, serving
from tests.servers.objects import AzureDialect, GoogleDialect, ObjectStore, error

RESULTS = "results"
ACCOUNT = "company"
"""The storage account of the container on Azure."""

STORAGE_AUDIENCE = "https://storage.azure.com"
_LAUNCHER = "launcher@example.com"
_GOOGLE_AUDIENCE = "https://oauth2.googleapis.com/token"
_SECONDS = 3600


class Buckets:
    """An object store on 127.0.0.1. `is_machines` says whether a token is that of a machine's
    identity.

    `new_token` makes the tokens of launchers, which another store may take, too.
    """

    def __init__(self, host: MachineHost, is_machines: Callable[[str], bool]) -> None:
        self._host, self._is_machines = host, is_machines
        self.new_token: Callable[[], str] = partial(secrets.token_urlsafe, 16)
        self._launchers: set[str] = set()
        self._open = ExitStack()
        self.server = self._open.enter_context(serving(self))

    @property
    def inside(self) -> str:
        """The store's address for machines."""
        return f"http://{self._host.reach(int(self.server.url.rpartition(':')[2]))}"

    def answer(self, request: Request) -> Reply:
        return self._sign_in(request) if request.path == "/token" else self.store.answer(request)

    def close(self) -> None:
        self._open.close()

    @cached_property
    def store(self) -> ObjectStore:
        raise NotImplementedError

    def _sign_in(self, request: Request) -> Reply:
        raise NotImplementedError

    def _check(self, request: Request) -> Reply | None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        known = token in self._launchers or self._is_machines(token)
        return None if known else error(401, "NoAuthenticationInformation")

    def _token(self) -> str:
        token = self.new_token()
        self._launchers.add(token)
        return token


class GoogleBuckets(Buckets):
    """Cloud Storage. A request without a token comes from an administrator: none is sent over plain
    HTTP."""

    admin: Callable[[Request], Reply | None]

    def answer(self, request: Request) -> Reply:
        anonymous = "authorization" not in request.headers
        return (anonymous and self.admin(request)) or super().answer(request)

    @cached_property
    def store(self) -> ObjectStore:
        return GoogleDialect(RESULTS, self._check)

    @cached_property
    def _key(self) -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)

    @cached_property
    def _key_file(self) -> Path:
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="spotctl-key-")))
        private = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        about = {
            "type": "service_account",
            "private_key": private.decode(),
            "private_key_id": "1",
            "client_email": _LAUNCHER,
            "token_uri": f"{self.server.url}/token",
        }
        (folder / "key.json").write_text(json.dumps(about))
        return folder / "key.json"

    def environment(self) -> Mapping[str, str]:
        return {
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": self.server.url,
            "GOOGLE_APPLICATION_CREDENTIALS": str(self._key_file),
        }

    def _sign_in(self, request: Request) -> Reply:
        public = self._key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        try:
            (assertion,) = parse_qs(request.body.decode())["assertion"]
            jwt.decode(assertion, certs=public, audience=_GOOGLE_AUDIENCE)  # type: ignore[no-untyped-call]
        except (KeyError, ValueError) as refused:
            return Reply.of_json({"error": "invalid_grant", "error_description": str(refused)}, 400)
        return Reply.of_json(
            {"access_token": self._token(), "expires_in": _SECONDS, "token_type": "Bearer"}
        )


PRINCIPAL = "11111111-2222-4333-8444-555555555555"
"""The object id of launchers on Azure, which their tokens state."""


class AzureBuckets(Buckets):
    """A container of Blob Storage."""

    def __init__(self, host: MachineHost, is_machines: Callable[[str], bool]) -> None:
        super().__init__(host, is_machines)
        self.new_token = self._of_launcher

    def _of_launcher(self) -> str:
        """A token as Entra makes it, with the claims of a user in the Azure CLI."""
        claims = {"oid": PRINCIPAL, "scp": "user_impersonation", "uti": secrets.token_urlsafe(16)}
        parts = ({"alg": "RS256", "typ": "JWT"}, claims)
        written = [urlsafe_b64encode(json.dumps(part).encode()).decode() for part in parts]
        return ".".join([*(part.rstrip("=") for part in written), "c2lnbmF0dXJl"])

    @cached_property
    def store(self) -> ObjectStore:
        return AzureDialect(RESULTS, self._check)

    @cached_property
    def _header(self) -> str:
        return secrets.token_urlsafe(16)

    def environment(self) -> Mapping[str, str]:
        return {
            "AZURE_STORAGE_BLOB_ENDPOINT": self.server.url,
            "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential",
            "IDENTITY_ENDPOINT": f"{self.server.url}/token",
            "IDENTITY_HEADER": self._header,
        }

    def _sign_in(self, request: Request) -> Reply:
        asked = request.query.get("resource", [""])[0].rstrip("/")
        if request.headers.get("x-identity-header") != self._header or asked != STORAGE_AUDIENCE:
            return Reply.of_json({"statusCode": 400, "message": f"no token for {asked} here"}, 400)
        until = str(int(time.time()) + _SECONDS)
        return Reply.of_json(
            {
                "access_token": self._token(),
                "expires_on": until,
                "token_type": "Bearer",
                "resource": asked,
            }
        )
