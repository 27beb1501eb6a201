"""Cloud Storage: where it is, and how its callers prove who they are."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from spotctl.agent.blobs.bucket import ObjectBucket, ObjectVersions, StoreRefused
from spotctl.agent.blobs.http import Caller
from spotctl.agent.blobs.identity import EARLY_SECONDS, BearerToken, TokenIdentity
from spotctl.agent.blobs.s3 import S3Bucket
from spotctl.agent.self_deletion import fetch_metadata
from spotctl.clouds.gcp.machine import metadata_host


def _at_generation(version: str | None) -> Mapping[str, str]:
    return {"x-goog-if-generation-match": version or "0"}


GENERATIONS = ObjectVersions("x-goog-generation", _at_generation)
"""Cloud Storage compares generations, not entity tags."""


def endpoint() -> str:
    """Where Cloud Storage is."""
    return os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "https://storage.googleapis.com")


def bucket(name: str, who: TokenIdentity) -> ObjectBucket:
    """The bucket of this name, through the XML interface, which is that of S3."""
    parts = urlsplit(endpoint())
    url = f"{parts.scheme}://{parts.netloc}/{name}"
    return S3Bucket(f"gs://{name}", url, Caller(BearerToken(who.token)), GENERATIONS)


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
