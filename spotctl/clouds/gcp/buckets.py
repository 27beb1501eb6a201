"""Buckets of Cloud Storage for the launcher: its sign-in, where a bucket is, and copies that the
store itself makes.
"""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote
from xml.etree import ElementTree

from spotctl.agent.data.locations import TokenIdentity
from spotctl.clouds.gcp.storage import endpoint
from spotctl.clouds.store_calls import refused_as_store, store_answer


class GoogleLauncher:
    """See `TokenIdentity`: a token for the sign-in that the SDK finds on this computer."""

    def token(self) -> tuple[str, float]:
        from spotctl.clouds.gcp.session import storage_token

        with refused_as_store():
            return storage_token()


LAUNCHER = GoogleLauncher()


def region_of(name: str, who: TokenIdentity) -> str:
    """The region of a bucket; empty if it is in several."""
    headers = {"Authorization": f"Bearer {who.token()[0]}"}
    url, query = f"{endpoint()}/storage/v1/b/{name}", {"fields": "location,locationType"}
    answer = store_answer("GET", url, f"gs://{name}", headers, query).json()
    return str(answer["location"]).lower() if answer.get("locationType") == "region" else ""


def copy(key: str, source: str, target: str, who: TokenIdentity) -> None:
    """Copies the object of this name from one bucket to another; it appears when it is whole.
    StoreRefused: the store does not."""
    name = quote(key, safe="")
    url = f"{endpoint()}/storage/v1/b/{source}/o/{name}/rewriteTo/b/{target}/o/{name}"
    query: dict[str, str] = {}
    while True:
        headers = {"Authorization": f"Bearer {who.token()[0]}"}
        answer = store_answer("POST", url, f"gs://{target}/{key}", headers, query).json()
        if answer["done"]:
            return
        query = {"rewriteToken": str(answer["rewriteToken"])}


def drop_abandoned(name: str, prefix: str, before: datetime, who: TokenIdentity) -> None:
    """Drops the parts of uploads that began before this moment and have not ended: their writers
    were killed.
    """
    headers = {"Authorization": f"Bearer {who.token()[0]}"}
    url, what = f"{endpoint()}/{name}", f"gs://{name}/{prefix}"
    query = {"uploads": "", "prefix": prefix}
    while True:
        answer = store_answer("GET", f"{url}/", what, headers, query)
        listed = ElementTree.fromstring(answer.text)  # noqa: S314 - the store's own answer
        for upload in listed.iterfind("{*}Upload"):
            key, number, begun = (
                upload.findtext(f"{{*}}{part}", "") for part in ("Key", "UploadId", "Initiated")
            )
            if datetime.fromisoformat(begun) < before:
                store_answer(
                    "DELETE", f"{url}/{quote(key, safe='')}", what, headers, {"uploadId": number}
                )
        if listed.findtext("{*}IsTruncated") != "true":
            return
        markers = {"key-marker": "NextKeyMarker", "upload-id-marker": "NextUploadIdMarker"}
        query |= {name: listed.findtext(f"{{*}}{part}", "") for name, part in markers.items()}
