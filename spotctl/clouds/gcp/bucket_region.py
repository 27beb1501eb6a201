"""Where a bucket of Cloud Storage is."""

import json
from urllib.parse import urlsplit

from spotctl.agent.data.blobs.http import Caller, HttpCall
from spotctl.agent.data.blobs.identity import BearerToken, TokenIdentity
from spotctl.clouds.gcp.storage import endpoint


def region_of(name: str, who: TokenIdentity) -> str:
    """The region of a bucket; empty if it is in several."""
    parts = urlsplit(endpoint())
    call = HttpCall(
        "GET",
        f"{parts.scheme}://{parts.netloc}/storage/v1/b/{name}",
        f"gs://{name}",
        {"fields": "location,locationType"},
    )
    body, _ = Caller(BearerToken(who.token)).call(call)
    answer = json.loads(body)
    return str(answer["location"]).lower() if answer.get("locationType") == "region" else ""
