"""One object that several processes write, each only if the object is unchanged since the process read it.

S3 and Azure compare entity tags, Cloud Storage compares generations. That comparison and the write are one step in the
store, which decides between two writers however their clocks and connections behave.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from spotctl.agent.cloud_parts import forms
from spotctl.agent.data.blobs.bucket import NoSuchObject, ObjectVersions, StoreRefused
from spotctl.agent.data.blobs.http import Caller, HttpCall
from spotctl.agent.data.blobs.identity import MACHINE, StoreIdentity
from spotctl.agent.data.blobs.locations import place_of


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


@runtime_checkable
class VersionedBucket(Protocol):
    """A bucket whose objects have versions."""

    @property
    def caller(self) -> Caller: ...

    @property
    def versions(self) -> ObjectVersions: ...

    def replacing(self, key: str, content: bytes) -> HttpCall:
        """The request that writes a small object at once."""
        ...

    def request(self, method: str, key: str) -> HttpCall: ...


@dataclass(frozen=True, slots=True)
class StoredObject:
    """See `SharedObject`."""

    bucket: VersionedBucket
    key: str

    def read(self) -> Content | None:
        try:
            data, headers = self.bucket.caller.call(self.bucket.request("GET", self.key))
        except NoSuchObject:
            return None
        return Content(data, self._version(headers))

    def write(self, data: bytes, version: str | None) -> str:
        plain = self.bucket.replacing(self.key, data)
        conditional = replace(plain, headers={**plain.headers, **self.bucket.versions.condition(version)})
        _, headers = self.bucket.caller.call(conditional)
        return self._version(headers)

    def _version(self, headers: Mapping[str, str]) -> str:
        return headers[self.bucket.versions.header]


def shared_object(location: str, who: StoreIdentity = MACHINE) -> SharedObject:
    """The object at a location. StoreRefused: the location is a path, or wrong."""
    folder, _, name = location.rpartition("/")
    place = place_of(folder, who)
    if place is None or not isinstance(place.bucket, VersionedBucket):
        *others, last = (form.partition("://")[0] + "://" for form in forms())
        raise StoreRefused(f"{location}: not in an object store; write {', '.join(others)} or {last}")
    return StoredObject(place.bucket, place.prefix + name)
