"""Cloud Storage: where it is, and how its callers prove who they are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from spotctl.agent.data.blobs.bucket import ObjectBucket, ObjectVersions, StoreRefused
from spotctl.agent.data.blobs.http import Caller, HttpCall
from spotctl.agent.data.blobs.identity import EARLY_SECONDS, BearerToken, TokenIdentity
from spotctl.agent.data.blobs.s3 import S3Bucket
from spotctl.agent.lease.self_deletion import fetch_metadata
from spotctl.clouds.gcp.machine import metadata_host


def _at_generation(version: str | None) -> Mapping[str, str]:
    return {"x-goog-if-generation-match": version or "0"}


GENERATIONS = ObjectVersions("x-goog-generation", _at_generation)
"""Cloud Storage compares generations, not entity tags."""


def endpoint() -> str:
    """Where Cloud Storage is."""
    return os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "https://storage.googleapis.com")


class GoogleBucket(S3Bucket):
    """A bucket, through the XML interface, which is that of S3 but for copies."""

    def copy(self, key: str, source: S3Bucket, size: int) -> None:  # noqa: ARG002 - the store itself divides the work
        """See `CopyingBucket`."""
        (host, name), (_, origin) = (bucket.url.rsplit("/", 1) for bucket in (self, source))
        path = quote(key, safe="")
        url = f"{host}/storage/v1/b/{origin}/o/{path}/rewriteTo/b/{name}/o/{path}"
        query: dict[str, str] = {}
        while True:
            body, _ = self.caller.call(HttpCall("POST", url, f"{self.name}/{key}", query))
            answer = json.loads(body)
            if answer["done"]:
                return
            query = {"rewriteToken": str(answer["rewriteToken"])}


def bucket(name: str, who: TokenIdentity) -> ObjectBucket:
    """The bucket of this name."""
    parts = urlsplit(endpoint())
    url = f"{parts.scheme}://{parts.netloc}/{name}"
    return GoogleBucket(f"gs://{name}", url, Caller(BearerToken(who.token)), GENERATIONS)


class MachineAccount:
    """A machine's service account, from the metadata service."""

    def token(self) -> tuple[str, float]:
        """A token from the environment, or for the machine's service account. StoreRefused: there is none."""
        if token := os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
            return token, EARLY_SECONDS
        path = "/computeMetadata/v1/instance/service-accounts/default/token"
        try:
            answer = json.loads(fetch_metadata(metadata_host(), path, {"Metadata-Flavor": "Google"}))
        except OSError as error:
            raise StoreRefused(f"this machine has no service account to reach Cloud Storage with: {error}") from None
        return str(answer["access_token"]), float(answer.get("expires_in", 0))


MACHINE = MachineAccount()
