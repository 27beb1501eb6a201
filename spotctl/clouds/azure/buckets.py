"""Containers of Blob Storage for the launcher: its sign-in, and copies that the store itself
makes."""

from __future__ import annotations

import base64
import os
from datetime import datetime
from urllib.parse import quote

from spotctl.agent.data.locations import TokenIdentity
from spotctl.agent.data.stores import COPY_BYTES
from spotctl.clouds.azure.storage import API_VERSION, endpoint
from spotctl.clouds.store_calls import refused_as_store, store_answer


class AzureLauncher:
    """See `TokenIdentity`: a token for the sign-in that the SDK finds on this computer."""

    def token(self) -> tuple[str, float]:
        from spotctl.clouds.azure.cloud import AzureSettings
        from spotctl.clouds.azure.session import storage_token

        with refused_as_store():
            return storage_token(AzureSettings())


LAUNCHER = AzureLauncher()


# The same question as to other stores.
def region_of(name: str, who: TokenIdentity) -> str:  # noqa: ARG001
    """Empty: the region of a storage account is known to Azure's management, not to the store."""
    return ""


def drop_abandoned(name: str, prefix: str, before: datetime, who: TokenIdentity) -> None:
    """Nothing: the store itself drops blocks that belong to no blob after a week."""


def copy(key: str, source: str, target: str, who: TokenIdentity) -> None:
    """Copies the blob of this name from one container to another; it appears when it is whole.
    StoreRefused: the store does not. The identity that may read the source is shown with each
    request."""
    addresses, name = [], quote(key, safe="/~")
    for place in (source, target):
        container, _, account = place.partition("@")
        addresses.append(f"{endpoint(account)}/{container}/{name}")
    origin, url = addresses
    what = f"az://{target}/{key}"
    proof = f"Bearer {who.token()[0]}"
    headers = {"Authorization": proof, "x-ms-version": API_VERSION}
    size = int(store_answer("HEAD", origin, what, headers).headers["Content-Length"])
    copied = {**headers, "x-ms-copy-source": origin, "x-ms-copy-source-authorization": proof}
    if size <= COPY_BYTES:
        store_answer("PUT", url, what, {**copied, "x-ms-blob-type": "BlockBlob"})
        return

    # All block ids of a blob must have the same length, and differ from another writer's.
    prefix, blocks = os.urandom(8).hex(), []
    for number, first in enumerate(range(0, size, COPY_BYTES)):
        block = base64.b64encode(f"{prefix}-{number:08d}".encode()).decode()
        blocks.append(block)
        last = min(first + COPY_BYTES, size) - 1
        ranged = {**copied, "x-ms-source-range": f"bytes={first}-{last}"}
        store_answer("PUT", url, what, ranged, {"comp": "block", "blockid": block})

    listed = "".join(f"<Latest>{block}</Latest>" for block in blocks)
    body = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'
    store_answer("PUT", url, what, headers, {"comp": "blocklist"}, body.encode())
