"""Finds the store for a location in a job file."""

from dataclasses import dataclass
from pathlib import Path

from agileml.runtime.blob_store import BlobStore, FileBlobStore
from spotctl.agent.cloud_parts import STORAGE, cloud_part, clouds_by_scheme, forms
from spotctl.agent.data.blobs.bucket import ObjectBucket, StoreRefused
from spotctl.agent.data.blobs.identity import MACHINE, StoreIdentity
from spotctl.agent.data.blobs.objects import ObjectBlobStore


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A bucket, and the prefix of all keys of a location: empty, or ending with a slash."""

    bucket: ObjectBucket
    prefix: str


def store_at(location: str, who: StoreIdentity = MACHINE) -> BlobStore:
    """The blob store at a path, or in an object store. StoreRefused: the location is wrong or out of reach."""
    place = place_of(location, who)
    return FileBlobStore(Path(location)) if place is None else ObjectBlobStore(place.bucket, place.prefix)


def place_of(location: str, who: StoreIdentity = MACHINE) -> ObjectPlace | None:
    """The bucket and prefix of a location; None for a path."""
    scheme, separator, rest = location.partition("://")
    if not separator:
        return None
    if scheme not in clouds_by_scheme():
        *others, last = forms()
        raise StoreRefused(f"{location}: not a path, {', '.join(others)} or {last}")
    name, _, prefix = rest.partition("/")
    prefix, cloud = prefix.strip("/"), clouds_by_scheme()[scheme]
    part = cloud_part(cloud, STORAGE)
    assert part is not None
    return ObjectPlace(part.bucket(name, who.at(cloud)), f"{prefix}/" if prefix else "")
