"""`ObjectBlobStore`: blobs in a bucket of any cloud. Each object ends with the SHA-256 of its content."""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from agileml.runtime.blob_store import (
    DIGEST_BYTES,
    PIECE_BYTES,
    BlobBytes,
    UnreadableBlob,
    checked_name,
    is_name,
)
from spotctl.agent.data.blobs.bucket import PART_BYTES, NoSuchObject, ObjectBucket, StoreRefused, Upload


class ObjectBlobStore:
    """See `BlobStore`. All names are below `prefix`, which is empty or ends with a slash."""

    def __init__(self, bucket: ObjectBucket, prefix: str = "") -> None:
        self._bucket, self._prefix = bucket, prefix

    def put(self, name: str, pieces: Iterable[BlobBytes]) -> None:
        """Sends parts as they fill up, so a large blob needs the memory of one part."""
        write(self._bucket, self._prefix + checked_name(name), _with_digest(pieces))

    def get(self, name: str) -> Iterator[bytes]:
        """Yields the content; the last bytes are held back, because they may be the digest."""
        key, digest, kept = self._prefix + checked_name(name), sha256(), b""
        try:
            for received in self._bucket.get(key):
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
        names = (key[len(self._prefix) :] for key in self._bucket.list(self._prefix + prefix))
        return sorted(name for name in names if is_name(name))

    def delete(self, name: str) -> None:
        self._bucket.delete(self._prefix + checked_name(name))


def write(bucket: ObjectBucket, key: str, pieces: Iterable[BlobBytes]) -> None:
    """Writes an object that appears only when complete: a small one with one request, a large one in parts."""
    buffer, upload, number = bytearray(), None, 0
    try:
        for piece in pieces:
            buffer += piece
            while len(buffer) > PART_BYTES:
                upload = upload or bucket.upload(key)
                number += 1
                upload.part(number, bytes(buffer[:PART_BYTES]))
                del buffer[:PART_BYTES]
        if upload is None:
            bucket.put(key, bytes(buffer))
        else:
            upload.part(number + 1, bytes(buffer))
            upload.finish()
    except BaseException:
        _abort(upload)
        raise


def _abort(upload: Upload | None) -> None:
    if upload is not None:
        upload.abort()


def _with_digest(pieces: Iterable[BlobBytes]) -> Iterator[BlobBytes]:
    digest = sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    yield digest.digest()
