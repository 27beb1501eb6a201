"""Blob Storage: where it is, and how its callers prove who they are."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode
from urllib.request import Request

from spotctl.agent.data.locations import TokenIdentity, bearer
from spotctl.agent.data.stores import Bucket, NoSuchObject, StoreRefused, client_options, retries
from spotctl.agent.lease.self_deletion import METADATA_HOST, fetch_metadata

if TYPE_CHECKING:
    from obstore.store import AzureStore

_STORAGE = "https://storage.azure.com/"

API_VERSION = "2023-11-03"
"""The version of the store's interface that requests of our own name."""


def bucket(name: str, who: TokenIdentity) -> Bucket:
    """The container that is named with its account."""
    container, _, account = name.partition("@")
    if not account:
        raise StoreRefused(f"az://{name}: name the storage account: az://{container}@ACCOUNT/...")

    def connect(count: int, parent: str | None) -> AzureStore:
        from obstore.store import AzureStore

        at, inside, options = endpoint(account), container, client_options(endpoint(account))
        if parent is not None:
            at, inside = f"{at}/{container}{parent}", ""
        return AzureStore(
            inside,
            account_name=account,
            endpoint=at,
            credential_provider=bearer(who),
            client_options=options,
            retry_config=retries(count),
        )

    def request(method: str, path: str, query: Mapping[str, str] | None = None) -> Request:
        token, _ = who.token()
        headers = {"Authorization": f"Bearer {token}", "x-ms-version": API_VERSION}
        url = f"{endpoint(account)}/{container}{path}?{urlencode(query or {}, quote_via=quote)}"
        return Request(url, headers=headers, method=method)  # noqa: S310 - the store's own address

    def page(prefix: str, after: str) -> Request:
        listing = {"restype": "container", "comp": "list"}
        return request("GET", "", {**listing, "prefix": prefix, "marker": after})

    return _Container(f"az://{name}", connect, page, request)


class _Container(Bucket):
    """obstore removes blobs with requests for several, which cannot name a blob with an empty part
    in its name.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[int, str | None], AzureStore],
        page: Callable[[str, str], Request],
        request: Callable[[str, str], Request],
    ) -> None:
        super().__init__(name, connect, page)
        self._request = request

    def delete(self, key: str) -> None:
        if "//" not in f"/{key}":
            super().delete(key)
            return
        self.check(key)
        with suppress(NoSuchObject):
            self.ask(key, partial(self._request, "DELETE", f"/{quote(key)}"))


def endpoint(account: str) -> str:
    """Where an account is."""
    return os.environ.get(
        "AZURE_STORAGE_BLOB_ENDPOINT", f"https://{account}.blob.core.windows.net"
    ).rstrip("/")


class MachineIdentity:
    """A machine's managed identity, from the metadata service."""

    def token(self) -> tuple[str, float]:
        """A token for the machine's managed identity. StoreRefused: there is none."""
        path = f"/metadata/identity/oauth2/token?api-version=2018-02-01&resource={quote(_STORAGE, safe='')}"
        host = os.environ.get("AZURE_METADATA_HOST") or METADATA_HOST
        try:
            answer = json.loads(fetch_metadata(host, path, {"Metadata": "true"}))
        except OSError as error:
            problem = f"this machine has no managed identity to reach Blob Storage with: {error}"
            raise StoreRefused(problem) from None
        return str(answer["access_token"]), float(answer.get("expires_in", 0))


MACHINE = MachineIdentity()
