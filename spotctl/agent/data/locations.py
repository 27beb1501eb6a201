"""The store for a location in a job file, for a caller: a rented machine with an identity of its
own, or a launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from agileml.runtime.blob_store import (
    DIGEST_BYTES,
    PIECE_BYTES,
    BlobBytes,
    BlobStore,
    FileBlobStore,
    UnreadableBlob,
    checked_name,
    is_name,
)
from spotctl.agent.cloud_parts import STORAGE, cloud_part, clouds_by_scheme, forms
from spotctl.agent.data.stores import Bucket, Content, NoSuchObject, StoreRefused

if TYPE_CHECKING:
    from obstore.store import AzureBearerToken


StoreIdentity = Callable[[str], Any]
"""A caller of object stores: its identity in a cloud, as the cloud's part `storage` asks for it.
StoreRefused: there are no credentials, or they cannot be used."""


# Each cloud's store asks for something else.
def machine_identity(cloud: str) -> Any:  # noqa: ANN401
    """The identity of this machine in a cloud; credentials in the environment come first."""
    part = cloud_part(cloud, STORAGE)
    assert part is not None
    return part.MACHINE


MACHINE: StoreIdentity = machine_identity


class TokenIdentity(Protocol):
    """An identity that is proved by a token."""

    def token(self) -> tuple[str, float]:
        """A token, and the seconds for which it is valid."""
        ...


def bearer(who: TokenIdentity) -> Callable[[], AzureBearerToken]:
    """Tokens as obstore asks for them. A caller without credentials is refused before the first
    request.
    """
    first = [who.token()]

    def provide() -> AzureBearerToken:
        token, seconds = first.pop() if first else who.token()
        return {"token": token, "expires_at": datetime.now(UTC) + timedelta(seconds=seconds)}

    return provide


def store_at(location: str, who: StoreIdentity = MACHINE) -> BlobStore:
    """The blob store at a path, or in an object store. StoreRefused: the location is wrong or out
    of reach.
    """
    return place_of(location, who) or FileBlobStore(Path(location))


def place_of(location: str, who: StoreIdentity = MACHINE) -> ObjectBlobStore | None:
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
    return ObjectBlobStore(part.bucket(name, who(cloud)), f"{prefix}/" if prefix else "")


class SharedObject:
    """One object that several processes write, each only if the object is unchanged since the
    process read it.

    S3 and Azure compare entity tags, Cloud Storage compares generations. That comparison and the
    write are one step in the store, which decides between two writers however their clocks and
    connections behave.
    """

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket, self._key = bucket, key

    def read(self) -> Content | None:
        """The object; None: it does not exist."""
        return self._bucket.read(self._key)

    def write(self, data: bytes, version: str | None) -> str:
        """See `Bucket.replace`."""
        return self._bucket.replace(self._key, data, version)


def shared_object(location: str, who: StoreIdentity = MACHINE) -> SharedObject:
    """The object at a location. StoreRefused: the location is a path, or wrong."""
    folder, _, name = location.rpartition("/")
    place = place_of(folder, who)
    if place is None:
        *others, last = (form.partition("://")[0] + "://" for form in forms())
        raise StoreRefused(
            f"{location}: not in an object store; write {', '.join(others)} or {last}"
        )
    return SharedObject(place.bucket, place.prefix + name)


class ObjectBlobStore:
    """Blobs in a bucket; see `BlobStore`. Each object ends with the SHA-256 of its content.

    All names are below `prefix`, which is empty or ends with a slash.
    """

    def __init__(self, bucket: Bucket, prefix: str = "") -> None:
        self.bucket, self.prefix = bucket, prefix

    def put(self, name: str, pieces: Iterable[BlobBytes]) -> None:
        """Sends parts as they fill up, so a large blob needs the memory of a few parts."""
        self.bucket.write(self.prefix + checked_name(name), _with_digest(pieces))

    def get(self, name: str) -> Iterator[bytes]:
        """Yields the content; the last bytes are held back, because they may be the digest."""
        key, digest, kept = self.prefix + checked_name(name), sha256(), b""
        try:
            for received in self.bucket.get(key):
                kept += received
                while len(kept) > DIGEST_BYTES:
                    size = min(PIECE_BYTES, len(kept) - DIGEST_BYTES)
                    piece, kept = kept[:size], kept[size:]
                    digest.update(piece)
                    yield piece
        except NoSuchObject:
            raise UnreadableBlob(f"{name} cannot be read: it does not exist") from None
        except StoreRefused as error:
            raise UnreadableBlob(f"{name} cannot be read: {error}") from error

        if kept != digest.digest():
            raise UnreadableBlob(f"{name} is damaged: its content does not match its digest")

    def list(self, prefix: str = "") -> list[str]:
        names = (key[len(self.prefix) :] for key in self.bucket.list(self.prefix + prefix))
        return sorted(name for name in names if is_name(name))

    def delete(self, name: str) -> None:
        self.bucket.delete(self.prefix + checked_name(name))


def _with_digest(pieces: Iterable[BlobBytes]) -> Iterator[BlobBytes]:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    yield digest.digest()
