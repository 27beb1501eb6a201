"""Cloud Storage: where it is, and how its callers prove who they are."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request

from spotctl.agent.data.locations import TokenIdentity, bearer
from spotctl.agent.data.stores import Bucket, StoreRefused, client_options, retries
from spotctl.agent.lease.self_deletion import METADATA_HOST, fetch_metadata

if TYPE_CHECKING:
    from obstore.store import GCSStore

TOKEN_SECONDS = 300.0
"""How long a token of the environment is used before the environment is read again."""


def endpoint() -> str:
    """Where Cloud Storage is."""
    named = os.environ.get(
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE", "https://storage.googleapis.com"
    )
    parts = urlsplit(named)
    return f"{parts.scheme}://{parts.netloc}"


def bucket(name: str, who: TokenIdentity) -> Bucket:
    """The bucket of this name."""

    def connect(count: int, parent: str | None) -> GCSStore:
        from obstore.store import GCSStore

        at, inside, options = endpoint(), name, client_options(endpoint())
        if parent is not None:
            at, inside = f"{at}/{name}{parent}", ""
        return GCSStore(
            inside,
            base_url=at,
            credential_provider=bearer(who),
            client_options=options,
            retry_config=retries(count),
        )

    def page(prefix: str, after: str) -> Request:
        query = {"list-type": "2", "prefix": prefix}
        if after:
            query["continuation-token"] = after
        token, _ = who.token()
        url = f"{endpoint()}/{name}?{urlencode(query, quote_via=quote)}"
        headers = {"Authorization": f"Bearer {token}"}
        return Request(url, headers=headers)  # noqa: S310 - the store's own address

    return Bucket(f"gs://{name}", connect, page)


class MachineAccount:
    """A machine's service account, from the metadata service."""

    def token(self) -> tuple[str, float]:
        """A token from the environment, or for the machine's service account. StoreRefused: there
        is none.
        """
        if token := os.environ.get("GOOGLE_OAUTH_ACCESS_TOKEN"):
            return token, TOKEN_SECONDS

        path = "/computeMetadata/v1/instance/service-accounts/default/token"
        host = os.environ.get("GCE_METADATA_HOST") or METADATA_HOST
        try:
            answer = json.loads(fetch_metadata(host, path, {"Metadata-Flavor": "Google"}))
        except OSError as error:
            problem = f"this machine has no service account to reach Cloud Storage with: {error}"
            raise StoreRefused(problem) from None

        return str(answer["access_token"]), float(answer.get("expires_in", 0))


MACHINE = MachineAccount()
