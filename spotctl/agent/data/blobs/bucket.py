"""`ObjectBucket`: the few operations of an object store that spotctl needs, the same for all clouds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

PART_BYTES = 16 << 20
"""Bytes per part. The clouds allow at least 10,000 parts, so an object may have 160 GB."""


COPY_BYTES = 256 << 20
"""Bytes that a store copies with one request, which must be answered within the time of a call."""


class StoreRefused(OSError):
    """The store refused a request, or did not answer; the message names the object and says why."""


class StoreUnavailable(StoreRefused):
    """The store failed, or did not answer, in a way that may pass."""


class NoSuchObject(StoreRefused):
    """There is no object of this name, or no such bucket."""


class ObjectChanged(StoreRefused):
    """A write on a condition was refused: another process has written the object."""


@dataclass(frozen=True, slots=True)
class ObjectVersions:
    """How a store names the versions of an object: the header of an answer, and that of a write on a condition.

    The condition is that an object has a version still, or (None) that there is none.
    """

    header: str
    condition: Callable[[str | None], Mapping[str, str]]


def _unchanged(version: str | None) -> Mapping[str, str]:
    return {"If-None-Match": "*"} if version is None else {"If-Match": version}


ETAGS = ObjectVersions("etag", _unchanged)


class Upload(Protocol):
    """An object that is sent in parts. It exists once `finish` returns; until then, the earlier object stays."""

    def part(self, number: int, content: bytes) -> None:
        """Sends a part; numbers begin at 1. A part may be sent again."""
        ...

    def finish(self) -> None: ...

    def abort(self) -> None:
        """Drops the parts that were sent."""
        ...


class ObjectBucket(Protocol):
    """A bucket or container. Keys are names with slashes. Every call may raise StoreRefused."""

    def put(self, key: str, content: bytes) -> None:
        """Writes a small object at once."""
        ...

    def upload(self, key: str) -> Upload:
        """Begins a large object."""
        ...

    def get(self, key: str) -> Iterator[bytes]:
        """The content, in pieces of any size. NoSuchObject: there is no such object."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """The keys that begin with `prefix`."""
        ...

    def delete(self, key: str) -> None:
        """Removes an object; does nothing if there is none."""
        ...


@runtime_checkable
class CopyingBucket(Protocol):
    """A bucket of a store that itself copies objects between its buckets, in whatever regions these are."""

    def copy(self, key: str, source: Any, size: int) -> None:  # noqa: ANN401 - a bucket of the same store
        """Copies the object of this name and size from another bucket of the store; it appears when it is whole.

        NoSuchObject: one of the buckets, or the object, does not exist.
        """
        ...


def copy_ranges(size: int) -> Iterator[tuple[int, int]]:
    """The parts in which an object is copied: the first and the last byte of each."""
    for first in range(0, size, COPY_BYTES):
        yield first, min(first + COPY_BYTES, size) - 1
