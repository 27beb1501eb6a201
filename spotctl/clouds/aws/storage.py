"""S3: where it is, and how its callers prove who they are."""

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

from spotctl.agent.data.blobs.bucket import ObjectBucket, StoreRefused
from spotctl.agent.data.blobs.http import Caller, HttpCall, bucket_region
from spotctl.agent.data.blobs.identity import EARLY_SECONDS
from spotctl.agent.data.blobs.s3 import S3Bucket
from spotctl.agent.lease.self_deletion import ask
from spotctl.clouds.aws.machine import metadata_host

S3 = "https://s3.amazonaws.com"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """Credentials; `token` is empty for a user's own keys. They expire at `until`, in seconds since 1970."""

    key: str
    secret: str
    token: str = ""
    until: float = float("inf")


class AwsIdentity(Protocol):
    """A caller of S3. StoreRefused: there are no credentials, or they cannot be used."""

    def keys(self) -> AwsKeys: ...

    def region(self) -> str: ...


def bucket(name: str, who: AwsIdentity) -> ObjectBucket:
    """The bucket of this name."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    # Machines of several regions and clouds may share a bucket, and requests are signed for the bucket's region.
    region = ("" if endpoint else bucket_region(f"{S3}/{name}")) or who.region() or "us-east-1"
    if endpoint:
        url = f"{endpoint.rstrip('/')}/{name}"
    elif "." in name:
        # The endpoint's certificate covers only one label in front of its own name.
        url = f"https://s3.{region}.amazonaws.com/{name}"
    else:
        url = f"https://{name}.s3.{region}.amazonaws.com"
    return S3Bucket(f"s3://{name}", url, Caller(AwsSigner(region, who.keys)))


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
    own = {name: value for name, value in call.headers.items() if name.startswith("x-amz-")}
    headers = {**own, "host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": moment}
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


class MachineRole:
    """A machine's role, from the metadata service; credentials in the environment come first."""

    def keys(self) -> AwsKeys:
        """Keys from the environment, or from the machine's role. StoreRefused: there are none."""
        environment = os.environ
        if "AWS_ACCESS_KEY_ID" in environment and "AWS_SECRET_ACCESS_KEY" in environment:
            token = environment.get("AWS_SESSION_TOKEN", "")
            return AwsKeys(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], token)
        role = _metadata("iam/security-credentials/").split()
        if not role:
            raise StoreRefused(
                "this machine has no identity to reach S3 with: name an instance profile under identity:"
            )
        keys = json.loads(_metadata(f"iam/security-credentials/{role[0]}"))
        until = datetime.fromisoformat(keys["Expiration"].replace("Z", "+00:00")).timestamp()
        return AwsKeys(keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"], until)

    def region(self) -> str:
        """The region in the environment, or the machine's."""
        named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return named or _metadata("placement/region").strip()


def _metadata(path: str) -> str:
    """A value of EC2's metadata service; empty if there is none. StoreRefused: this is not an EC2 instance."""
    host = metadata_host(dict(os.environ))
    try:
        _, token, _ = ask(host, "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT", seconds=5)
        headers = {"X-aws-ec2-metadata-token": token}
        status, body, _ = ask(host, f"/latest/meta-data/{path}", headers, seconds=5)
    except OSError:
        raise StoreRefused("no credentials for S3: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION") from None
    return body if status == 200 else ""


MACHINE = MachineRole()
