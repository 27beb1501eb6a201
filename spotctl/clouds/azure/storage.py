"""Blob Storage: where it is, and how its callers prove who they are."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from urllib.parse import quote

from spotctl.agent.data.locations import TokenIdentity, bearer
from spotctl.agent.data.stores import Bucket, StoreRefused, client_options, retries
from spotctl.agent.lease.self_deletion import fetch_metadata
from spotctl.clouds.azure.machine import metadata_host

if TYPE_CHECKING:
    from obstore.store import AzureStore

_STORAGE = "https://storage.azure.com/"


def bucket(name: str, who: TokenIdentity) -> Bucket:
    """The container that is named with its account."""
    container, _, account = name.partition("@")
    if not account:
        raise StoreRefused(f"az://{name}: name the storage account: az://{container}@ACCOUNT/...")

    def connect(count: int) -> AzureStore:
        from obstore.store import AzureStore

        return AzureStore(
            container,
            account_name=account,
            endpoint=endpoint(account),
            credential_provider=bearer(who),
            client_options=client_options(endpoint(account)),
            retry_config=retries(count),
        )

    return Bucket(f"az://{name}", connect)


def endpoint(account: str) -> str:
    """Where an account is."""
    return os.environ.get("AZURE_STORAGE_BLOB_ENDPOINT", f"https://{account}.blob.core.windows.net").rstrip("/")


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
