"""S3: where it is, and how its callers prove who they are."""

from __future__ import annotations

import hmac
import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit

from spotctl.agent.data.stores import CALL_SECONDS, Bucket, StoreRefused, client_options, retries
from spotctl.agent.lease.self_deletion import ask
from spotctl.clouds.aws.machine import metadata_host

if TYPE_CHECKING:
    from obstore.store import S3Config, S3Credential, S3Store

S3 = "https://s3.amazonaws.com"


@dataclass(frozen=True, slots=True)
class AwsKeys:
    """Credentials; `token` is empty for a user's own keys. They expire at `until`, in seconds since
    1970.
    """

    key: str
    secret: str
    token: str = ""
    until: float = float("inf")


def endpoint() -> str:
    """Where S3 is, if not at Amazon."""
    return (
        os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    ).rstrip("/")


def bucket(name: str, who: MachineRole) -> Bucket:
    """The bucket of this name."""

    @cache
    def region() -> str:
        return signing_region(name, who)

    def root() -> str:
        return f"{endpoint() or f'https://s3.{region()}.amazonaws.com'}/{name}"

    def connect(count: int, parent: str | None) -> S3Store:
        from obstore.store import S3Store

        config: S3Config = {"endpoint": endpoint()} if endpoint() else {}
        # The endpoint's certificate covers only one label in front of its own name.
        hosted = not endpoint() and "." not in name
        if parent is not None:
            config, hosted = {"aws_endpoint_url_s3": f"{root()}{parent}/"}, True
        return S3Store(
            name,
            config=config,
            region=region(),
            virtual_hosted_style_request=hosted,
            disable_bulk_delete=True,
            credential_provider=_provider(who.keys),
            client_options=client_options(endpoint()),
            retry_config=retries(count),
        )

    def page(prefix: str, after: str) -> urllib.request.Request:
        query = {"list-type": "2", "prefix": prefix}
        if after:
            query["continuation-token"] = after
        return _signed(root(), query, who.keys(), region())

    return Bucket(f"s3://{name}", connect, page)


def _provider(keys: Callable[[], AwsKeys]) -> Callable[[], S3Credential]:
    """Keys as obstore asks for them. A caller without credentials is refused before the first
    request.
    """
    first = [keys()]

    def provide() -> S3Credential:
        known = first.pop() if first else keys()
        expires = None if known.until == float("inf") else datetime.fromtimestamp(known.until, UTC)
        token = known.token or None
        return {
            "access_key_id": known.key,
            "secret_access_key": known.secret,
            "token": token,
            "expires_at": expires,
        }

    return provide


def _signed(
    url: str, query: Mapping[str, str], keys: AwsKeys, region: str
) -> urllib.request.Request:
    """A request to read from S3, with Amazon's signature of version 4."""
    now, asked = datetime.now(UTC), urlencode(sorted(query.items()), quote_via=quote, safe="")
    place, digest_of_nothing = urlsplit(url), sha256().hexdigest()
    headers = {
        "host": place.netloc,
        "x-amz-content-sha256": digest_of_nothing,
        "x-amz-date": f"{now:%Y%m%dT%H%M%SZ}",
    }

    if keys.token:
        headers["x-amz-security-token"] = keys.token
    names = ";".join(headers)
    lines = [f"{name}:{value}" for name, value in headers.items()]
    request = "\n".join(["GET", place.path, asked, *lines, "", names, digest_of_nothing])
    digest = sha256(request.encode()).hexdigest()

    scope = f"{now:%Y%m%d}/{region}/s3/aws4_request"
    signed = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    key = f"AWS4{keys.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, signed.encode(), "sha256").hex()
    said = f"Credential={keys.key}/{scope}, SignedHeaders={names}, Signature={signature}"
    headers["Authorization"] = f"AWS4-HMAC-SHA256 {said}"

    # S3's own address.
    return urllib.request.Request(f"{url}?{asked}", headers=headers)  # noqa: S310


def signing_region(name: str, who: MachineRole) -> str:
    """The region that requests to a bucket are signed for: machines of several regions and clouds
    may share it.
    """
    return ("" if endpoint() else bucket_region(f"{S3}/{name}")) or who.region() or "us-east-1"


def bucket_region(url: str) -> str:
    """The region of a bucket, which S3 reveals without credentials; empty if S3 does not answer."""
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - S3's own address
    try:
        with _NO_REDIRECTS.open(request, timeout=CALL_SECONDS) as answer:
            return str(answer.headers.get("x-amz-bucket-region", ""))
    except urllib.error.HTTPError as error:
        # S3 may redirect us to the region or refuse access; both answers name the region.
        with error:
            return str(error.headers.get("x-amz-bucket-region", ""))
    except (OSError, http.client.HTTPException):
        return ""


class _KeepRedirects(urllib.request.HTTPRedirectHandler):
    """Returns redirects like any other answer."""

    def redirect_request(self, *_: object) -> None:
        return None


_NO_REDIRECTS = urllib.request.build_opener(_KeepRedirects)


class MachineRole:
    """How a caller proves to S3 who it is: by a machine's role, from the metadata service;
    credentials in the environment come first.
    """

    def keys(self) -> AwsKeys:
        """Keys from the environment, or from the machine's role. StoreRefused: there are none."""
        environment = os.environ
        if "AWS_ACCESS_KEY_ID" in environment and "AWS_SECRET_ACCESS_KEY" in environment:
            token = environment.get("AWS_SESSION_TOKEN", "")
            return AwsKeys(
                environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"], token
            )

        role = _metadata("iam/security-credentials/").split()
        if not role:
            raise StoreRefused(
                "this machine has no identity to reach S3 with: name an instance profile under "
                "identity:"
            )

        keys = json.loads(_metadata(f"iam/security-credentials/{role[0]}"))
        until = datetime.fromisoformat(keys["Expiration"].replace("Z", "+00:00")).timestamp()
        return AwsKeys(keys["AccessKeyId"], keys["SecretAccessKey"], keys["Token"], until)

    def region(self) -> str:
        """The region in the environment, or the machine's."""
        named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return named or _metadata("placement/region").strip()


def _metadata(path: str) -> str:
    """A value of EC2's metadata service; empty if there is none. StoreRefused: this is not an EC2
    instance.
    """
    host = metadata_host(dict(os.environ))
    try:
        _, token, _ = ask(
            host,
            "/latest/api/token",
            {"X-aws-ec2-metadata-token-ttl-seconds": "60"},
            "PUT",
            seconds=5,
        )
        headers = {"X-aws-ec2-metadata-token": token}
        status, body, _ = ask(host, f"/latest/meta-data/{path}", headers, seconds=5)
    except OSError:
        raise StoreRefused(
            "no credentials for S3: set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION"
        ) from None

    return body if status == 200 else ""


MACHINE = MachineRole()
