"""Blob Storage: blobs that change only when a list of blocks is committed, and how callers prove who they are."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import quote

from spotctl.agent.data.blobs.bucket import (
    COPY_BYTES,
    ETAGS,
    NoSuchObject,
    ObjectBucket,
    ObjectVersions,
    StoreRefused,
    Upload,
    copy_ranges,
)
from spotctl.agent.data.blobs.http import Caller, HttpCall, elements, path_of
from spotctl.agent.data.blobs.identity import BearerToken, TokenIdentity
from spotctl.agent.lease.self_deletion import fetch_metadata
from spotctl.clouds.azure.machine import metadata_host

_STORAGE = "https://storage.azure.com/"
VERSION = "2023-11-03"


@dataclass(frozen=True, slots=True)
class AzureContainer:
    """A container of blobs. `url` is its address without a final slash; messages use `name`."""

    name: str
    url: str
    caller: Caller
    versions: ObjectVersions = ETAGS

    def put(self, key: str, content: bytes) -> None:
        self.caller.call(self.replacing(key, content))

    def replacing(self, key: str, content: bytes) -> HttpCall:
        """See `VersionedBucket`."""
        return self.request("PUT", key, body=content, headers={"x-ms-blob-type": "BlockBlob"})

    def copy(self, key: str, source: AzureContainer, size: int) -> None:
        """See `CopyingBucket`. The identity that may read the source is shown with each request."""
        origin = {"x-ms-copy-source": f"{source.url}/{path_of(key)}"}
        if size <= COPY_BYTES:
            self._copy(key, source, {**origin, "x-ms-blob-type": "BlockBlob"}, {})
            return
        upload = AzureUpload(self, key)
        for number, (first, last) in enumerate(copy_ranges(size), start=1):
            part = {**origin, "x-ms-source-range": f"bytes={first}-{last}"}
            self._copy(key, source, part, {"comp": "block", "blockid": upload.new_block(number)})
        upload.finish()

    def _copy(self, key: str, source: AzureContainer, headers: dict[str, str], query: dict[str, str]) -> None:
        asked = HttpCall("PUT", f"{self.url}/{path_of(key)}", f"{self.name}/{key}", query)
        proof = source.caller.authorize(asked)["Authorization"]
        sent = {"x-ms-version": VERSION, "x-ms-copy-source-authorization": proof, **headers}
        self.caller.call(replace(asked, headers=sent))

    def upload(self, key: str) -> Upload:
        return AzureUpload(self, key)

    def get(self, key: str) -> Iterator[bytes]:
        return self.caller.stream(self.request("GET", key))

    def list(self, prefix: str) -> Iterator[str]:
        query = {"restype": "container", "comp": "list", "prefix": prefix}
        while True:
            call = HttpCall("GET", self.url, f"{self.name}/{prefix}", query, {"x-ms-version": VERSION})
            body, _ = self.caller.call(call)
            yield from elements(body, "Name")
            marker = next(iter(elements(body, "NextMarker")), "")
            if not marker:
                return
            query = {**query, "marker": marker}

    def delete(self, key: str) -> None:
        with suppress(NoSuchObject):
            self.caller.call(self.request("DELETE", key))

    def request(
        self,
        method: str,
        key: str,
        query: dict[str, str] | None = None,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> HttpCall:
        """A call about a blob. The store checks what arrives against the checksum."""
        checksum = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        all_headers = {"x-ms-version": VERSION, **(headers or {})}
        if method == "PUT":
            all_headers |= {"Content-MD5": checksum, "Content-Type": "application/octet-stream"}
        return HttpCall(method, f"{self.url}/{path_of(key)}", f"{self.name}/{key}", query or {}, all_headers, body)


@dataclass(slots=True)
class AzureUpload:
    """See `Upload`. Azure removes blocks that no list contains after a week."""

    container: AzureContainer
    key: str
    prefix: str = field(default_factory=lambda: os.urandom(8).hex())
    blocks: dict[int, str] = field(default_factory=dict)

    def part(self, number: int, content: bytes) -> None:
        query = {"comp": "block", "blockid": self.new_block(number)}
        self.container.caller.call(self.container.request("PUT", self.key, query, content))

    def new_block(self, number: int) -> str:
        """The id of a part, which the object will contain."""
        # All block ids of a blob must have the same length, and differ from another writer's.
        self.blocks[number] = base64.b64encode(f"{self.prefix}-{number:08d}".encode()).decode()
        return self.blocks[number]

    def finish(self) -> None:
        latest = "".join(f"<Latest>{block}</Latest>" for _, block in sorted(self.blocks.items()))
        body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{latest}</BlockList>'.encode()
        self.container.caller.call(self.container.request("PUT", self.key, {"comp": "blocklist"}, body))

    def abort(self) -> None:
        """Nothing to do."""


def bucket(name: str, who: TokenIdentity) -> ObjectBucket:
    """The container that is named with its account."""
    container, _, account = name.partition("@")
    if not account:
        raise StoreRefused(f"az://{name}: name the storage account: az://{container}@ACCOUNT/...")
    endpoint = os.environ.get("AZURE_STORAGE_BLOB_ENDPOINT", f"https://{account}.blob.core.windows.net").rstrip("/")
    return AzureContainer(f"az://{name}", f"{endpoint}/{container}", Caller(BearerToken(who.token)))


class MachineIdentity:
    """A machine's managed identity, from the metadata service."""

    def token(self) -> tuple[str, float]:
        """A token for the machine's managed identity. StoreRefused: there is none."""
        path = f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={quote(_STORAGE, safe='')}"
        try:
            answer = json.loads(fetch_metadata(metadata_host(), path, {"Metadata": "true"}))
        except OSError as error:
            raise StoreRefused(f"this machine has no managed identity to reach Blob Storage with: {error}") from None
        return str(answer["access_token"]), float(answer.get("expires_in", 0))


MACHINE = MachineIdentity()
