"""Finds the store for a location in a job file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from agileml.runtime.blob_store import BlobStore, FileBlobStore
from spotctl.agent.blobs.azure import AzureContainer
from spotctl.agent.blobs.bucket import ObjectBucket, StoreRefused
from spotctl.agent.blobs.http import Caller, bucket_region
from spotctl.agent.blobs.identity import MACHINE, AwsSigner, BearerToken, StoreIdentity
from spotctl.agent.blobs.objects import ObjectBlobStore
from spotctl.agent.blobs.s3 import S3Bucket

SCHEMES = ("s3", "gs", "az")
S3 = "https://s3.amazonaws.com"


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket, and the prefix of all keys of a location: empty, or ending with a slash."""

    bucket: ObjectBucket
    prefix: str


def store_at(location: str, who: StoreIdentity = MACHINE) -> BlobStore:
    """The blob store at a path, or at s3://, gs:// or az://. StoreRefused: the location is wrong or out of reach."""
    place = place_of(location, who)
    return FileBlobStore(Path(location)) if place is None else ObjectBlobStore(place.bucket, place.prefix)


def place_of(location: str, who: StoreIdentity = MACHINE) -> ObjectPlace | None:
    """The bucket and prefix of a location; None for a path."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return None
    if scheme not in SCHEMES:
        raise StoreRefused(f"{location}: not a path, s3://BUCKET/..., gs://BUCKET/... or az://CONTAINER@ACCOUNT/...")
    name, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    bucket = {"s3": _s3, "gs": _google, "az": _azure}[scheme](name, who)
    return ObjectPlace(bucket, f"{prefix}/" if prefix else "")


def _s3(name: str, who: StoreIdentity) -> ObjectBucket:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    # Machines of several regions and clouds may share a bucket, and requests are signed for the bucket's region.
    region = ("" if endpoint else bucket_region(f"{S3}/{name}")) or who.aws_region() or "us-east-1"
    if endpoint:
        url = f"{endpoint.rstrip('/')}/{name}"
    elif "." in name:
        # The endpoint's certificate covers only one label in front of its own name.
        url = f"https://s3.{region}.amazonaws.com/{name}"
    else:
        url = f"https://{name}.s3.{region}.amazonaws.com"
    return S3Bucket(f"s3://{name}", url, Caller(AwsSigner(region, who.aws_keys)))


def _google(name: str, who: StoreIdentity) -> ObjectBucket:
    endpoint = os.environ.get("CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "https://storage.googleapis.com")
    parts = urlsplit(endpoint)
    url = f"{parts.scheme}://{parts.netloc}/{name}"
    return S3Bucket(f"gs://{name}", url, Caller(BearerToken(who.google_token)))


def _azure(name: str, who: StoreIdentity) -> ObjectBucket:
    container, _, account = name.partition("@")
    if not account:
        raise StoreRefused(f"az://{name}: name the storage account: az://{container}@ACCOUNT/...")
    endpoint = os.environ.get("AZURE_STORAGE_BLOB_ENDPOINT", f"https://{account}.blob.core.windows.net").rstrip("/")
    return AzureContainer(f"az://{name}", f"{endpoint}/{container}", Caller(BearerToken(who.azure_token)))
