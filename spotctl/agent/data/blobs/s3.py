"""Object stores that speak the language of S3."""

import base64
import hashlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from xml.sax.saxutils import escape

from spotctl.agent.data.blobs.bucket import (
    COPY_BYTES,
    ETAGS,
    NoSuchObject,
    ObjectVersions,
    StoreRefused,
    copy_ranges,
)
from spotctl.agent.data.blobs.http import Caller, HttpCall, elements, path_of

ABANDONED_AFTER = timedelta(days=1)
"""No upload takes this long: an older one was left behind."""


@dataclass(frozen=True, slots=True)
class S3Bucket:
    """A bucket. `url` is its address without a final slash; messages use `name`, such as s3://bucket."""

    name: str
    url: str
    caller: Caller
    versions: ObjectVersions = ETAGS

    def put(self, key: str, content: bytes) -> None:
        self.caller.call(self.replacing(key, content))

    def replacing(self, key: str, content: bytes) -> HttpCall:
        """See `VersionedBucket`."""
        return self.request("PUT", key, body=content)

    def copy(self, key: str, source: "S3Bucket", size: int) -> None:
        """See `CopyingBucket`."""
        origin = {"x-amz-copy-source": f"{source.name.partition('://')[2]}/{path_of(key)}"}
        if size <= COPY_BYTES:
            self.checked(self.request("PUT", key, headers=origin))
            return
        upload = self.upload(key)
        try:
            for number, (first, last) in enumerate(copy_ranges(size), start=1):
                upload.copy_part(number, {**origin, "x-amz-copy-source-range": f"bytes={first}-{last}"})
            upload.finish()
        except BaseException:
            upload.abort()
            raise

    def checked(self, request: HttpCall) -> bytes:
        """The answer to a request that takes long, and may fail after the first byte: with status 200."""
        answer, _ = self.caller.call(request)
        if elements(answer, "Code"):
            raise StoreRefused(f"{request.what}: {': '.join(elements(answer, 'Message'))}")
        return answer

    def upload(self, key: str) -> "S3Upload":
        # An identity that may not list uploads can still upload.
        with suppress(StoreRefused):
            self._drop_abandoned(key[: key.rfind("/") + 1])
        body, _ = self.caller.call(self.request("POST", key, {"uploads": ""}))
        (number,) = elements(body, "UploadId")
        return S3Upload(self, key, number)

    def get(self, key: str) -> Iterator[bytes]:
        return self.caller.stream(self.request("GET", key))

    def list(self, prefix: str) -> Iterator[str]:
        query = {"list-type": "2", "prefix": prefix}
        while True:
            body, _ = self.caller.call(HttpCall("GET", f"{self.url}/", f"{self.name}/{prefix}", query))
            yield from elements(body, "Key")
            # S3 and Google write `true` in lower case.
            if elements(body, "IsTruncated") != ["true"]:
                return
            (token,) = elements(body, "NextContinuationToken")
            query = {**query, "continuation-token": token}

    def delete(self, key: str) -> None:
        with suppress(NoSuchObject):
            self.caller.call(self.request("DELETE", key))

    def _drop_abandoned(self, prefix: str) -> None:
        """Drops the parts that ended machines left below `prefix`, which would be billed for ever."""
        query = {"prefix": prefix, "uploads": ""}
        body, _ = self.caller.call(HttpCall("GET", f"{self.url}/", f"{self.name}/{prefix}", query))
        uploads = zip(*(elements(body, name) for name in ("Key", "UploadId", "Initiated")), strict=True)
        before = datetime.now(UTC) - ABANDONED_AFTER
        for key, number, begun in uploads:
            if datetime.fromisoformat(begun) < before:
                S3Upload(self, key, number).abort()

    def request(
        self,
        method: str,
        key: str,
        query: dict[str, str] | None = None,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> HttpCall:
        """A call about an object. The store checks what arrives against the checksum."""
        checksum = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        of_body = {"Content-MD5": checksum, "Content-Type": "application/octet-stream"} if body else {}
        all_headers = {**of_body, **(headers or {})}
        return HttpCall(method, f"{self.url}/{path_of(key)}", f"{self.name}/{key}", query or {}, all_headers, body)


@dataclass(slots=True)
class S3Upload:
    """See `Upload`."""

    bucket: S3Bucket
    key: str
    number: str
    tags: dict[int, str] = field(default_factory=dict)

    def part(self, number: int, content: bytes) -> None:
        query = {"partNumber": str(number), "uploadId": self.number}
        _, headers = self.bucket.caller.call(self.bucket.request("PUT", self.key, query, content))
        self.tags[number] = headers["etag"]

    def copy_part(self, number: int, origin: dict[str, str]) -> None:
        """Copies a part from the place that these headers name."""
        query = {"partNumber": str(number), "uploadId": self.number}
        (self.tags[number],) = elements(
            self.bucket.checked(self.bucket.request("PUT", self.key, query, headers=origin)), "ETag"
        )

    def finish(self) -> None:
        parts = "".join(
            f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(tag)}</ETag></Part>"
            for number, tag in sorted(self.tags.items())
        )
        body = f"<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>".encode()
        self.bucket.checked(self.bucket.request("POST", self.key, {"uploadId": self.number}, body))

    def abort(self) -> None:
        with suppress(StoreRefused):
            self.bucket.caller.call(self.bucket.request("DELETE", self.key, {"uploadId": self.number}))
