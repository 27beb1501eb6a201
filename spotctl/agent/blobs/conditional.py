"""One object that several processes write, each only if the object is unchanged since the process read it.

S3 and Azure compare entity tags, Cloud Storage compares generations. That comparison and the write are one step in the
store, which decides between two writers however their clocks and connections behave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from spotctl.agent.blobs.azure import AzureContainer
from spotctl.agent.blobs.bucket import NoSuchObject, StoreRefused
from spotctl.agent.blobs.http import HttpCall
from spotctl.agent.blobs.identity import MACHINE, StoreIdentity
from spotctl.agent.blobs.locations import place_of
from spotctl.agent.blobs.s3 import S3Bucket

GENERATION = "x-goog-generation"


@dataclass(frozen=True, slots=True)
class Content:
    """An object's data, and the version by which a writer proves that it has read this data."""

    data: bytes
    version: str


class SharedObject(Protocol):
    """Every call may raise StoreRefused; a write may then have been carried out all the same."""

    def read(self) -> Content | None:
        """The object; None: it does not exist."""
        ...

    def write(self, data: bytes, version: str | None) -> str:
        """Replaces this version of the object (None: creates the object). Returns the new version.

        ObjectChanged: the object has another version by now.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """See `SharedObject`."""

    bucket: S3Bucket | AzureContainer
    key: str

    def read(self) -> Content | None:
        try:
            data, headers = self.bucket.caller.call(self.bucket.request("GET", self.key))
        except NoSuchObject:
            return None
        return Content(data, self._version(headers))

    def write(self, data: bytes, version: str | None) -> str:
        _, headers = self.bucket.caller.call(self._call(data, self._condition(version)))
        return self._version(headers)

    def _call(self, data: bytes, condition: Mapping[str, str]) -> HttpCall:
        plain = self.bucket.request("PUT", self.key, body=data)
        kind = {"x-ms-blob-type": "BlockBlob"} if isinstance(self.bucket, AzureContainer) else {}
        return HttpCall(plain.method, plain.url, plain.what, {}, {**plain.headers, **kind, **condition}, data)

    def _condition(self, version: str | None) -> dict[str, str]:
        if self._is_google:
            return {"x-goog-if-generation-match": version or "0"}
        return {"If-None-Match": "*"} if version is None else {"If-Match": version}

    def _version(self, headers: Mapping[str, str]) -> str:
        return headers[GENERATION if self._is_google else "etag"]

    @property
    def _is_google(self) -> bool:
        return self.bucket.name.startswith("gs://")


def shared_object(location: str, who: StoreIdentity = MACHINE) -> SharedObject:
    """The object at s3://, gs:// or az://. StoreRefused: the location is a path, or wrong."""
    folder, _, name = location.rpartition("/")
    place = place_of(folder, who)
    if place is None or not isinstance(place.bucket, (S3Bucket, AzureContainer)):
        raise StoreRefused(f"{location}: not in an object store; write s3://, gs:// or az://")
    return StoredObject(place.bucket, place.prefix + name)
