"""Authenticates callers of object stores: AWS signatures, and tokens of Google and Azure, from the environment or the
machine's own identity."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from urllib.parse import quote, urlsplit

from spotctl.agent.blobs.bucket import StoreRefused
from spotctl.agent.blobs.http import HttpCall
from spotctl.agent.self_deletion import METADATA_HOST, ask, azure_host, fetch_metadata, google_host

EARLY_SECONDS = 300.0
"""How long before their expiry credentials are fetched again."""

_STORAGE = "https://storage.azure.com/"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """Credentials; `token` is empty for a user's own keys. They expire at `until`, in seconds since 1970."""

    key: str
    secret: str
    token: str = ""
    until: float = float("inf")


class StoreIdentity(Protocol):
    """The caller of an object store. StoreRefused: there are no credentials, or they cannot be used."""

    def aws_keys(self) -> AwsKeys: ...

    def aws_region(self) -> str: ...

    def google_token(self) -> tuple[str, float]:
        """A token, and the seconds for which it is valid; `azure_token` likewise."""
        ...

    def azure_token(self) -> tuple[str, float]: ...


class AwsSigner:
    """Signs requests to S3 (Signature Version 4). `keys` is called at first, and when the keys expire soon."""

    def __init__(self, region: str, keys: Callable[[], AwsKeys], now: Callable[[], float] = time.time) -> None:
        self._region, self._fetch, self._now = region, keys, now
        self._keys: AwsKeys | None = None

    def __call__(self, call: HttpCall) -> Mapping[str, str]:
        now = self._now()
        if self._keys is None or now > self._keys.until - EARLY_SECONDS:
            self._keys = self._fetch()
        return signature(call, self._keys, self._region, datetime.fromtimestamp(now, UTC))


def signature(call: HttpCall, keys: AwsKeys, region: str, now: datetime) -> dict[str, str]:
    """The headers that prove that the owner of these keys made this very call at this moment."""
    moment = now.strftime("%Y%m%dT%H%M%SZ")
    parts, digest = urlsplit(call.url), hashlib.sha256(call.body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": moment}
    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(sorted(headers))
    query = "&".join(f"{quote(name, safe='~')}={quote(value, safe='~')}" for name, value in sorted(call.query.items()))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = "\n".join((call.method, parts.path or "/", query, lines, names, digest))
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys.secret}".encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    proof = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    authorization = f"AWS4-HMAC-SHA256 Credential={keys.key}/{scope}, SignedHeaders={names}, Signature={proof}"
    return {**{name: value for name, value in headers.items() if name != "host"}, "Authorization": authorization}


class BearerToken:
    """Sends a token; `token` returns a new one, and the seconds for which it is valid."""

    def __init__(self, token: Callable[[], tuple[str, float]]) -> None:
        self._fetch = token
        self._token, self._until = "", 0.0

    def __call__(self, _: HttpCall) -> Mapping[str, str]:
        if time.monotonic() > self._until - EARLY_SECONDS:
            self._token, seconds = self._fetch()
            # A token that expires sooner than `EARLY_SECONDS` is used once.
            self._until = time.monotonic() + seconds
        return {"Authorization": f"Bearer {self._token}"}


class MachineIdentity:
    """A rented machine's identity, from the metadata service; credentials in the environment come first."""

    def aws_keys(self) -> AwsKeys:
        """Keys from the environment, or from the machine's role. StoreRefused: there are none."""
        environment = os.environ
        if "AWS_ACCESS_KEY_ID" in environment and "AWS_SECRET_ACCESS_KEY" in environment:
            token = environment.get("AWS_SESSION_TOKEN", "")
            return AwsKeys(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], token)
        role = _aws_metadata("iam/security-credentials/").split()
        if not role:
            raise StoreRefused(
                "this machine has no identity to reach S3 with: name an instance profile under identity:"
            )
        keys = json.loads(_aws_metadata(f"iam/security-credentials/{role[0]}"))
        until = datetime.fromisoformat(keys["Expiration"].replace("Z", "+00:00")).timestamp()
        return AwsKeys(keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"], until)

    def aws_region(self) -> str:
        """The region in the environment, or the machine's."""
        named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return named or _aws_metadata("placement/region").strip()

    def google_token(self) -> tuple[str, float]:
        """A token from the environment, or for the machine's service account. StoreRefused: there is none."""
        if token := os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
            return token, EARLY_SECONDS
        path = "/computeMetadata/v1/instance/service-accounts/default/token"
        try:
            answer = json.loads(fetch_metadata(google_host(), path, {"Metadata-Flavor": "Google"}))
        except OSError as error:
            raise StoreRefused(f"this machine has no service account to reach Cloud Storage with: {error}") from None
        return str(answer["access_token"]), float(answer.get("expires_in", 0))

    def azure_token(self) -> tuple[str, float]:
        """A token for the machine's managed identity. StoreRefused: there is none."""
        path = f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={quote(_STORAGE, safe='')}"
        try:
            answer = json.loads(fetch_metadata(azure_host(), path, {"Metadata": "true"}))
        except OSError as error:
            raise StoreRefused(f"this machine has no managed identity to reach Blob Storage with: {error}") from None
        return str(answer["access_token"]), float(answer.get("expires_in", 0))


def _aws_metadata(path: str) -> str:
    """A value of EC2's metadata service; empty if there is none. StoreRefused: this is not an EC2 instance."""
    endpoint = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", METADATA_HOST)
    host = endpoint.rpartition("//")[2].rstrip("/")
    try:
        _, token, _ = ask(host, "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT", seconds=5)
        headers = {"X-aws-ec2-metadata-token": token}
        status, body, _ = ask(host, f"/latest/meta-data/{path}", headers, seconds=5)
    except OSError:
        raise StoreRefused("no credentials for S3: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION") from None
    return body if status == 200 else ""


MACHINE = MachineIdentity()
